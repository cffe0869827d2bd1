// Package modeltest is a model provider on the loopback interface. It speaks the
// wire formats of Anthropic Messages and of OpenAI chat completions, streamed or
// whole, refuses what the real ones refuse, and fails on command in the ways they
// fail. Its own tests use the public clients of both as the judge of its answers.
package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Key is the only API key the server takes.
const Key = "test-key-0001"

// Step is what the server does with one request; requests that it refuses (4xx)
// use up no step. The zero Fault answers.
type Step struct {
	Text     string
	Calls    []Call
	Thinking string // Anthropic: a signed block of reasoning before the text
	Stop     string // the wire's own stop reason, instead of the usual one
	Usage    Usage  // zero is the default of 100 in, 7 out, 20 of the input from cache
	NoUsage  bool   // OpenAI: report none, as some compatible servers do

	Fault  Fault
	After  int               // stream events sent before Cut, End, Hold and InBand strike
	Status int               // with Fault Refuse
	Kind   string            // error type with Refuse and InBand
	Header map[string]string // with Refuse: retry-after and such
	Body   string            // with Refuse: instead of the usual error document
}

// Call is a tool call. Args goes out as it is, malformed or not.
type Call struct{ Name, Args string }

// Usage is what the server says it used. Input holds what came from the cache.
type Usage struct{ Input, Output, CacheRead, CacheWrite int64 }

// Fault says how a step goes wrong.
type Fault int

// The faults.
const (
	None     Fault = iota
	Refuse         // an error status
	Cut            // the connection breaks in the stream
	End            // the stream ends in good order, but too early
	Hold           // nothing more comes until the client leaves
	InBand         // an error event inside the stream
	Silence        // not even headers come
	Garbage        // the stream is no SSE and no JSON
	Endless        // text without end
	Redirect       // to another host
)

// Request is one request the server accepted or refused.
type Request struct {
	API    string // "anthropic" or "openai"
	Body   []byte
	Header http.Header
	Status int // what it answered; 200 also for a stream that failed later
}

// Server is the fake. URL has no path: Anthropic's base is URL, OpenAI's URL+"/v1".
type Server struct {
	URL string
	// Shred sends streams a few bytes at a time, so that an event never comes in
	// one piece. Set before the first request.
	Shred bool

	http    *httptest.Server
	closing chan struct{}

	mu       sync.Mutex
	steps    []Step
	requests []Request
	ids      int
}

