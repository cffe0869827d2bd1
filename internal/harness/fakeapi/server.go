package fakeapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	maxBody  = 64 << 20
	patience = 60 * time.Second // for a request that a test waits for, on a slow machine
)

// Server is the fake. It serves any number of runs.
type Server struct {
	URL string // without a path, which leads to no run

	http    *httptest.Server
	closing chan struct{}

	mu   sync.Mutex
	runs map[string]*Run
	ids  int
}

// New starts a server on a port of its own. It ends with the test, with what hangs.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{closing: make(chan struct{}), runs: map[string]*Run{}}
	s.http = httptest.NewServer(s)
	s.URL = s.http.URL
	t.Cleanup(func() {
		close(s.closing)
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// Run is what one CLI is answered, and what it sent.
type Run struct {
	URL string // base of Anthropic's and Gemini's API; with "/v1" of OpenAI's
	Key string // the one key it takes, which no other run of this machine has

	scenario Scenario
	server   *Server

	mu       sync.Mutex
	requests []Request
	asked    int           // requests for an answer, without those of the wrong shape
	changed  chan struct{} // closed and made anew when a request comes
}

// Run begins a run.
func (s *Server) Run(sc Scenario) *Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids++
	name := fmt.Sprintf("run%d", s.ids)
	r := &Run{
		URL: s.URL + "/" + name, Key: fmt.Sprintf("fake-key-%s-%s-%08x", s.URL[strings.LastIndex(s.URL, ":")+1:], name, 0x5eed0000+s.ids),
		scenario: sc, server: s, changed: make(chan struct{}),
	}
	s.runs[name] = r
	return r
}

// Request is one request that came, whether it was answered or refused.
type Request struct {
	Method, Path string // path with query, without the run
	Header       http.Header
	Body         []byte // decoded
	Status       int    // 0: a fault without one
	Turn         *Turn  // nil: it asked for no answer, or was refused
	Leaked       bool   // the key stood in the body or in the query
}

// Requests returns what came so far.
func (r *Run) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Turns are the requests for an answer that offer tools, or all if none does: a CLI
// asks also for titles.
func (r *Run) Turns() []Turn {
	var all, with []Turn
	for _, q := range r.Requests() {
		if q.Turn == nil {
			continue
		}
		all = append(all, *q.Turn)
		if len(q.Turn.Tools) > 0 {
			with = append(with, *q.Turn)
		}
	}
	if len(with) > 0 {
		return with
	}
	return all
}

// Await waits until so many requests for an answer have come.
func (r *Run) Await(t testing.TB, n int) {
	t.Helper()
	late := time.After(patience)
	for {
		r.mu.Lock()
		have, changed := r.asked, r.changed
		r.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%d requests for an answer came, not %d", have, n)
		}
	}
}

func (r *Run) note(q Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = append(r.requests, q)
	close(r.changed)
	r.changed = make(chan struct{})
}

// ask counts a request for an answer and returns its number, from 1.
func (r *Run) ask() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	return r.asked
}

func (s *Server) id(prefix string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids++
	return fmt.Sprintf("%s_fake%06d", prefix, s.ids)
}

// ServeHTTP finds the run and the API.
func (s *Server) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	name, rest, _ := strings.Cut(strings.TrimPrefix(q.URL.Path, "/"), "/")
	s.mu.Lock()
	run := s.runs[name]
	s.mu.Unlock()
	if run == nil {
		http.Error(w, "no such run", http.StatusNotFound)
		return
	}
	body, err := read(q)
	x := &exchange{run: run, w: w, http: q, path: "/" + rest, api: apiOf("/" + rest)}
	if err != nil {
		x.refuse(invalid(err.Error()))
		return
	}
	x.serve(body)
}

func read(q *http.Request) ([]byte, error) {
	from := io.Reader(q.Body)
	switch enc := q.Header.Get("content-encoding"); enc {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(from)
		if err != nil {
			return nil, err
		}
		from = z
	default:
		return nil, fmt.Errorf("the content encoding %q is not known", enc)
	}
	return io.ReadAll(io.LimitReader(from, maxBody))
}

// api is one wire format.
type api interface {
	// key is what a request is authorised by.
	key(q *http.Request) string
	// read makes a turn of a body, or says what is wrong with it.
	read(q *http.Request, body []byte) (*Turn, *refusal)
	// failure is the document of an error.
	failure(r *refusal, id string) any
	whole(x *exchange, t *Turn, r reply)
	stream(x *exchange, t *Turn, r reply)
}

func apiOf(path string) api {
	switch {
	case strings.HasSuffix(path, "/responses"):
		return responses{}
	case strings.HasSuffix(path, "/chat/completions"):
		return chat{}
	case strings.Contains(path, "/messages"), strings.HasPrefix(path, "/api/"):
		return anthropic{}
	case strings.HasPrefix(path, "/v1beta/"):
		return gemini{}
	}
	return responses{} // its errors are what most would expect
}

