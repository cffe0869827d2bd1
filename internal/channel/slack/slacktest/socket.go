package slacktest

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// maxLinks is how many sockets an app may have at once.
const maxLinks = 10

// maxResponse is from where on Slack ignores what comes back through a socket.
const maxResponse = 20 << 10

// link is one socket.
type link struct {
	conn     *websocket.Conn
	out      chan []byte // written by one goroutine; full: the socket is broken off
	done     chan struct{}
	retiring bool // it was told to go: it gets nothing new
	pongs    int
}

func (l *link) send(frame any) {
	data, err := json.Marshal(frame)
	if err != nil {
		panic(err)
	}
	select {
	case l.out <- data:
	default:
		_ = l.conn.Close()
	}
}

func (l *link) write(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			_ = l.conn.Close()
			return
		case data := <-l.out:
			if l.conn.WriteMessage(websocket.TextMessage, data) != nil {
				_ = l.conn.Close()
				return
			}
		case <-l.done:
			return
		}
	}
}

func (s *Server) open() (a answer) {
	s.change(func() {
		if len(s.links) >= maxLinks {
			a = refusal("too_many_websockets")
			return
		}
		ticket := rand.Text()
		s.tickets[ticket] = true
		a.URL = "ws" + strings.TrimPrefix(s.socket.URL, "http") + "/link/?ticket=" + ticket + "&app_id=" + s.AppID
	})
	return a
}

// hello is what a socket says first.
type hello struct {
	Type           string `json:"type"`
	NumConnections int    `json:"num_connections"`
	DebugInfo      struct {
		Host string `json:"host"`
		Time int    `json:"approximate_connection_time"`
	} `json:"debug_info"`
	ConnectionInfo struct {
		AppID string `json:"app_id"`
	} `json:"connection_info"`
}

func (s *Server) serveSocket(w http.ResponseWriter, r *http.Request) {
	if !s.begin() {
		return
	}
	defer s.running.Done()
	if s.before(w, r, s.takeFault("socket")) {
		return
	}
	known := false
	ticket := r.URL.Query().Get("ticket")
	s.change(func() {
		known = s.tickets[ticket]
		delete(s.tickets, ticket) // a ticket is for one socket
	})
	if !known || r.URL.Path != "/link/" {
		http.Error(w, "no such ticket", http.StatusForbidden)
		return
	}
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	conn, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	l := &link{conn: conn, out: make(chan []byte, 4096), done: make(chan struct{})}
	conn.SetPongHandler(func(string) error {
		s.change(func() { l.pongs++ })
		return nil
	})
	wrote := make(chan struct{})
	go func() {
		defer close(wrote)
		l.write(s.stop)
	}()
	if f := s.takeFault("hello"); f == "" {
		s.joined(l)
	}
	s.listen(l)
	s.left(l)
	close(l.done)
	_ = conn.Close()
	<-wrote
}

// begin counts a socket, unless the server is at its end.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.stop:
		return false
	default:
		s.running.Add(1)
		return true
	}
}

func (s *Server) joined(l *link) {
	s.change(func() {
		s.links = append(s.links, l)
		s.opened++
		h := hello{Type: "hello", NumConnections: len(s.links)}
		h.DebugInfo.Host, h.DebugInfo.Time, h.ConnectionInfo.AppID = "applink-test", 18060, s.AppID
		l.send(h)
	})
	s.redeliver()
}

func (s *Server) listen(l *link) {
	for {
		_, data, err := l.conn.ReadMessage()
		if err != nil {
			return
		}
		var back struct {
			EnvelopeID string          `json:"envelope_id"`
			Payload    json.RawMessage `json:"payload"`
		}
		if len(data) >= maxResponse || json.Unmarshal(data, &back) != nil {
			continue
		}
		s.change(func() { s.acked(back.EnvelopeID, string(back.Payload)) })
	}
}

// left hands what a socket had not acknowledged to the next one.
func (s *Server) left(l *link) {
	s.change(func() {
		s.links = slices.DeleteFunc(s.links, func(o *link) bool { return o == l })
		for _, e := range s.envelopes {
			if e.link == l {
				e.link, e.due = nil, s.now()
			}
		}
	})
	s.redeliver()
}

// envelope is something that the app has to acknowledge.
type envelope struct {
	ids     []string // one for each time it was sent
	kind    string
	payload json.RawMessage
	accepts bool
	attempt int // times it was tried before
	link    *link
	sent    time.Time
	due     time.Time // when it is tried next, while it has no link
}

type frame struct {
	EnvelopeID string          `json:"envelope_id"`
	Payload    json.RawMessage `json:"payload"`
	Type       string          `json:"type"`
	Accepts    bool            `json:"accepts_response_payload"`
	Attempt    int             `json:"retry_attempt"`
	Reason     string          `json:"retry_reason"`
}

// retryAfter is how long after a failure the next try is made.
func retryAfter(attempt int) (time.Duration, bool) {
	delays := []time.Duration{0, time.Minute, 5 * time.Minute}
	if attempt >= len(delays) {
		return 0, false
	}
	return delays[attempt], true
}