// New starts a server that answers the n-th accepted request by the n-th step.
// It ends with the test.
func New(t testing.TB, steps ...Step) *Server {
	t.Helper()
	s := &Server{steps: steps, closing: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", s.handle(anthropicAPI{}))
	mux.HandleFunc("POST /v1/chat/completions", s.handle(openaiAPI{}))
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"id":"small","object":"model"},{"id":"big","object":"model"}]}`)
	})
	s.http = httptest.NewServer(mux)
	s.URL = s.http.URL
	t.Cleanup(s.Close)
	return s
}

// Close ends every held stream and stops the server. It is safe twice.
func (s *Server) Close() {
	s.mu.Lock()
	select {
	case <-s.closing:
	default:
		close(s.closing)
	}
	s.mu.Unlock()
	s.http.Close()
}

// Requests returns what has come in so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Request(nil), s.requests...)
}

// api is one wire format.
type api interface {
	name() string
	// check returns what is wrong with a request, nil if nothing is.
	check(h http.Header, body []byte) *refusal
	refuse(w http.ResponseWriter, r refusal, id string)
	whole(s *Server, w http.ResponseWriter, body []byte, step Step) error
	stream(s *Server, out *sse, body []byte, step Step) error
	inBand(out *sse, kind string) error
}

type refusal struct {
	status        int
	kind, message string
}

func invalid(format string, args ...any) *refusal {
	return &refusal{status: 400, kind: "invalid_request_error", message: fmt.Sprintf(format, args...)}
}

func (s *Server) id(prefix string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids++
	return fmt.Sprintf("%s_%06d", prefix, s.ids)
}

func (s *Server) note(r Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
}

func (s *Server) take() (Step, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.steps) == 0 {
		return Step{}, false
	}
	step := s.steps[0]
	s.steps = s.steps[1:]
	return step, true
}

func (s *Server) handle(a api) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 32<<20))
		if err != nil {
			return
		}
		bad := checkText(body)
		if bad == nil {
			bad = a.check(r.Header, body)
		}
		var step Step
		if bad == nil {
			var ok bool
			if step, ok = s.take(); !ok {
				bad = invalid("the script of this test has no further step")
			} else if step.Fault == Refuse {
				bad = &refusal{status: step.Status, kind: step.Kind, message: "as the test wished"}
			}
		}
		status := http.StatusOK
		if bad != nil {
			status = bad.status
		}
		s.note(Request{API: a.name(), Body: body, Header: r.Header.Clone(), Status: status})
		if bad != nil {
			s.refuse(w, a, *bad, step)
			return
		}
		s.answer(w, r, a, body, step)
	}
}

func (s *Server) refuse(w http.ResponseWriter, a api, bad refusal, step Step) {
	for k, v := range step.Header {
		w.Header().Set(k, v)
	}
	if step.Body != "" {
		w.WriteHeader(bad.status)
		_, _ = io.WriteString(w, step.Body)
		return
	}
	a.refuse(w, bad, s.id("req"))
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, a api, body []byte, step Step) {
	switch step.Fault {
	case Silence:
		s.hold(r)
		return
	case Redirect:
		http.Redirect(w, r, "http://198.51.100.1/elsewhere", http.StatusTemporaryRedirect)
		return
	}
	var head struct {
		Stream bool `json:"stream"`
	}
	_ = json.Unmarshal(body, &head)
	if !head.Stream {
		_ = a.whole(s, w, body, step)
		return
	}
	w.Header().Set("content-type", "text/event-stream; charset=utf-8")
	w.Header().Set("request-id", s.id("req"))
	w.WriteHeader(http.StatusOK)
	if step.Fault == Garbage {
		_, _ = io.WriteString(w, "event: message_start\ndata: {\"type\": what\n\ndata: <html>\n\n")
		return
	}
	out := &sse{w: w, shred: s.Shred, left: -1}
	if step.Fault != None && step.Fault != Endless {
		out.left = step.After
	}
	err := a.stream(s, out, body, step)
	if errors.Is(err, errStruck) {
		s.strike(r, a, out, step)
	}
}

// strike is how a stream goes wrong once its time has come.
func (s *Server) strike(r *http.Request, a api, out *sse, step Step) {
	switch step.Fault {
	case Cut:
		panic(http.ErrAbortHandler)
	case Hold:
		s.hold(r)
	case InBand:
		out.left = -1
		_ = a.inBand(out, step.Kind)
	}
}

func (s *Server) hold(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-s.closing:
	}
}

// errStruck ends a stream whose fault is due.
var errStruck = errors.New("the fault of this step is due")

// sse writes events. left counts down to a fault, -1 is never.
type sse struct {
	w     http.ResponseWriter
	shred bool
	left  int
}

func (o *sse) event(name string, data any) error {
	raw, err := json.Marshal(data)
	if err != nil {
		return err
	}
	text := "data: " + string(raw) + "\n\n"
	if name != "" {
		text = "event: " + name + "\n" + text
	}
	return o.raw(text)
}

func (o *sse) raw(text string) error {
	if o.left == 0 {
		return errStruck
	}
	if o.left > 0 {
		o.left--
	}
	step := len(text)
	if o.shred {
		step = 5
	}
	for len(text) > 0 {
		n := min(step, len(text))
		if _, err := io.WriteString(o.w, text[:n]); err != nil {
			return err
		}
		text = text[n:]
		if err := http.NewResponseController(o.w).Flush(); err != nil {
			return err
		}
	}
	return nil
}

// pieces cuts text the way models send it, now and then inside a word.
func pieces(text string) []string {
	var out []string
	for _, r := range text {
		if n := len(out); n > 0 && len(out[n-1]) < 6 {
			out[n-1] += string(r)
			continue
		}
		out = append(out, string(r))
	}
	return out
}

func (st Step) usage() Usage {
	if st.Usage == (Usage{}) {
		return Usage{Input: 100, Output: 7, CacheRead: 20}
	}
	return st.Usage
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("content-type", "application/json")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(v)
}

// decodeStrict reads a document whose unknown fields are an error, as both real
// servers have it.
func decodeStrict(body []byte, into any) *refusal {
	dec := json.NewDecoder(strings.NewReader(string(body)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return invalid("the body is not a valid request: %v", err)
	}
	return nil
}
