package telegramtest

import (
	"net/http"
	"strconv"
	"strings"
)

// Fault is how a call goes wrong.
type Fault struct {
	Done bool // the call takes effect all the same

	kind  kind
	reply reply
	code  int    // of a page
	page  string // that is answered as it is
}

type kind int

const (
	answered kind = iota
	page
	cut
	hang
	lostBefore
	lostAfter
)

// Status is an answer with an error of the Bot API.
func Status(code int, description string) Fault {
	return Fault{reply: reply{code: code, description: description}}
}

// Unauthorized is the answer to a token that was replaced.
func Unauthorized() Fault { return Status(http.StatusUnauthorized, "Unauthorized") }

// Forbidden is the answer where a bot may not write.
func Forbidden() Fault {
	return Status(http.StatusForbidden, "Forbidden: bot was blocked by the user")
}

// RetryAfter is the answer to too many calls.
func RetryAfter(seconds int) Fault {
	return Fault{reply: reply{code: http.StatusTooManyRequests, description: "Too Many Requests: retry after " + strconv.Itoa(seconds),
		parameters: &parameters{RetryAfter: seconds}}}
}

const somePage = "<html><body>It works!</body></html>"

// Garbage is an answer of 200 that is no JSON. The call took effect.
func Garbage() Fault { return Fault{Done: true, kind: page, code: http.StatusOK, page: somePage} }

// Page is the answer of a gateway that passed nothing on.
func Page(code int) Fault { return Raw(code, somePage) }

// OK is a successful answer with a result, in JSON, that the call did not have.
func OK(result string) Fault { return Raw(http.StatusOK, `{"ok":true,"result":`+result+`}`) }

// Raw is any answer. The call takes no effect.
func Raw(code int, body string) Fault { return Fault{kind: page, code: code, page: body} }

// Cut is an answer that breaks off in the middle. The call took effect.
func Cut() Fault { return Fault{Done: true, kind: cut} }

// Hang takes the request and never answers. The call takes no effect.
func Hang() Fault { return Fault{kind: hang} }

// LostBefore closes the connection before the call takes effect.
func LostBefore() Fault { return Fault{kind: lostBefore} }

// LostAfter closes the connection when the call took effect, without an answer.
func LostAfter() Fault { return Fault{Done: true, kind: lostAfter} }

// Fault makes the next n calls of a method go wrong, behind those that are to go wrong
// already.
func (s *Server) Fault(method string, n int, f Fault) {
	s.change(func() {
		for range n {
			s.faults[strings.ToLower(method)] = append(s.faults[strings.ToLower(method)], f)
		}
	})
}

// Mend takes back all faults that are still to come.
func (s *Server) Mend() { s.change(func() { clear(s.faults) }) }

// due takes the next fault of a method. The lock is held.
func (s *Server) due(method string) (Fault, bool) {
	key := strings.ToLower(method)
	list := s.faults[key]
	if len(list) == 0 {
		return Fault{}, false
	}
	s.faults[key] = list[1:]
	return list[0], true
}

// broken answers in a way that is no answer.
func (s *Server) broken(w http.ResponseWriter, r *http.Request, method string, p params, f Fault) {
	var out reply
	if f.Done {
		out = s.effect(r.Context(), method, p)
	}
	s.note(method, 0, p)
	switch f.kind {
	case page:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(f.code)
		_, _ = w.Write([]byte(f.page)) // whoever asked may be gone
		return
	case cut:
		body := out.encode()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body[:len(body)/2]) // what is missing makes the fault
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	case hang:
		select {
		case <-r.Context().Done():
		case <-s.closed:
		}
	}
	panic(http.ErrAbortHandler) // net/http closes the connection and says nothing
}
