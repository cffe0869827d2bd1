package discordtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client is a client of the Gateway by hand.
type client struct {
	t  *testing.T
	ws *websocket.Conn
}

func dial(t *testing.T, s *Server, path string) *client {
	t.Helper()
	ws, _, err := websocket.DefaultDialer.DialContext(t.Context(), s.ws(path)+"?v=10&encoding=json", nil) //nolint:bodyclose // the socket has the connection
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ws.Close() })
	_ = ws.SetReadDeadline(time.Now().Add(5 * time.Second))
	return &client{t, ws}
}

type got struct {
	Op   int             `json:"op"`
	Seq  int64           `json:"s"`
	Name string          `json:"t"`
	Data json.RawMessage `json:"d"`
}

// next reads one frame, or the code of a close as its op, negative.
func (c *client) next() (g got) {
	c.t.Helper()
	_, data, err := c.ws.ReadMessage()
	if e, ok := errors.AsType[*websocket.CloseError](err); ok {
		return got{Op: -e.Code}
	}
	if err != nil {
		return got{Op: -1}
	}
	if err := json.Unmarshal(data, &g); err != nil {
		c.t.Fatal(err)
	}
	return g
}

func (c *client) say(format string, args ...any) {
	c.t.Helper()
	if err := c.ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, format, args...)); err != nil {
		c.t.Fatal(err)
	}
}

const all = intentGuilds | intentMessages | intentDirect | intentContent

func identified(t *testing.T, s *Server, intents int) (*client, string) {
	t.Helper()
	c := dial(t, s, "/gw")
	if g := c.next(); g.Op != 10 || string(g.Data) != `{"heartbeat_interval":41250}` {
		t.Fatalf("hello: %+v", g)
	}
	c.say(`{"op":2,"d":{"token":"%s","intents":%d,"properties":{"os":"linux"}}}`, s.Token, intents)
	ready := c.next()
	var d struct {
		ID string `json:"session_id"`
	}
	if err := json.Unmarshal(ready.Data, &d); err != nil || ready.Name != "READY" || d.ID == "" {
		t.Fatalf("ready: %+v %s %v", ready, ready.Data, err)
	}
	if intents&intentGuilds != 0 {
		if g := c.next(); g.Name != "GUILD_CREATE" || !strings.Contains(string(g.Data), `"bot_id":"`+s.Bot.ID) {
			t.Fatalf("guild: %+v %s", g, g.Data)
		}
	}
	return c, d.ID
}

func TestWhatIsSaidIsToldToThoseWhoAsk(t *testing.T) {
	t.Parallel()
	s := New(t)
	c, _ := identified(t, s, intentMessages) // neither direct messages nor content
	s.Write(DM, "direct")
	s.Write(General, "secret")
	s.Say(Message{ChannelID: General, Content: "<@" + s.Bot.ID + "> hi", Mentions: []User{s.Bot}})
	for _, want := range []string{"", "<@" + s.Bot.ID + "> hi"} {
		var m Message
		g := c.next()
		if err := json.Unmarshal(g.Data, &m); err != nil || g.Name != "MESSAGE_CREATE" || m.Content != want || m.GuildID != Guild || m.Member == nil {
			t.Errorf("%+v %+v %v, want %q", g, m, err, want)
		}
	}
}

func TestASessionGoesOnWithWhatWasMissed(t *testing.T) {
	t.Parallel()
	s := New(t)
	c, id := identified(t, s, all)
	s.Write(DM, "1")
	seq := c.next().Seq
	s.Drop(4000)
	if g := c.next(); g.Op != -4000 {
		t.Fatalf("%+v", g)
	}
	if !s.Until(t.Context(), func() bool { return s.Connected() == 0 }) {
		t.Fatal("still connected")
	}
	s.Write(DM, "2")
	c = dial(t, s, "/resume")
	c.next()
	c.say(`{"op":6,"d":{"token":"%s","session_id":"%s","seq":%d}}`, s.Token, id, seq)
	if g := c.next(); g.Name != "MESSAGE_CREATE" || !strings.Contains(string(g.Data), `"content":"2"`) || g.Seq != seq+1 {
		t.Errorf("missed: %+v %s", g, g.Data)
	}
	if g := c.next(); g.Name != "RESUMED" || s.Resumed() != 1 {
		t.Errorf("resumed: %+v", g)
	}
}

