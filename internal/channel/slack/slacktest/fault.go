package slacktest

import (
	"net/http"
	"strings"
)

// Fault is something that goes wrong with a call.
type Fault string

// The faults.
const (
	Status401   Fault = "401"
	Status403   Fault = "403"
	Status429   Fault = "429" // with Retry-After: 2
	Status500   Fault = "500"
	Garbage     Fault = "garbage" // 200 with a page that is no JSON
	Empty       Fault = "empty"   // 200 with {}
	Cut         Fault = "cut"     // done, and the answer ends in its middle
	Hang        Fault = "hang"    // not done, and never answered
	HangAfter   Fault = "hang after"
	CloseBefore Fault = "close before" // not done, and closed without an answer
	CloseAfter  Fault = "close after"  // done, and closed without an answer
)

// Faults are all of them.
func Faults() []Fault {
	return []Fault{Status401, Status403, Status429, Status500, Garbage, Empty, Cut, Hang, HangAfter, CloseBefore, CloseAfter}
}

type planned struct {
	method string
	fault  Fault
	left   int
}

// Fault makes the next n calls of a method go wrong; of any, if it is "".
func (s *Server) Fault(method string, f Fault, n int) {
	s.change(func() { s.faults = append(s.faults, &planned{method, f, n}) })
}

// Mend ends all faults.
func (s *Server) Mend() { s.change(func() { s.faults = nil }) }

func (s *Server) takeFault(method string) (f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.faults {
		if p.left > 0 && (p.method == "" || p.method == method) {
			p.left--
			return p.fault
		}
	}
	return ""
}

// before does what goes wrong without the call being done. It reports whether the call is
// over.
func (s *Server) before(w http.ResponseWriter, r *http.Request, f Fault) bool {
	switch f {
	case Status401, Status403, Status500:
		code := map[Fault]int{Status401: 401, Status403: 403, Status500: 500}[f]
		http.Error(w, "<html>"+strings.Repeat("no ", 50)+"</html>", code)
	case Status429:
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(http.StatusTooManyRequests)
	case Garbage:
		_, _ = w.Write([]byte("<html>We are down for maintenance</html>"))
	case Empty:
		_, _ = w.Write([]byte("{}"))
	case Hang:
		s.hang(r)
	case CloseBefore:
		panic(http.ErrAbortHandler)
	default:
		return false
	}
	return true
}

// after does what goes wrong with an answer.
func (s *Server) after(w http.ResponseWriter, r *http.Request, f Fault, body []byte) {
	switch f {
	case Cut:
		w.Header().Set("Content-Length", "100000")
		_, _ = w.Write(body[:len(body)/2])
		panic(http.ErrAbortHandler)
	case HangAfter:
		s.hang(r)
	case CloseAfter:
		panic(http.ErrAbortHandler)
	default:
		_, _ = w.Write(body)
	}
}

func (s *Server) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-s.stop:
	}
}
