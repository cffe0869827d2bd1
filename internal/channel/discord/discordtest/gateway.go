package discordtest

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// The intents that matter here.
const (
	intentGuilds   = 1 << 0
	intentMessages = 1 << 9
	intentDirect   = 1 << 12
	intentContent  = 1 << 15
	intentsKnown   = 1<<26 - 1
)

// session is what survives a connection.
type session struct {
	id      string
	intents int
	seq     int64
	events  []frame // those that may have to come again
	conn    *conn   // nil while nobody is connected
}

type frame struct {
	Op   int    `json:"op"`
	Data any    `json:"d"`
	Seq  *int64 `json:"s"`
	Name string `json:"t,omitempty"`
}

type conn struct {
	ws    *websocket.Conn
	mu    sync.Mutex  // of writing
	ended atomic.Bool // by the server: a client that repeats its close code ends no session
}

func (c *conn) send(f frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.ws.SetWriteDeadline(time.Now().Add(5 * time.Second))
	_ = c.ws.WriteJSON(f) // a connection that is gone is seen by its reader
}

// end closes with a code; 1006 closes without a word.
func (c *conn) end(code int) {
	c.ended.Store(true)
	if code != 1006 {
		_ = c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(code, ""), time.Now().Add(time.Second))
	}
	_ = c.ws.Close()
}

// Heartbeat sets how often a client has to send one. It holds for new connections.
func (s *Server) Heartbeat(d time.Duration) { s.update(func() { s.beat = d }) }

// Mute ends, or begins again, that heartbeats are acknowledged.
func (s *Server) Mute(on bool) { s.update(func() { s.mute = on }) }

// Refuse closes with a code for whoever identifies; 0 ends that.
func (s *Server) Refuse(code int) { s.update(func() { s.refuse = code }) }

// Portal says whether the message content intent is switched on for the bot.
func (s *Server) Portal(content bool) { s.update(func() { s.content = content }) }

// StartLimit sets how many sessions may still be started, and when that ends.
func (s *Server) StartLimit(remaining int, reset time.Duration) {
	s.update(func() { s.remaining, s.reset = remaining, reset })
}

// ResumeAt makes new sessions be told another place to go on at.
func (s *Server) ResumeAt(address string) { s.update(func() { s.resumeAt = address }) }

// Drop closes all connections with a code; 1006 without one.
func (s *Server) Drop(code int) { s.all(func(c *conn) { c.end(code) }) }

// AskToReconnect sends op 7.
func (s *Server) AskToReconnect() { s.all(func(c *conn) { c.send(frame{Op: 7}) }) }

// Invalidate sends op 9; unless the session may be resumed, it is forgotten.
func (s *Server) Invalidate(resumable bool) {
	if !resumable {
		s.Forget()
	}
	s.all(func(c *conn) { c.send(frame{Op: 9, Data: resumable}) })
}

// Forget forgets all sessions: what was said meanwhile is told to nobody.
func (s *Server) Forget() { s.update(func() { s.sessions = map[string]*session{} }) }

// Ping asks for a heartbeat at once.
func (s *Server) Ping() { s.all(func(c *conn) { c.send(frame{Op: 1}) }) }

// Raw sends text that need not be JSON.
func (s *Server) Raw(text string) {
	s.all(func(c *conn) {
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = c.ws.WriteMessage(websocket.TextMessage, []byte(text))
	})
}

func (s *Server) all(fn func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		fn(c)
	}
}

// Connected is how many connections have a session.
func (s *Server) Connected() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.sessions {
		if one.conn != nil {
			n++
		}
	}
	return n
}

// Identified is how many sessions were started.
func (s *Server) Identified() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identifies
}

// Resumed is how many sessions were gone on with.
func (s *Server) Resumed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.resumes
}

func (s *Server) connect(w http.ResponseWriter, r *http.Request) {
	s.gateway.Add(1)
	defer s.gateway.Done()
	up := websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}
	ws, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	c := &conn{ws: ws}
	q := r.URL.Query()
	if v := q.Get("v"); v != "9" && v != "10" || q.Get("encoding") != "json" {
		c.end(4012)
		return
	}
	s.update(func() { s.conns[c] = true })
	defer s.update(func() {
		delete(s.conns, c)
		for _, one := range s.sessions {
			if one.conn == c {
				one.conn = nil
			}
		}
		_ = ws.Close()
	})
	ws.SetReadLimit(4096)
	s.mu.Lock()
	beat := s.beat
	s.mu.Unlock()
	c.send(frame{Op: 10, Data: map[string]int64{"heartbeat_interval": beat.Milliseconds()}})
	s.read(c, beat)
}

// heard is what a client says.
type heard struct {
	Op   int             `json:"op"`
	Data json.RawMessage `json:"d"`
}

