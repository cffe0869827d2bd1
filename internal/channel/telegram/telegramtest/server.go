// Package telegramtest is a Telegram Bot API in memory, for tests: it refuses what the real
// one refuses, in its words, and fails when a test says so.
//
// Its rules are those of the published source of the server (tdlib/telegram-bot-api), as far
// as a bot can see them: what an offset confirms and forgets, who is answered 409, how a
// text is measured and its entities are checked, and which answer an error has.
package telegramtest

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is a Bot API with one bot. It is safe for concurrent use.
type Server struct {
	URL   string // to be used as api_url
	Token string
	Bot   User

	closed chan struct{} // closed when the test ends: whatever hangs ends

	mu      sync.Mutex
	changed chan struct{} // closed at each change
	skew    time.Duration // how far the clock was put forward
	calls   []Call
	faults  map[string][]Fault // by method, the next first
	revoked bool

	webhook   string
	updates   []Update // waiting, oldest first
	nextID    int64    // of an update
	allowed   []string
	poll      *poll // the one that waits
	offsets   []int64
	chats     map[int64]*chat
	presses   map[string]bool // callback queries: whether each was answered
	nextPress int64
	flood     Flood
	sent      []*record
}

// Call is a request that reached the server, in the order in which they came.
type Call struct {
	Method string
	Status int // of the answer that was meant for it; 0 if there was to be none
	Params map[string]string
}

// New starts a server; it ends with the test.
func New(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{
		Token:  "7000000001:AAHxV0gY3dUq9mO5sT2bLwKcJ8eRiNfZpQ4",
		Bot:    User{ID: 7000000001, IsBot: true, FirstName: "Ombud", Username: "ombud_test_bot", JoinsAny: true},
		closed: make(chan struct{}), changed: make(chan struct{}),
		faults: map[string][]Fault{}, chats: map[int64]*chat{}, presses: map[string]bool{}, nextID: 1000,
	}
	srv := httptest.NewServer(s)
	s.URL = srv.URL
	tb.Cleanup(func() {
		close(s.closed)
		srv.CloseClientConnections()
		srv.Close()
	})
	return s
}

// Until waits until what a test looks for is so, and reports whether it is; false when ctx
// has ended. It looks again at each change. is may call the server.
func (s *Server) Until(ctx context.Context, is func() bool) bool {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if is() {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return is()
		}
	}
}

// tell wakes whoever waits for a change. The lock is held.
func (s *Server) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) change(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	s.tell()
}

// Advance puts the server's clock forward: floods end, updates get old.
func (s *Server) Advance(d time.Duration) { s.change(func() { s.skew += d }) }

func (s *Server) now() time.Time { return time.Now().Add(s.skew) }

// Revoke makes the token one that was replaced at @BotFather.
func (s *Server) Revoke() { s.change(func() { s.revoked = true }) }

// Calls is every request so far.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Count is how often a method was called.
func (s *Server) Count(method string) (n int) {
	for _, c := range s.Calls() {
		if strings.EqualFold(c.Method, method) {
			n++
		}
	}
	return n
}

// reply is what a method answers: a result, or an error with its parameters.
type reply struct {
	result      any
	code        int // 0: it succeeded
	description string
	parameters  *parameters
}

type parameters struct {
	RetryAfter int   `json:"retry_after,omitempty"`
	MigrateTo  int64 `json:"migrate_to_chat_id,omitempty"`
}

// envelope is every answer of the Bot API.
type envelope struct {
	OK          bool        `json:"ok"`
	Result      any         `json:"result,omitempty"`
	Code        int         `json:"error_code,omitempty"`
	Description string      `json:"description,omitempty"`
	Parameters  *parameters `json:"parameters,omitempty"`
}

func bad(description string) reply {
	return reply{code: http.StatusBadRequest, description: "Bad Request: " + description}
}

func (r reply) status() int {
	if r.code == 0 {
		return http.StatusOK
	}
	return r.code
}

func (r reply) encode() []byte {
	out, err := json.Marshal(envelope{OK: r.code == 0, Result: r.result, Code: r.code, Description: r.description, Parameters: r.parameters})
	if err != nil {
		panic(err) // the types are ours
	}
	return out
}

func (r reply) write(w http.ResponseWriter) {
	body := r.encode()
	w.Header().Set("Content-Type", "application/json")
	if r.parameters != nil && r.parameters.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(r.parameters.RetryAfter))
	}
	w.WriteHeader(r.status())
	_, _ = w.Write(body) // whoever asked may be gone
}

// ServeHTTP answers a request as the Bot API does, with the fault that is due.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, method, found := strings.Cut(strings.TrimPrefix(r.URL.Path, "/bot"), "/")
	if !found || !strings.HasPrefix(r.URL.Path, "/bot") || !strings.Contains(token, ":") {
		reply{code: http.StatusNotFound, description: "Not Found"}.write(w)
		return
	}
	p, err := parseParams(r)
	if err != nil {
		bad(err.Error()).write(w)
		return
	}
	s.mu.Lock()
	wrong := token != s.Token || s.revoked
	f, due := s.due(method)
	s.mu.Unlock()
	if due && f.kind != answered {
		s.broken(w, r, method, p, f)
		return
	}
	var out reply
	switch {
	case due && f.Done:
		s.effect(r.Context(), method, p)
		out = f.reply
	case due:
		out = f.reply
	case wrong:
		out = reply{code: http.StatusUnauthorized, description: "Unauthorized"}
	default:
		out = s.call(r.Context(), method, p)
	}
	s.note(method, out.status(), p)
	out.write(w)
}

func (s *Server) note(method string, status int, p params) {
	s.change(func() { s.calls = append(s.calls, Call{Method: method, Status: status, Params: p}) })
}

// effect is call without the wait of a long poll: what is due now is a fault.
func (s *Server) effect(ctx context.Context, method string, p params) reply {
	p = maps.Clone(p)
	delete(p, "timeout")
	return s.call(ctx, method, p)
}

// call does what a method does. Names of methods are not case-sensitive.
func (s *Server) call(ctx context.Context, method string, p params) reply {
	switch strings.ToLower(method) {
	case "getme":
		return reply{result: s.Bot}
	case "getupdates":
		return s.getUpdates(ctx, p)
	case "setwebhook", "deletewebhook":
		return s.setWebhook(strings.ToLower(method) == "setwebhook", p)
	case "getwebhookinfo":
		return s.webhookInfo()
	case "sendmessage":
		return s.sendMessage(p)
	case "editmessagetext":
		return s.editMessage(p, true)
	case "editmessagereplymarkup":
		return s.editMessage(p, false)
	case "answercallbackquery":
		return s.answerCallback(p)
	case "sendchataction":
		return s.sendChatAction(p)
	}
	return reply{code: http.StatusNotFound, description: "Not Found: method not found"}
}
