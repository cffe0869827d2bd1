package whatsapptest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

// The business and its number.
const (
	Token     = "EAAGtesttoken0123456789"
	AppSecret = "0123456789abcdef0123456789abcdef"
	Verify    = "a word of mine"
	PhoneID   = "106540352242922"
	Number    = "15550783881"
	Business  = "Lucky Shrub"
)

// Sent is a message that the API took.
type Sent struct {
	ID      string // that it gave it
	To      string
	Type    string
	Text    string
	Buttons []Button
	ReplyTo string
	Key     string
}

// Button is a button of a message.
type Button struct{ ID, Title string }

// GraphFault is what goes wrong with one request.
type GraphFault struct {
	Status int           // answered instead
	Code   int           // of Meta's, in the answer
	Retry  time.Duration // in the answer's header
	How    How           // else
}

// How a request goes wrong that is not simply refused.
type How string

// What follows "after" has been done first.
const (
	HTML        How = "html"         // an answer that is not JSON, with status 200, after
	CutAnswer   How = "cut"          // half an answer, after
	Stuck       How = "stuck"        // no answer until the client gives up, after
	CloseBefore How = "close-before" // the connection is closed, before
	CloseAfter  How = "close-after"  // the connection is closed, after
	Nothing     How = "nothing"      // an answer without a message, after
)

// Graph is a Cloud API. Its methods are safe for concurrent use.
type Graph struct {
	URL string // with the version

	server *httptest.Server
	mu     sync.Mutex
	faults []GraphFault
	sent   []Sent
	typing []string
	asked  int
	wrote  map[string]time.Time // when a person last wrote
	ahead  time.Duration        // of its clock
	n      int
	over   chan struct{}
}

// NewGraph starts one. Everybody who is in known wrote just now.
func NewGraph(tb testing.TB, known ...string) *Graph {
	tb.Helper()
	g := &Graph{wrote: map[string]time.Time{}, over: make(chan struct{})}
	for _, k := range known {
		g.wrote[k] = time.Now()
	}
	g.server = httptest.NewServer(http.HandlerFunc(g.serve))
	g.URL = g.server.URL + "/v23.0"
	tb.Cleanup(func() {
		close(g.over)
		g.server.Close()
	})
	return g
}

// Next lets the next requests go wrong, one a fault, in this order.
func (g *Graph) Next(faults ...GraphFault) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faults = append(g.faults, faults...)
}

// Sent are the messages it took.
func (g *Graph) Sent() []Sent {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]Sent(nil), g.sent...)
}

// Asked is how many requests came.
func (g *Graph) Asked() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

// Later lets time pass: the window of 24 hours after somebody wrote closes by it.
func (g *Graph) Later(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ahead += d
}

// Wrote opens the window of somebody.
func (g *Graph) Wrote(who string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wrote[who] = time.Now().Add(g.ahead)
}

type graphRefusal struct {
	status, code int
	text         string
	retry        time.Duration
}

func (g *Graph) serve(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	g.asked++
	var f GraphFault
	if len(g.faults) > 0 {
		f, g.faults = g.faults[0], g.faults[1:]
	}
	g.mu.Unlock()
	if f.How == CloseBefore {
		hangUp(w, "")
		return
	}
	if f.Status != 0 {
		refuse(w, graphRefusal{f.Status, f.Code, "(#" + fmt.Sprint(f.Code) + ") as the test wants it", f.Retry})
		return
	}
	answer, bad := g.do(r)
	switch {
	case bad != nil:
		refuse(w, *bad)
	case f.How == "":
		writeJSON(w, http.StatusOK, answer)
	case f.How == HTML:
		_, _ = io.WriteString(w, "<!DOCTYPE html><title>Error</title>")
	case f.How == Nothing:
		_, _ = io.WriteString(w, `{"messaging_product":"whatsapp","messages":[]}`)
	case f.How == Stuck:
		select {
		case <-r.Context().Done():
		case <-g.over:
		}
	case f.How == CloseAfter:
		hangUp(w, "")
	case f.How == CutAnswer:
		hangUp(w, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"messaging_product\":\"whats")
	}
}

// hangUp closes the connection of a request, after some bytes.
func hangUp(w http.ResponseWriter, text string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = io.WriteString(conn, text)
	_ = conn.Close()
}

func refuse(w http.ResponseWriter, e graphRefusal) {
	if e.retry > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(int(e.retry.Seconds())))
	}
	type inner struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Code    int    `json:"code"`
		Trace   string `json:"fbtrace_id"`
	}
	writeJSON(w, e.status, struct {
		Error inner `json:"error"`
	}{inner{e.text, "OAuthException", e.code, "AXb2Q0"}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.WriteHeader(status)
	_, _ = w.Write(marshal(v)) // who asked has gone
}

func (g *Graph) do(r *http.Request) (any, *graphRefusal) {
	if token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); token != Token {
		return nil, &graphRefusal{status: http.StatusUnauthorized, code: 190, text: "Malformed access token " + token}
	}
	switch r.Method + " " + strings.TrimPrefix(r.URL.Path, "/v23.0/") {
	case "GET " + PhoneID:
		return struct {
			ID      string `json:"id"`
			Display string `json:"display_phone_number"`
			Name    string `json:"verified_name"`
		}{PhoneID, "+1 555-078-3881", Business}, nil
	case "POST " + PhoneID + "/messages":
		return g.message(r)
	}
	return nil, &graphRefusal{status: http.StatusBadRequest, code: 100, text: "Unsupported request. Object with ID does not exist"}
}

