// Package slacktest is a small Slack for tests: its Web API, as far as an app that
// chats needs it, and Socket Mode, with the rules that the real one enforces.
//
// It holds to them where an adapter could go wrong: tokens are of a kind, reads take
// forms only, texts and blocks have limits, a channel has a rate, an event belongs to one
// of several sockets, and one that is not acknowledged within 3 seconds comes again
// after 0, 60 and 300 seconds and then no more. Nothing is kept for an app that is not
// connected but what those retries are. Time passes by itself and by [Server.Advance].
package slacktest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is the fake. Its methods are safe for concurrent use.
type Server struct {
	URL      string // of the Web API, with a slash at its end
	AppToken string // xapp-…
	BotToken string // xoxb-…

	TeamID  string
	BotUser string // the user id of the app's bot
	BotID   string // its bot id
	BotName string
	AppID   string

	// Set these before the first call.
	Burst        int  // messages that a channel takes at once; then one a second. Default 20
	PageMost     int  // messages of a page, whatever is asked for. Default: what is asked for
	HideMetadata bool // histories are without metadata, as for an app that lacks a scope

	api, socket *httptest.Server
	stop        chan struct{}  // closed at the end: what hangs goes on
	running     sync.WaitGroup // one for each socket

	mu        sync.Mutex
	changed   chan struct{} // closed at each change
	offset    time.Duration
	lastTS    int64
	refuse    string // what every call is answered, if set
	channels  map[string]*room
	users     map[string]string
	faults    []*planned
	calls     []Call
	sent      []*message
	links     []*link
	tickets   map[string]bool
	opened    int
	envelopes []*envelope
	acks      []Ack
	lost      int
	next      int // of the ids
	turn      int // of the sockets
}

// New starts a fake that ends with the test.
func New(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{
		AppToken: "xapp-1-A0TEST-1-" + rand.Text(), BotToken: "xoxb-1-2-" + rand.Text(),
		TeamID: "T0TEAM", BotUser: "U0BOT", BotID: "B0BOT", BotName: "ombud", AppID: "A0TEST",
		Burst: 20,
		stop:  make(chan struct{}), changed: make(chan struct{}),
		channels: map[string]*room{}, users: map[string]string{}, tickets: map[string]bool{},
	}
	s.users[s.BotUser] = s.BotName
	s.api = httptest.NewServer(http.HandlerFunc(s.serveAPI))
	s.socket = httptest.NewServer(http.HandlerFunc(s.serveSocket))
	s.URL = s.api.URL + "/api/"
	tb.Cleanup(s.close)
	return s
}

func (s *Server) close() {
	s.change(func() { close(s.stop) })
	s.running.Wait()
	s.api.CloseClientConnections()
	s.api.Close()
	s.socket.Close()
}

// change makes a change and tells those who wait for one.
func (s *Server) change(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Until waits until is returns true, which is asked at every change. It reports false
// when ctx has ended. is may call the server.
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

// Now is the time of the fake.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

func (s *Server) now() time.Time { return time.Now().Add(s.offset) }

// Advance moves the clock on, and with it what is due.
func (s *Server) Advance(d time.Duration) {
	s.change(func() { s.offset += d })
	s.redeliver()
}

// Refuse makes every call fail with an error such as token_revoked; "" ends that.
func (s *Server) Refuse(code string) { s.change(func() { s.refuse = code }) }

// stamp returns the next ts, which is unique and grows.
func (s *Server) stamp() string {
	s.lastTS = max(s.lastTS+1, s.now().UnixMicro())
	return fmt.Sprintf("%d.%06d", s.lastTS/1e6, s.lastTS%1e6)
}

func (s *Server) id(prefix string) string {
	s.next++
	return fmt.Sprintf("%s%08X", prefix, s.next)
}

// room is a channel.
type room struct {
	ID       string
	Name     string
	Type     string // channel, group, mpim, im
	User     string // of an im
	Member   bool   // the bot is in it
	Archived bool
	tokens   float64 // messages it takes now
	filled   time.Time
	messages []*message
}

// User adds a person and returns the id.
func (s *Server) User(name string) (id string) {
	s.change(func() {
		id = s.id("U")
		s.users[id] = name
	})
	return id
}

// Channel adds a channel of a type (channel, group, mpim) that the bot is in, and returns
// its id.
func (s *Server) Channel(name, kind string) (id string) {
	s.change(func() {
		prefix := "C"
		if kind == "mpim" {
			prefix = "G"
		}
		id = s.id(prefix)
		s.channels[id] = &room{ID: id, Name: name, Type: kind, Member: true}
	})
	return id
}

// Direct adds the direct chat of a user with the bot and returns its id.
func (s *Server) Direct(user string) (id string) {
	s.change(func() {
		id = s.id("D")
		s.channels[id] = &room{ID: id, Type: "im", User: user, Member: true}
	})
	return id
}

// Leave takes the bot out of a channel.
func (s *Server) Leave(channel string) { s.change(func() { s.channels[channel].Member = false }) }

// Archive archives a channel.
func (s *Server) Archive(channel string) { s.change(func() { s.channels[channel].Archived = true }) }

// Call is one call of the Web API.
type Call struct {
	Method      string
	ContentType string
	Form        string // as it came
}

// Calls tells every call of a method so far; all, if it is "".
func (s *Server) Calls(method string) (out []Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if method == "" || c.Method == method {
			out = append(out, c)
		}
	}
	return out
}

func bearer(r *http.Request) string {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer")
	return strings.TrimSpace(token)
}
