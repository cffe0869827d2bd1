package discordtest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"
)

// Fault is what goes wrong with a call.
type Fault string

// The faults. A call is done by none of them but BadGateway, Cut and LostAfter.
const (
	Unauthorized Fault = "401"
	Forbidden    Fault = "403"
	TooMany      Fault = "429" // of the whole bot, for 50 ms
	Broken       Fault = "500"
	BadGateway   Fault = "502: done, and the answer is a page of the proxy's"
	Garbage      Fault = "200 with a page instead of JSON"
	Cut          Fault = "done, and half an answer"
	Hang         Fault = "no answer"
	LostAfter    Fault = "done, and the connection closed without an answer"
	LostBefore   Fault = "the connection closed before it was done"
)

type fault struct {
	match string
	kind  Fault
	left  int
}

// Fault makes the next n calls that contain a text, such as "POST /channels", go wrong.
func (s *Server) Fault(match string, f Fault, n int) {
	s.update(func() { s.faults = append(s.faults, &fault{match, f, n}) })
}

// Heal ends all faults.
func (s *Server) Heal() { s.update(func() { s.faults = nil }) }

func (s *Server) faultOf(call string) (f Fault) {
	s.update(func() {
		s.calls = append(s.calls, call)
		for _, one := range s.faults {
			if one.left > 0 && strings.Contains(call, one.match) {
				one.left--
				f = one.kind
				return
			}
		}
	})
	return f
}

// front is what stands before every call: faults, the User-Agent and the token.
func (s *Server) front(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := s.faultOf(r.Method + " " + r.URL.Path)
		if f != "" {
			s.fail(w, r, f, api)
			return
		}
		s.guarded(w, r, api)
	})
}

func (s *Server) guarded(w http.ResponseWriter, r *http.Request, api http.Handler) {
	switch {
	case !strings.HasPrefix(r.UserAgent(), "DiscordBot ("):
		refuse(w, 403, 40333, "internal network error")
	case !strings.HasPrefix(r.URL.Path, "/interactions/") && r.Header.Get("Authorization") != "Bot "+s.token():
		refuse(w, 401, 0, "401: Unauthorized")
	default:
		api.ServeHTTP(w, r)
	}
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, f Fault, api http.Handler) {
	switch f {
	case Unauthorized:
		refuse(w, 401, 0, "401: Unauthorized")
	case Forbidden:
		refuse(w, 403, 50001, "Missing Access")
	case TooMany:
		tooMany(w, 50*time.Millisecond, true)
	case Broken:
		refuse(w, 500, 0, "500: Internal Server Error")
	case Garbage:
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!DOCTYPE html><title>hello</title>")
	case Hang:
		_, _ = io.Copy(io.Discard, r.Body) // or the server does not see that the client has gone
		select {
		case <-r.Context().Done():
		case <-s.done:
		}
	case LostBefore:
		panic(http.ErrAbortHandler)
	case BadGateway, Cut, LostAfter:
		done := httptest.NewRecorder()
		s.guarded(done, r, api)
		s.lose(w, f, done)
	}
}

func (s *Server) lose(w http.ResponseWriter, f Fault, done *httptest.ResponseRecorder) {
	switch f {
	case BadGateway:
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "<html><center><h1>502 Bad Gateway</h1></center></html>")
	case Cut:
		body := done.Body.Bytes()
		w.Header().Set("Content-Length", fmt.Sprint(len(body)+1))
		w.WriteHeader(done.Code)
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		panic(http.ErrAbortHandler)
	}
}
