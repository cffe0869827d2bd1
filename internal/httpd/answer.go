package httpd

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/redact"
)

// refusal is an error as it is answered.
type refusal struct {
	status  int
	class   fault.Class
	message string
}

// problem is {"error":{…}}.
type problem struct {
	Error struct {
		Class   fault.Class `json:"class"`
		Message string      `json:"message"`
	} `json:"error"`
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		panic(http.ErrAbortHandler) // it came while the listener was stopped
	}
	defer s.loops.Done()
	w := &writer{ResponseWriter: rw, hide: s.deps.Hide.NewStream()}
	defer func() {
		p := recover()
		if p != nil {
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p) // it wants the connection cut
			}
			s.log.Error("a request panicked", "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if w.status != 0 {
				s.counts.add(http.StatusInternalServerError)
				panic(http.ErrAbortHandler) // half an answer must not look whole
			}
			refuse(w, &refusal{http.StatusInternalServerError, fault.Internal, "a defect of ombud: its log tells more"})
		}
		w.end()
		s.counts.add(w.status)
		s.log.Debug("answered", "method", r.Method, "path", r.URL.Path, "status", w.status)
	}()
	secure(w.Header(), r.TLS != nil)
	if no := s.admit(r); no != nil {
		refuse(w, no)
		return
	}
	// In a copy: net/http looks at the body of its own to see whether somebody waits to be
	// told to send it, and would wait for him too.
	limited := *r
	limited.Body = http.MaxBytesReader(w, r.Body, maxBody)
	s.route(w, &limited)
}

// secure sets what keeps a browser from doing more with an answer than to show it.
func secure(h http.Header, tls bool) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if tls {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	switch path {
	case "/health", "/healthz":
		s.get(w, r, s.health)
		return
	case "/ready", "/readyz":
		s.get(w, r, s.ready)
		return
	case "/metrics":
		s.get(w, r, s.metrics)
		return
	}
	var best mount
	if !strings.Contains(path, "//") && !strings.Contains(path, "/../") && !strings.Contains(path, "/./") {
		for _, m := range s.mounts {
			if (strings.HasPrefix(path, m.prefix) || m.self && path+"/" == m.prefix) && len(m.prefix) > len(best.prefix) {
				best = m
			}
		}
	}
	if best.handler == nil {
		refuse(w, &refusal{http.StatusNotFound, fault.NotFound, "there is nothing here"})
		return
	}
	best.handler.ServeHTTP(w, r)
}

// get answers a request that only asks.
func (s *Server) get(w http.ResponseWriter, r *http.Request, h http.HandlerFunc) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, &refusal{http.StatusMethodNotAllowed, fault.Invalid, "only GET"})
		return
	}
	h(w, r)
}

func refuse(w http.ResponseWriter, no *refusal) {
	var p problem
	p.Error.Class, p.Error.Message = no.class, no.message
	reply(w, no.status, p)
}

func reply(w http.ResponseWriter, status int, what any) {
	raw, err := json.Marshal(what)
	if err != nil {
		panic("httpd: an answer of ours does not marshal: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(raw, '\n')) // the caller is gone: nothing is to be done
}

// writer hides secrets in what is answered, in whatever pieces it comes.
type writer struct {
	http.ResponseWriter
	hide   *redact.Stream
	status int
}

// Unwrap lets http.ResponseController reach what it wraps.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sends the head. How long the body becomes is not known before.
func (w *writer) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
		w.Header().Del("Content-Length")
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *writer) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if out := w.hide.Push(p); len(out) > 0 {
		if _, err := w.ResponseWriter.Write(out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Flush sends what is settled.
func (w *writer) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// end sends what was kept back.
func (w *writer) end() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if rest := w.hide.Flush(); len(rest) > 0 {
		_, _ = w.ResponseWriter.Write(rest) // the caller is gone: nothing is to be done
	}
}

// counts are the answers by their status.
type counts struct {
	mu sync.Mutex
	m  map[int]int64
}

func (c *counts) add(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = map[int]int64{}
	}
	c.m[status]++
}