func (s *Server) read(c *conn, beat time.Duration) {
	var mine *session
	last := time.Now()
	for {
		_ = c.ws.SetReadDeadline(last.Add(beat + beat/2))
		_, data, err := c.ws.ReadMessage()
		if websocket.IsCloseError(err, 1000, 1001) && mine != nil && !c.ended.Load() {
			s.update(func() { delete(s.sessions, mine.id) }) // whoever closes so wants no more of it
		}
		if err != nil {
			c.end(4009)
			return
		}
		var h heard
		if json.Unmarshal(data, &h) != nil {
			c.end(4002)
			return
		}
		switch h.Op {
		case 1:
			last = time.Now()
			mute := false
			s.update(func() { s.beats, mute = s.beats+1, s.mute })
			if !mute {
				c.send(frame{Op: 11})
			}
		case 2, 6:
			if mine != nil {
				c.end(4005)
				return
			}
			one, code := s.begin(c, h)
			if code != 0 {
				c.end(code)
				return
			}
			mine = one
		case 3, 4, 8:
			if mine == nil {
				c.end(4003)
				return
			}
		default:
			c.end(4001)
			return
		}
	}
}

// begin starts a session or goes on with one. Without either and without a code to close
// with, the client was told that its session is invalid.
func (s *Server) begin(c *conn, h heard) (one *session, code int) {
	var d struct {
		Token   string `json:"token"`
		Intents *int   `json:"intents"`
		Session string `json:"session_id"`
		Seq     int64  `json:"seq"`
		Props   *struct {
		} `json:"properties"`
	}
	if json.Unmarshal(h.Data, &d) != nil {
		return nil, 4002
	}
	s.update(func() {
		if strings.TrimPrefix(d.Token, "Bot ") != s.Token {
			code = 4004
			return
		}
		if h.Op == 6 {
			one, code = s.resume(c, d.Session, d.Seq)
			return
		}
		switch {
		case s.refuse != 0:
			code = s.refuse
		case d.Intents == nil || d.Props == nil:
			code = 4002
		case *d.Intents < 0 || *d.Intents > intentsKnown:
			code = 4013
		case *d.Intents&intentContent != 0 && !s.content:
			code = 4014
		case s.remaining < 1:
			c.send(frame{Op: 9, Data: false})
		default:
			one = s.identify(c, *d.Intents)
		}
	})
	return one, code
}

func (s *Server) identify(c *conn, intents int) *session {
	s.remaining--
	s.identifies++
	one := &session{id: "s" + s.newID(), intents: intents, conn: c}
	s.sessions[one.id] = one
	type unavailable struct {
		ID          string `json:"id"`
		Unavailable bool   `json:"unavailable"`
	}
	one.dispatch("READY", struct {
		V      int           `json:"v"`
		User   User          `json:"user"`
		ID     string        `json:"session_id"`
		Resume string        `json:"resume_gateway_url"`
		Guilds []unavailable `json:"guilds"`
		App    struct {
			ID string `json:"id"`
		} `json:"application"`
	}{V: 10, User: s.Bot, ID: one.id, Resume: cmp.Or(s.resumeAt, s.ws("/resume")), Guilds: []unavailable{{Guild, true}}})
	if intents&intentGuilds != 0 && !s.held {
		one.dispatch("GUILD_CREATE", s.guild())
	}
	return one
}

// HoldGuild makes a new session wait for its guild, until it is told of it by TellGuild.
func (s *Server) HoldGuild() { s.update(func() { s.held = true }) }

// TellGuild dispatches GUILD_CREATE.
func (s *Server) TellGuild() { s.update(func() { s.dispatch("GUILD_CREATE", s.guild()) }) }

// Beats is how many heartbeats came.
func (s *Server) Beats() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beats
}

func (s *Server) resume(c *conn, id string, seq int64) (*session, int) {
	one := s.sessions[id]
	if one == nil {
		c.send(frame{Op: 9, Data: false})
		return nil, 0
	}
	if seq > one.seq {
		return nil, 4007
	}
	s.resumes++
	one.conn = c
	for _, f := range one.events {
		if *f.Seq > seq {
			c.send(f)
		}
	}
	one.dispatch("RESUMED", struct{}{})
	return one, 0
}

func (one *session) dispatch(name string, data any) {
	one.seq++
	f := frame{Op: 0, Name: name, Seq: new(one.seq), Data: data}
	one.events = append(one.events, f)
	if one.conn != nil {
		one.conn.send(f)
	}
}

// dispatch tells all sessions that asked for such events. The lock is held.
func (s *Server) dispatch(name string, data any) {
	for _, one := range s.sessions {
		d := data
		if m, ok := data.(Message); ok {
			need := intentMessages
			if s.channels[m.ChannelID].Type == 1 {
				need = intentDirect
			}
			if one.intents&need == 0 {
				continue
			}
			if one.intents&intentContent == 0 {
				d = s.hidden(m)
			}
		}
		one.dispatch(name, d)
	}
}