// request is what it understands of a message.
type request struct {
	Product   string `json:"messaging_product"`
	Recipient string `json:"recipient_type"`
	Status    string `json:"status"`
	Read      string `json:"message_id"`
	Typing    *struct {
		Type string `json:"type"`
	} `json:"typing_indicator"`
	To   string `json:"to"`
	Type string `json:"type"`
	Key  string `json:"biz_opaque_callback_data"`
	Text *struct {
		Body string `json:"body"`
	} `json:"text"`
	Context *struct {
		ID string `json:"message_id"`
	} `json:"context"`
	Interactive *struct {
		Type string `json:"type"`
		Body struct {
			Text string `json:"text"`
		} `json:"body"`
		Action struct {
			Buttons []struct {
				Type  string `json:"type"`
				Reply struct {
					ID    string `json:"id"`
					Title string `json:"title"`
				} `json:"reply"`
			} `json:"buttons"`
		} `json:"action"`
	} `json:"interactive"`
}

func (g *Graph) message(r *http.Request) (any, *graphRefusal) {
	var m request
	if json.NewDecoder(r.Body).Decode(&m) != nil || r.Header.Get("Content-Type") != "application/json" {
		return nil, &graphRefusal{status: http.StatusBadRequest, code: 100, text: "(#100) Invalid parameter"}
	}
	if m.Status != "" {
		return g.read(m)
	}
	s, wrong := m.check()
	if wrong != "" {
		return nil, &graphRefusal{status: http.StatusBadRequest, code: 100, text: "(#100) " + wrong}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at, known := g.wrote[s.To]
	if !known || time.Now().Add(g.ahead).Sub(at) > 24*time.Hour {
		return nil, &graphRefusal{status: http.StatusBadRequest, code: 131047, text: "(#131047) Re-engagement message"}
	}
	g.n++
	s.ID = fmt.Sprintf("wamid.HBgLMTU1NTA3ODM4ODE%08d=", g.n)
	g.sent = append(g.sent, s)
	type id struct {
		ID string `json:"id"`
	}
	return struct {
		Product  string `json:"messaging_product"`
		Messages []id   `json:"messages"`
	}{"whatsapp", []id{{s.ID}}}, nil
}

// read marks a message as read, and may show that an answer is being written.
func (g *Graph) read(m request) (any, *graphRefusal) {
	if m.Product != "whatsapp" || m.Status != "read" || !strings.HasPrefix(m.Read, "wamid.") || m.Typing != nil && m.Typing.Type != "text" {
		return nil, &graphRefusal{status: http.StatusBadRequest, code: 100, text: "(#100) Invalid parameter"}
	}
	if m.Typing != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.typing = append(g.typing, m.Read)
	}
	return struct {
		Success bool `json:"success"`
	}{true}, nil
}

// Typing are the messages at which it was shown that an answer is being written.
func (g *Graph) Typing() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.typing...)
}

func (m request) check() (s Sent, wrong string) {
	s = Sent{To: m.To, Type: m.Type, Key: m.Key}
	if m.Context != nil {
		s.ReplyTo = m.Context.ID
	}
	length := utf8.RuneCountInString
	switch {
	case m.Product != "whatsapp":
		return s, "The parameter messaging_product is required."
	case m.To == "" || strings.Trim(m.To, "0123456789") != "":
		return s, "The parameter to is not a number."
	case length(m.Key) > 512:
		return s, "Param biz_opaque_callback_data must be at most 512 characters long."
	case m.Context != nil && m.Context.ID == "":
		return s, "The parameter context['message_id'] is required."
	case m.Type == "text" && m.Text != nil:
		s.Text = m.Text.Body
		if n := length(s.Text); n == 0 || n > 4096 {
			return s, "Param text['body'] must be at most 4096 characters long."
		}
	case m.Type == "interactive" && m.Interactive != nil && m.Interactive.Type == "button":
		s.Text = m.Interactive.Body.Text
		if n := length(s.Text); n == 0 || n > 1024 {
			return s, "Param interactive['body']['text'] must be at most 1024 characters long."
		}
		seen := map[string]bool{}
		for _, b := range m.Interactive.Action.Buttons {
			if n := length(b.Reply.Title); n == 0 || n > 20 || b.Type != "reply" {
				return s, "Button title length invalid. Min length: 1, Max length: 20"
			}
			if n := length(b.Reply.ID); n == 0 || n > 256 || seen[b.Reply.ID] || seen["title "+b.Reply.Title] {
				return s, "Button id or title is not unique, or its length is invalid"
			}
			seen[b.Reply.ID], seen["title "+b.Reply.Title] = true, true
			s.Buttons = append(s.Buttons, Button{b.Reply.ID, b.Reply.Title})
		}
		if n := len(s.Buttons); n == 0 || n > 3 {
			return s, "Invalid buttons count. Min allowed buttons: 1, Max allowed buttons: 3"
		}
	default:
		return s, "Invalid type"
	}
	return s, ""
}