// ackWithin is how long an app has to acknowledge.
const ackWithin = 3 * time.Second

// redeliver sends what is due and notes what was not acknowledged in time.
func (s *Server) redeliver() {
	s.change(func() {
		now := s.now()
		s.envelopes = slices.DeleteFunc(s.envelopes, func(e *envelope) bool { return !s.tend(e, now) })
	})
}

// tend moves one envelope on and reports whether it is still to be acknowledged.
func (s *Server) tend(e *envelope, now time.Time) bool {
	if e.link != nil && now.Sub(e.sent) >= ackWithin {
		wait, again := retryAfter(e.attempt)
		if !again {
			s.lost++
			return false
		}
		e.link, e.due = nil, e.sent.Add(ackWithin+wait)
	}
	for e.link == nil && !now.Before(e.due) {
		if len(e.ids) > 0 {
			e.attempt++
		}
		e.ids = append(e.ids, rand.Text())
		if l := s.free(); l != nil {
			e.link, e.sent = l, now
			f := frame{EnvelopeID: e.ids[len(e.ids)-1], Payload: e.payload, Type: e.kind, Accepts: e.accepts, Attempt: e.attempt}
			if e.attempt > 0 {
				f.Reason = "timeout"
			}
			l.send(f)
			return true
		}
		wait, again := retryAfter(e.attempt)
		if !again {
			s.lost++
			return false
		}
		e.due = now.Add(wait)
	}
	return true
}

// free picks the socket that gets the next envelope: any one of those that stay.
func (s *Server) free() *link {
	var may []*link
	for _, l := range s.links {
		if !l.retiring {
			may = append(may, l)
		}
	}
	if len(may) == 0 {
		return nil
	}
	s.turn++
	return may[s.turn%len(may)]
}

// envelope sends something to the app.
func (s *Server) envelope(kind string, accepts bool, payload any) {
	data, err := json.Marshal(payload)
	if err != nil {
		panic(err)
	}
	s.change(func() {
		s.envelopes = append(s.envelopes, &envelope{kind: kind, payload: data, accepts: accepts, due: s.now()})
	})
	s.redeliver()
}

// Ack is an acknowledgement.
type Ack struct {
	Kind    string // events_api, interactive, slash_commands
	Attempt int    // of the delivery that was acknowledged, as the app was told
	Payload string // what came back with it
	After   time.Duration
}

func (s *Server) acked(id, payload string) {
	i := slices.IndexFunc(s.envelopes, func(e *envelope) bool { return slices.Contains(e.ids, id) })
	if i < 0 {
		return
	}
	e := s.envelopes[i]
	s.acks = append(s.acks, Ack{Kind: e.kind, Attempt: slices.Index(e.ids, id), Payload: payload, After: s.now().Sub(e.sent)})
	s.envelopes = slices.Delete(s.envelopes, i, i+1)
}

// Acks tells every acknowledgement of something that waited for one.
func (s *Server) Acks() []Ack {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.acks)
}

// Unacked is how much waits for its acknowledgement or next try, and Lost how much was
// given up.
func (s *Server) Unacked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.envelopes)
}

// Lost is how many events were given up.
func (s *Server) Lost() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

// Open is how many sockets there are, and Opened how many there ever were.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.links)
}

// Opened is how many sockets there ever were.
func (s *Server) Opened() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened
}

// Frame sends a frame as it stands through every socket.
func (s *Server) Frame(raw string) {
	s.change(func() {
		for _, l := range s.links {
			l.send(json.RawMessage(raw))
		}
	})
}

// Broken sends bytes that are no JSON through every socket.
func (s *Server) Broken(raw string) {
	s.change(func() {
		for _, l := range s.links {
			l.out <- []byte(raw)
		}
	})
}

// Disconnect tells every socket to go: warning, refresh_requested or link_disabled. They
// get nothing new from then on and stay open until they are closed, here or there.
func (s *Server) Disconnect(reason string) {
	type disconnect struct {
		Type   string `json:"type"`
		Reason string `json:"reason"`
	}
	s.change(func() {
		for _, l := range s.links {
			l.retiring = true
			l.send(disconnect{"disconnect", reason})
		}
	})
}

// Drop breaks every socket off.
func (s *Server) Drop() {
	s.change(func() {
		for _, l := range s.links {
			_ = l.conn.Close()
		}
	})
}

// DropRetired breaks those off that were told to go.
func (s *Server) DropRetired() {
	s.change(func() {
		for _, l := range s.links {
			if l.retiring {
				_ = l.conn.Close()
			}
		}
	})
}

// Ping pings every socket. Pongs tells how often one was answered.
func (s *Server) Ping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		_ = l.conn.WriteControl(websocket.PingMessage, []byte("ping"), time.Now().Add(time.Second))
	}
}

// Pongs is how many pings were answered by the sockets that are open.
func (s *Server) Pongs() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.links {
		n += l.pongs
	}
	return n
}
