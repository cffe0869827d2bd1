package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// asked is an answer as it came.
type asked struct {
	status int
	header http.Header
	body   string
}

// ask sends a request; head is name: value lines.
func (s *site) ask(method, path, body string, head ...string) asked {
	s.t.Helper()
	res := s.begin(s.t.Context(), method, path, body, head...)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return asked{res.StatusCode, res.Header, string(raw)}
}

func (s *site) begin(ctx context.Context, method, path, body string, head ...string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for _, h := range head {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		s.t.Fatal(err)
	}
	return res
}

const (
	asA     = "Authorization: Bearer ta"
	asB     = "Authorization: Bearer tb"
	hello   = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	ready   = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	echoing = `{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"test_echo","arguments":{"text":"x"}}}`
)

// session opens one and returns the header that names it.
func (s *site) session(as string) string {
	s.t.Helper()
	res := s.ask("POST", Path, hello, as)
	id := res.header.Get(sessionHeader)
	if res.status != 200 || id == "" {
		s.t.Fatalf("initialize: %+v", res)
	}
	head := sessionHeader + ": " + id
	if res := s.ask("POST", Path, ready, as, head); res.status != http.StatusAccepted {
		s.t.Fatalf("initialized: %+v", res)
	}
	return head
}

func TestOnlyClientsAreLetIn(t *testing.T) {
	t.Parallel()
	s := open(t, HTTPConfig{})
	for _, head := range []string{"X: y", "Authorization: Bearer", "Authorization: Bearer  ", "Authorization: Basic ta", "Authorization: Bearer nobody", "Authorization: ta"} {
		res := s.ask("POST", Path, hello, head)
		want := `Bearer resource_metadata="` + s.url + MetaPath + `/mcp"`
		if res.status != http.StatusUnauthorized || res.header.Get("WWW-Authenticate") != want || !strings.Contains(res.body, `"class":"denied"`) {
			t.Errorf("%s: %+v", head, res)
		}
	}
	for _, path := range []string{MetaPath, MetaPath + "/mcp", MetaPath + "/mcp/"} {
		res := s.ask("GET", path, "")
		var got resource
		if err := json.Unmarshal([]byte(res.body), &got); err != nil || res.status != 200 || got.Resource != s.url+Path {
			t.Errorf("%s: %+v, %v", path, res, err)
		}
	}
	if res := s.ask("POST", MetaPath, ""); res.status != http.StatusMethodNotAllowed {
		t.Errorf("%+v", res)
	}
	if res := s.ask("GET", "/mcp/x", "", asA); res.status != http.StatusNotFound {
		t.Errorf("%+v", res)
	}
	if s.door.times("test_echo") != 0 {
		t.Error("somebody was let in")
	}
}

func TestASessionIsThatOfTheClientWhoOpenedIt(t *testing.T) {
	t.Parallel()
	s := open(t, HTTPConfig{})
	id := s.session(asA)
	body := fmt.Sprintf(echoing, "7")
	for _, method := range []string{"POST", "GET", "DELETE"} {
		other, none := s.ask(method, Path, body, asB, id), s.ask(method, Path, body, asB, sessionHeader+": NONE")
		if other.status != http.StatusNotFound || other.body != none.body || none.status != other.status {
			t.Errorf("%s of another client: %+v, and of nobody %+v", method, other, none)
		}
	}
	if s.door.times("test_echo") != 0 {
		t.Fatal("another client called in it")
	}
	if res := s.ask("POST", Path, body, asA, id); res.status != 200 || s.door.times("test_echo") != 1 {
		t.Errorf("%+v", res)
	}
	if res := s.ask("DELETE", Path, "", asA, id); res.status != http.StatusNoContent {
		t.Errorf("%+v", res)
	}
	if res := s.ask("POST", Path, body, asA, id); res.status != http.StatusNotFound {
		t.Errorf("after its end: %+v", res)
	}
}

func TestARequestThatIsSentAgainIsTheSameCall(t *testing.T) {
	t.Parallel()
	s := open(t, HTTPConfig{})
	id, other := s.session(asA), s.session(asA)
	forged := keyHeader + ": http:forged"
	first := s.ask("POST", Path, fmt.Sprintf(echoing, "7"), asA, id, forged)
	if again := s.ask("POST", Path, fmt.Sprintf(echoing, "7"), asA, id); again.body != first.body || s.door.times("test_echo") != 1 {
		t.Errorf("%q, then %q", first.body, again.body)
	}
	for i, send := range []func(){
		func() { s.ask("POST", Path, fmt.Sprintf(echoing, `"7"`), asA, id) },
		func() { s.ask("POST", Path, fmt.Sprintf(echoing, "8"), asA, id) },
		func() { s.ask("POST", Path, fmt.Sprintf(echoing, "7"), asA, other) },
	} {
		if send(); s.door.times("test_echo") != 2+i {
			t.Errorf("call %d of another id or session: %d calls", i, s.door.times("test_echo"))
		}
	}
	alone := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"test_echo","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"x","version":"1"}}}}`
	for range 2 {
		res := s.ask("POST", Path, alone, asA, "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: test_echo", forged)
		if res.status != 200 {
			t.Errorf("%+v", res)
		}
	}
	if n := s.door.times("test_echo"); n != 6 {
		t.Errorf("requests that stand alone are two: %d calls", n)
	}
	for _, key := range s.door.order {
		if key == "http:forged" {
			t.Error("a client chooses keys")
		}
	}
}

