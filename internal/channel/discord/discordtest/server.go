// Package discordtest is a small Discord: the REST calls a bot of text needs and the
// Gateway, version 10, with the rules of the real ones.
package discordtest

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

// epoch is where the times of ids begin, in milliseconds of Unix time.
const epoch = 1420070400000

// What there is from the start.
const (
	Guild   = "41771983423143937"
	General = "41771983423143938" // a text channel of Guild
	Thread  = "41771983423143939" // a thread of General
	DM      = "41771983423143940" // the direct channel with Ada
	BotRole = "41771983423143950" // the role that Discord manages for the bot
	Admins  = "41771983423143951" // a role that the bot was given
	Others  = "41771983423143952" // a role it does not have
)

// Server is a Discord with one guild and one bot. It is safe for concurrent use.
type Server struct {
	URL   string // of the REST interface
	Token string // of the bot, without "Bot "
	Bot   User
	Ada   User
	Bert  User

	http    *httptest.Server
	done    chan struct{}
	gateway sync.WaitGroup // of the connections

	mu         sync.Mutex
	changed    chan struct{} // closed at each change
	lastID     int64
	channels   map[string]Channel
	denied     map[string]int // channel → error code
	messages   map[string][]Message
	sent       []Message
	nonces     map[string]Message
	calls      []string
	faults     []*fault
	limit      int
	window     time.Duration
	buckets    map[string]*bucket
	press      map[string]*pressed
	sessions   map[string]*session
	conns      map[*conn]bool
	beat       time.Duration
	mute       bool
	beats      int
	held       bool
	resumeAt   string
	refuse     int // close code for those who identify; 0: none
	content    bool
	remaining  int
	reset      time.Duration
	identifies int
	resumes    int
	typed      []string
}

type pressed struct {
	token  string
	at     time.Time
	answer int
}

// New starts a server that stops with the test.
func New(tb testing.TB) *Server {
	tb.Helper()
	name := func(s string) *string { return &s }
	s := &Server{
		Token:   "MTA1.fake.t0ken-of-the-b0t",
		Bot:     User{ID: "41771983423143100", Username: "ombud", GlobalName: name("Ombud"), Discriminator: "0", Bot: true},
		Ada:     User{ID: "41771983423143101", Username: "ada_l", GlobalName: name("Ada"), Discriminator: "0"},
		Bert:    User{ID: "41771983423143102", Username: "bert", Discriminator: "0"},
		done:    make(chan struct{}),
		changed: make(chan struct{}), nonces: map[string]Message{}, denied: map[string]int{},
		messages: map[string][]Message{}, buckets: map[string]*bucket{}, press: map[string]*pressed{},
		sessions: map[string]*session{}, conns: map[*conn]bool{},
		beat: 41250 * time.Millisecond, content: true, remaining: 1000, reset: 24 * time.Hour,
		limit: 5, window: 5 * time.Second,
	}
	s.channels = map[string]Channel{
		General: {ID: General, GuildID: Guild, Name: "general"},
		Thread:  {ID: Thread, Type: 11, GuildID: Guild, ParentID: General, Name: "plans"},
		DM:      {ID: DM, Type: 1, Recipients: []User{s.Ada}},
	}
	s.http = httptest.NewServer(s.routes())
	s.URL = s.http.URL + "/api/v10"
	tb.Cleanup(s.close)
	return s
}

func (s *Server) close() {
	close(s.done)
	s.Drop(1001)
	s.http.Close()
	s.gateway.Wait()
}

// update changes the state and tells those who wait.
func (s *Server) update(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Until waits until something is so and returns true, or false when ctx has ended.
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
			return false
		}
	}
}

// newID returns the next id: its first bits are the time in milliseconds.
func (s *Server) newID() string {
	s.lastID = max(s.lastID+1, (time.Now().UnixMilli()-epoch)<<22)
	return strconv.FormatInt(s.lastID, 10)
}

// AddChannel adds a channel, or changes it.
func (s *Server) AddChannel(c Channel) { s.update(func() { s.channels[c.ID] = c }) }

// Deny makes the calls of a channel fail with an error code: 50001 missing access, 50007
// cannot send to this user. 0 ends that.
func (s *Server) Deny(channel string, code int) { s.update(func() { s.denied[channel] = code }) }

// Say lets somebody write a message: empty parts get their usual values. Author: Ada.
func (s *Server) Say(m Message) (out Message) {
	s.update(func() {
		out = s.fill(m)
		s.keep(out)
		s.tell(out)
	})
	return out
}

func (s *Server) keep(m Message) {
	s.messages[m.ChannelID] = append(s.messages[m.ChannelID], m)
	if c, ok := s.channels[m.ChannelID]; ok {
		c.Last = m.ID
		s.channels[c.ID] = c
	}
}

// Write is Say of a text of Ada's.
func (s *Server) Write(channel, text string) Message {
	return s.Say(Message{ChannelID: channel, Content: text})
}

// Replay tells of a message again, as a Gateway may.
func (s *Server) Replay(m Message) { s.update(func() { s.tell(m) }) }