func TestWrongTurnsEndAConnection(t *testing.T) {
	t.Parallel()
	identify := `{"op":2,"d":{"token":"%s","intents":%d,"properties":{}}}`
	for name, c := range map[string]struct {
		prepare func(*Server)
		say     func(s *Server) string
		want    int // op, or close code
	}{
		"wrong token":        {nil, func(*Server) string { return fmt.Sprintf(identify, "x", all) }, -4004},
		"content not on":     {func(s *Server) { s.Portal(false) }, func(s *Server) string { return fmt.Sprintf(identify, s.Token, all) }, -4014},
		"intents unknown":    {nil, func(s *Server) string { return fmt.Sprintf(identify, s.Token, 1<<30) }, -4013},
		"no intents":         {nil, func(s *Server) string { return `{"op":2,"d":{"token":"` + s.Token + `"}}` }, -4002},
		"refused":            {func(s *Server) { s.Refuse(4011) }, func(s *Server) string { return fmt.Sprintf(identify, s.Token, all) }, -4011},
		"no starts left":     {func(s *Server) { s.StartLimit(0, time.Hour) }, func(s *Server) string { return fmt.Sprintf(identify, s.Token, all) }, 9},
		"unknown session":    {nil, func(s *Server) string { return `{"op":6,"d":{"token":"` + s.Token + `","session_id":"x","seq":1}}` }, 9},
		"not JSON":           {nil, func(*Server) string { return "hello" }, -4002},
		"unknown op":         {nil, func(*Server) string { return `{"op":77}` }, -4001},
		"not identified":     {nil, func(*Server) string { return `{"op":3,"d":{}}` }, -4003},
		"heartbeat is acked": {nil, func(*Server) string { return `{"op":1,"d":null}` }, 11},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := New(t)
			if c.prepare != nil {
				c.prepare(s)
			}
			one := dial(t, s, "/gw")
			one.next()
			one.say("%s", c.say(s))
			if g := one.next(); g.Op != c.want {
				t.Errorf("%+v, want %d", g, c.want)
			}
		})
	}
}

func TestTwiceIdentifiedIsOnceTooOften(t *testing.T) {
	t.Parallel()
	s := New(t)
	c, _ := identified(t, s, all)
	c.say(`{"op":2,"d":{"token":"%s","intents":0,"properties":{}}}`, s.Token)
	if g := c.next(); g.Op != -4005 {
		t.Errorf("%+v", g)
	}
}

func TestAClientWithoutHeartbeatIsClosed(t *testing.T) {
	t.Parallel()
	s := New(t)
	s.Heartbeat(20 * time.Millisecond)
	c := dial(t, s, "/gw")
	c.next()
	if g := c.next(); g.Op != -4009 {
		t.Errorf("%+v", g)
	}
}

func TestASessionClosedByItsClientIsOver(t *testing.T) {
	t.Parallel()
	s := New(t)
	c, id := identified(t, s, all)
	_ = c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""), time.Now().Add(time.Second))
	if !s.Until(t.Context(), func() bool { return s.Connected() == 0 }) {
		t.Fatal("still connected")
	}
	c = dial(t, s, "/resume")
	c.next()
	c.say(`{"op":6,"d":{"token":"%s","session_id":"%s","seq":1}}`, s.Token, id)
	if g := c.next(); g.Op != 9 || string(g.Data) != "false" {
		t.Errorf("%+v %s", g, g.Data)
	}
}

func TestWhatTheServerAsks(t *testing.T) {
	t.Parallel()
	s := New(t)
	c, _ := identified(t, s, all)
	s.AskToReconnect()
	s.Ping()
	s.Invalidate(true)
	for _, want := range []int{7, 1, 9} {
		if g := c.next(); g.Op != want {
			t.Errorf("%+v, want op %d", g, want)
		}
	}
	s.Drop(1006)
	if g := c.next(); g.Op != -1 && g.Op != -1006 {
		t.Errorf("%+v", g)
	}
}

func TestAPressIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	s := New(t)
	c, _ := identified(t, s, all)
	m := s.Say(Message{ChannelID: DM, Author: s.Bot, Content: "may I?"})
	c.next()
	id := s.Press(s.Ada, m, "x")
	var i interaction
	if g := c.next(); g.Name != "INTERACTION_CREATE" || json.Unmarshal(g.Data, &i) != nil || i.User == nil || i.Member != nil || i.Data.CustomID != "x" {
		t.Fatalf("%+v %s", g, g.Data)
	}
	for n, want := range []int{204, 400} {
		if status, _, err := callWith(t.Context(), s, "POST", "/interactions/"+id+"/"+i.Token+"/callback", `{"type":6}`, ""); err != nil || status != want {
			t.Errorf("answer %d: %d %v", n, status, err)
		}
	}
	if s.Answered(id) != 6 {
		t.Errorf("answered %d", s.Answered(id))
	}
}