// exchange is one request being answered.
type exchange struct {
	run  *Run
	api  api
	w    http.ResponseWriter
	http *http.Request
	path string
	rec  Request

	fault Fault
}

func (x *exchange) serve(body []byte) {
	x.rec = x.run.redacted(x.http, x.path, body)
	if x.http.Method == http.MethodHead { // whether there is a network at all
		x.done(http.StatusOK)
		x.w.WriteHeader(http.StatusOK)
		return
	}
	if x.api.key(x.http) != x.run.Key {
		x.refuse(&refusal{http.StatusUnauthorized, "authentication_error", "invalid x-api-key"})
		return
	}
	switch {
	case x.aside():
	case x.http.Method != http.MethodPost || !asks(x.path):
		x.refuse(&refusal{http.StatusNotFound, "not_found_error", "no such path " + x.path})
	default:
		x.turn(body)
	}
}

// asks tells whether a path is one that answers are asked from.
func asks(path string) bool {
	for _, end := range []string{"/messages", "/responses", "/chat/completions", ":generateContent", ":streamGenerateContent"} {
		if strings.HasSuffix(path, end) {
			return true
		}
	}
	return false
}

func (x *exchange) turn(body []byte) {
	t, bad := x.api.read(x.http, body)
	if bad == nil {
		bad = t.check()
	}
	if bad != nil {
		x.refuse(bad)
		return
	}
	t.digest()
	x.rec.Turn = t
	sc := x.run.scenario
	if n := x.run.ask(); sc.Times == 0 || n <= sc.Times {
		x.fault = sc.Fault
	}
	if x.fault == Refuse {
		if sc.RetryAfter > 0 {
			x.w.Header().Set("retry-after", fmt.Sprint(sc.RetryAfter))
		}
		x.refuse(failureOf(sc.Status))
		return
	}
	a := Answer{}
	if sc.Answer != nil {
		a = sc.Answer(*t)
	}
	if x.fault == Hang {
		x.done(0)
		x.hold()
		return
	}
	x.done(http.StatusOK)
	if !t.Stream {
		x.api.whole(x, t, t.settle(a))
		return
	}
	x.w.Header().Set("content-type", "text/event-stream; charset=utf-8")
	x.w.Header().Set("cache-control", "no-cache")
	x.identify()
	x.w.WriteHeader(http.StatusOK)
	x.api.stream(x, t, t.settle(a))
}

// failureOf is what the APIs say with a status.
func failureOf(status int) *refusal {
	known := map[int]refusal{
		400: {400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum"},
		401: {401, "authentication_error", "invalid x-api-key"},
		403: {403, "permission_error", "forbidden"},
		429: {429, "rate_limit_error", "This request would exceed your rate limit"},
		500: {500, "api_error", "Internal server error"},
		529: {529, "overloaded_error", "Overloaded"},
	}
	if r, is := known[status]; is {
		return &r
	}
	return &refusal{status, "api_error", http.StatusText(status)}
}

func (x *exchange) done(status int) {
	x.rec.Status = status
	x.run.note(x.rec)
}

func (x *exchange) refuse(r *refusal) {
	x.done(r.status)
	x.json(r.status, x.api.failure(r, x.run.server.id("req")))
}

func (x *exchange) identify() {
	id := x.run.server.id("req")
	x.w.Header().Set("request-id", id)
	x.w.Header().Set("x-request-id", id)
}

func (x *exchange) json(status int, doc any) {
	raw, err := json.Marshal(doc)
	if err != nil {
		panic(err) // documents are made here
	}
	x.w.Header().Set("content-type", "application/json")
	x.identify()
	x.w.WriteHeader(status)
	_, _ = x.w.Write(raw) // the client may have left
}

// hold waits until the client leaves or the test ends.
func (x *exchange) hold() {
	select {
	case <-x.http.Context().Done():
	case <-x.run.server.closing:
	}
}

// secretHeaders carry what a request is authorised by.
var secretHeaders = []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Cookie", "Proxy-Authorization"}

const hidden = "[key]"

func (r *Run) redacted(q *http.Request, path string, body []byte) Request {
	h := q.Header.Clone()
	for _, name := range secretHeaders {
		if h.Get(name) != "" {
			h.Set(name, hidden)
		}
	}
	if q.URL.RawQuery != "" {
		path += "?" + q.URL.RawQuery
	}
	leaked := bytes.Contains(body, []byte(r.Key)) || strings.Contains(path, r.Key)
	return Request{
		Method: q.Method, Path: strings.ReplaceAll(path, r.Key, hidden), Header: h,
		Body: bytes.ReplaceAll(body, []byte(r.Key), []byte(hidden)), Leaked: leaked,
	}
}