func (s *Server) fill(m Message) Message {
	if m.ID == "" {
		m.ID = s.newID()
	}
	if m.Timestamp == "" {
		n, _ := strconv.ParseInt(m.ID, 10, 64)
		m.Timestamp = time.UnixMilli(n>>22 + epoch).UTC().Format("2006-01-02T15:04:05.000000-07:00")
	}
	if m.Author.ID == "" {
		m.Author = s.Ada
	}
	if m.Embeds == nil {
		m.Embeds = json.RawMessage("[]")
	}
	m.Mentions = append([]User{}, m.Mentions...)
	m.MentionRoles = append([]string{}, m.MentionRoles...)
	m.Attachments = append([]Attachment{}, m.Attachments...)
	m.Components = append([]Component{}, m.Components...)
	return m
}

// tell dispatches a message: an event has what a reading of the channel has not.
func (s *Server) tell(m Message) {
	m.GuildID = s.channels[m.ChannelID].GuildID
	if m.GuildID != "" && m.WebhookID == "" && m.Member == nil {
		m.Member = &Member{Roles: []string{}, JoinedAt: "2024-02-03T04:05:06.000000+00:00"}
	}
	s.dispatch("MESSAGE_CREATE", m)
}

// hidden is a message as somebody without the message content intent sees it.
func (s *Server) hidden(m Message) Message {
	mine := slices.ContainsFunc(m.Mentions, func(u User) bool { return u.ID == s.Bot.ID })
	if s.channels[m.ChannelID].Type == 1 || mine || m.Author.ID == s.Bot.ID {
		return m
	}
	m.Content, m.Attachments, m.Components = "", []Attachment{}, []Component{}
	return m
}

// Event dispatches any event.
func (s *Server) Event(name string, data json.RawMessage) {
	s.update(func() { s.dispatch(name, data) })
}

// Press lets somebody press a button of a message and returns the interaction's id.
func (s *Server) Press(by User, m Message, customID string) (id string) {
	s.update(func() {
		id = s.newID()
		p := &pressed{token: "aW50ZXJhY3Rpb24.t" + id, at: time.Now()}
		s.press[id] = p
		c := s.channels[m.ChannelID]
		i := interaction{ID: id, ApplicationID: s.Bot.ID, Type: 3, Token: p.token, Version: 1, ChannelID: m.ChannelID, GuildID: c.GuildID, Message: &m,
			Data: interactionPress{CustomID: customID, ComponentType: 2}}
		if c.GuildID != "" {
			i.Member = &guildMember{User: by, Member: Member{Roles: []string{}, JoinedAt: "2024-02-03T04:05:06.000000+00:00"}}
		} else {
			i.User = &by
		}
		s.dispatch("INTERACTION_CREATE", i)
	})
	return id
}

// Answered is the type of the answer to an interaction, 0 for none.
func (s *Server) Answered(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.press[id]; p != nil {
		return p.answer
	}
	return 0
}

// Sent returns what the bot made, in order, as it is now.
func (s *Server) Sent() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

// Typed returns the channels in which typing was shown.
func (s *Server) Typed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.typed)
}

// Calls returns the REST calls so far that contain a text, as "POST /channels/1/messages".
func (s *Server) Calls(with string) (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if strings.Contains(c, with) {
			out = append(out, c)
		}
	}
	return out
}

// Limit sets how many messages a channel takes in a window of time.
func (s *Server) Limit(n int, per time.Duration) {
	s.update(func() { s.limit, s.window, s.buckets = n, per, map[string]*bucket{} })
}

// SetToken changes what the bot's token is, as a reset in the portal does.
func (s *Server) SetToken(token string) { s.update(func() { s.Token = token }) }

func (s *Server) token() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Token
}

func (s *Server) guild() guild {
	g := guild{ID: Guild, Name: "The Office", MemberCount: 3, Roles: []Role{
		{ID: Guild, Name: "@everyone"},
		{ID: BotRole, Name: "ombud", Managed: true, Tags: &RoleTags{BotID: s.Bot.ID}},
		{ID: Admins, Name: "admins"}, {ID: Others, Name: "others"},
	}, Members: []guildMember{{User: s.Bot, Member: Member{Roles: []string{BotRole, Admins}, JoinedAt: "2024-02-03T04:05:06.000000+00:00"}}}}
	for _, id := range slices.Sorted(maps.Keys(s.channels)) {
		switch c := s.channels[id]; {
		case c.GuildID == "":
		case c.Type == 11:
			g.Threads = append(g.Threads, c)
		default:
			g.Channels = append(g.Channels, c)
		}
	}
	return g
}

func (s *Server) routes() http.Handler {
	api := http.NewServeMux()
	api.HandleFunc("GET /users/@me", s.me)
	api.HandleFunc("GET /gateway", s.gatewayURL)
	api.HandleFunc("GET /gateway/bot", s.gatewayURL)
	api.HandleFunc("GET /channels/{id}", s.channel)
	api.HandleFunc("GET /channels/{id}/messages", s.history)
	api.HandleFunc("POST /channels/{id}/messages", s.create)
	api.HandleFunc("PATCH /channels/{id}/messages/{message}", s.edit)
	api.HandleFunc("POST /channels/{id}/typing", s.typing)
	api.HandleFunc("POST /interactions/{id}/{token}/callback", s.callback)
	api.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { refuse(w, 404, 0, "404: Not Found") })
	mux := http.NewServeMux()
	for _, path := range []string{"/gw", "/gw/", "/resume", "/resume/"} {
		mux.HandleFunc(path, s.connect)
	}
	for _, v := range []string{"v9", "v10"} {
		mux.Handle("/api/"+v+"/", http.StripPrefix("/api/"+v, s.front(api)))
	}
	return mux
}