func TestWhatIsNotTaken(t *testing.T) {
	t.Parallel()
	s := open(t, HTTPConfig{Body: 1000})
	id := s.session(asA)
	for body, status := range map[string]int{
		"[" + hello + "]":                400,
		"":                               400,
		"junk":                           400,
		strings.Repeat(" ", 999) + "{}}": 413,
	} {
		if res := s.ask("POST", Path, body, asA, id); res.status != status {
			t.Errorf("%.40q is answered %d: %s", body, res.status, res.body)
		}
	}
	if res := s.ask("PUT", Path, "", asA); res.status != http.StatusMethodNotAllowed {
		t.Errorf("%+v", res)
	}
	if res := s.ask("POST", Path, fmt.Sprintf(echoing, "1"), asA); s.door.times("test_echo") != 0 {
		t.Errorf("without a session: %+v", res)
	}
	if n := s.http.peers["a"].count(); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	s := open(t, HTTPConfig{Sessions: 3, Total: 4})
	body := fmt.Sprintf(echoing, "7")
	first, second, third := s.session(asA), s.session(asA), s.session(asA)
	s.ask("POST", Path, body, asA, first) // so that second is the one used longest ago
	fourth := s.session(asA)
	for head, status := range map[string]int{first: 200, second: 404, third: 200, fourth: 200} {
		if res := s.ask("POST", Path, body, asA, head); res.status != status {
			t.Errorf("%s: %d", head, res.status)
		}
	}
	s.session(asB)
	s.session(asB) // there is room for four in all: it takes the place of its own first
	if a, b := s.http.peers["a"].count(), s.http.peers["b"].count(); a != 3 || b != 1 {
		t.Errorf("%d and %d sessions", a, b)
	}
	s.gate.known["tc"] = Guest{"c", newCounter()}
	if res := s.ask("POST", Path, hello, "Authorization: Bearer tc"); res.status != http.StatusServiceUnavailable || res.header.Get("Retry-After") == "" {
		t.Errorf("a client more: %+v", res)
	}
}

func TestSessionsEndWhenTheyAreOldOrNotUsed(t *testing.T) {
	t.Parallel()
	old := open(t, HTTPConfig{Age: time.Nanosecond})
	res := old.ask("POST", Path, hello, asA)
	head := sessionHeader + ": " + res.header.Get(sessionHeader)
	if res := old.ask("POST", Path, ready, asA, head); res.status != http.StatusNotFound {
		t.Errorf("%+v", res)
	}
	idle := open(t, HTTPConfig{Idle: time.Millisecond})
	idle.ask("POST", Path, hello, asA)
	for idle.http.peers["a"].count() > 0 {
		<-time.After(time.Millisecond)
	}
}

func TestARemovedClientEndsAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t, HTTPConfig{})
	id, ofB := s.session(asA), s.session(asB)
	stream := s.begin(t.Context(), "GET", Path, "", asA, id)
	defer stream.Body.Close()
	late := make(chan asked, 1)
	go func() {
		late <- s.ask("POST", Path, `{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"wait","arguments":{}}}`, asA, id)
	}()
	<-s.door.begun
	s.gate.revoke("ta")
	s.http.End("a")
	if _, err := io.ReadAll(stream.Body); err != nil {
		t.Logf("its stream was cut: %v", err)
	}
	if res := <-late; strings.Contains(res.body, `"status":"ok"`) {
		t.Errorf("its call is answered %+v", res)
	}
	if res := s.ask("POST", Path, ready, asA, id); res.status != http.StatusUnauthorized {
		t.Errorf("its token: %+v", res)
	}
	s.gate.known["t2"] = Guest{"a", s.door} // the same name again
	if res := s.ask("POST", Path, ready, "Authorization: Bearer t2", id); res.status != http.StatusNotFound {
		t.Errorf("its session: %+v", res)
	}
	if res := s.ask("POST", Path, fmt.Sprintf(echoing, "1"), asB, ofB); res.status != 200 {
		t.Errorf("another client: %+v", res)
	}
}

func TestAClosedHandlerLetsGoOfItsStreams(t *testing.T) {
	t.Parallel()
	s := open(t, HTTPConfig{})
	stream := s.begin(t.Context(), "GET", Path, "", asA, s.session(asA))
	defer stream.Body.Close()
	if err := s.http.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadAll(stream.Body) // it ends, however
	if res := s.ask("POST", Path, hello, asA); res.status != http.StatusServiceUnavailable {
		t.Errorf("%+v", res)
	}
}

func TestPeek(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]request{
		``:            {},
		` [{"id":1}]`: {batch: true},
		`{"id":1,"method":"tools/call","params":{}}`:                           {method: "tools/call", id: "1"},
		`{"id":"1","method":"x","params":[1]}`:                                 {method: "x", id: `"1"`},
		`{"id":null,"method":"x"}`:                                             {method: "x"},
		`{"id": 2 ,"method":"x","params":{"_meta":{"` + metaVersion + `":1}}}`: {method: "x", id: "2", newer: true},
		`junk`: {},
	} {
		if got := peek([]byte(body)); got != want {
			t.Errorf("%s: %+v", body, got)
		}
	}
}

const metaVersion = "io.modelcontextprotocol/protocolVersion"

func FuzzPeek(f *testing.F) {
	for _, s := range []string{hello, ready, "[]", `{"id":{},"method":1}`, `{"ID":1,"id":2}`, "\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got := peek(body)
		if got.batch && (got.id != "" || got.method != "" || got.newer) {
			t.Errorf("%+v", got)
		}
		if got.id != "" && !json.Valid([]byte(got.id)) {
			t.Errorf("the id %q", got.id)
		}
	})
}
