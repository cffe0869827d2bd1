package slacktest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type reply struct {
	OK       bool `json:"ok"`
	Error    string
	URL      string
	TS       string
	UserID   string `json:"user_id"`
	HasMore  bool   `json:"has_more"`
	Messages []message
	Meta     struct {
		Next string `json:"next_cursor"`
	} `json:"response_metadata"`
	status int
	after  string
}

func post(t *testing.T, s *Server, method, token, kind, body string) (out reply, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+method, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := s.api.Client().Do(req)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return out, err
	}
	out.status, out.after = resp.StatusCode, resp.Header.Get("Retry-After")
	return out, json.Unmarshal(data, &out)
}

func call(t *testing.T, s *Server, method string, kv ...string) reply {
	t.Helper()
	form := url.Values{}
	for i := 0; i < len(kv); i += 2 {
		form.Set(kv[i], kv[i+1])
	}
	token := s.BotToken
	if method == "apps.connections.open" {
		token = s.AppToken
	}
	out, err := post(t, s, method, token, "application/x-www-form-urlencoded", form.Encode())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestWhatTheWebAPIRefuses(t *testing.T) {
	t.Parallel()
	s := New(t)
	room, away, closed := s.Channel("general", "channel"), s.Channel("away", "channel"), s.Channel("closed", "group")
	s.Leave(away)
	s.Archive(closed)
	section := func(n int) string {
		return `{"type":"section","text":{"type":"mrkdwn","text":"` + strings.Repeat("a", n) + `"}}`
	}
	for name, c := range map[string]struct {
		method string
		kv     []string
		want   string
	}{
		"posted":           {"chat.postMessage", []string{"channel", room, "text", "hi"}, ""},
		"longest":          {"chat.postMessage", []string{"channel", room, "text", strings.Repeat("ä", 40000)}, ""},
		"too long":         {"chat.postMessage", []string{"channel", room, "text", strings.Repeat("ä", 40001)}, "msg_too_long"},
		"empty":            {"chat.postMessage", []string{"channel", room, "text", " "}, "no_text"},
		"unknown":          {"chat.postMessage", []string{"channel", "C1", "text", "hi"}, "channel_not_found"},
		"not in it":        {"chat.postMessage", []string{"channel", away, "text", "hi"}, "not_in_channel"},
		"archived":         {"chat.postMessage", []string{"channel", closed, "text", "hi"}, "is_archived"},
		"blocks":           {"chat.postMessage", []string{"channel", room, "text", "hi", "blocks", "[" + section(3000) + "]"}, ""},
		"long section":     {"chat.postMessage", []string{"channel", room, "text", "hi", "blocks", "[" + section(3001) + "]"}, "invalid_blocks"},
		"many blocks":      {"chat.postMessage", []string{"channel", room, "text", "hi", "blocks", "[" + strings.Repeat(section(1)+",", 50) + section(1) + "]"}, "invalid_blocks"},
		"no blocks":        {"chat.postMessage", []string{"channel", room, "text", "hi", "blocks", "{"}, "invalid_blocks_format"},
		"no metadata":      {"chat.postMessage", []string{"channel", room, "text", "hi", "metadata", "{}"}, "invalid_metadata_format"},
		"update of none":   {"chat.update", []string{"channel", room, "text", "hi", "ts", "1.2"}, "message_not_found"},
		"history":          {"conversations.history", []string{"channel", room}, ""},
		"history of none":  {"conversations.history", []string{"channel", "C1"}, "channel_not_found"},
		"history not in":   {"conversations.history", []string{"channel", away}, "not_in_channel"},
		"history limit":    {"conversations.history", []string{"channel", room, "limit", "1000"}, "invalid_limit"},
		"replies of none":  {"conversations.replies", []string{"channel", room, "ts", "1.2"}, "thread_not_found"},
		"user":             {"users.info", []string{"user", s.BotUser}, ""},
		"unknown user":     {"users.info", []string{"user", "U1"}, "user_not_found"},
		"unknown info":     {"conversations.info", []string{"channel", "C1"}, "channel_not_found"},
		"unknown method":   {"chat.nothing", nil, "unknown_method"},
		"who is this":      {"auth.test", nil, ""},
		"a socket, please": {"apps.connections.open", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if out := call(t, s, c.method, c.kv...); out.Error != c.want || out.OK != (c.want == "") {
				t.Errorf("got %q, want %q", out.Error, c.want)
			}
		})
	}
}

func TestTokensAreOfAKindAndReadsTakeFormsOnly(t *testing.T) {
	t.Parallel()
	s := New(t)
	room := s.Channel("general", "channel")
	const form, js = "application/x-www-form-urlencoded", "application/json"
	for name, c := range map[string]struct{ method, token, kind, body, want string }{
		"none":            {"auth.test", "", form, "", "not_authed"},
		"wrong":           {"auth.test", "xoxb-1", form, "", "invalid_auth"},
		"bot for socket":  {"apps.connections.open", s.BotToken, form, "", "not_allowed_token_type"},
		"app for message": {"chat.postMessage", s.AppToken, form, "channel=" + room + "&text=hi", "not_allowed_token_type"},
		"json message":    {"chat.postMessage", s.BotToken, js, `{"channel":"` + room + `","text":"hi"}`, ""},
		"json history":    {"conversations.history", s.BotToken, js, `{"channel":"` + room + `"}`, "invalid_arguments"},
		"json replies":    {"conversations.replies", s.BotToken, js, `{"channel":"` + room + `"}`, "invalid_arguments"},
		"bad json":        {"chat.postMessage", s.BotToken, js, `{`, "invalid_json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if out, err := post(t, s, c.method, c.token, c.kind, c.body); err != nil || out.Error != c.want {
				t.Errorf("got %q, %v, want %q", out.Error, err, c.want)
			}
		})
	}
}

func TestHistoryPagesAndKeepsMetadata(t *testing.T) {
	t.Parallel()
	s := New(t)
	ann, room := s.User("ann"), s.Channel("general", "channel")
	root := s.Post(room, ann, "root")
	a := s.Post(room, ann, "in it", In(root))
	b := s.Post(room, ann, "shown", In(root), Broadcast())
	mine := call(t, s, "chat.postMessage", "channel", room, "text", "mine", "metadata", `{"event_type":"x","event_payload":{"key":"k"}}`)
	texts := func(r reply) (out []string) {
		for _, m := range r.Messages {
			out = append(out, m.Text)
		}
		return out
	}
	if got := texts(call(t, s, "conversations.history", "channel", room)); !slices.Equal(got, []string{"mine", "shown", "root"}) {
		t.Errorf("history is %q", got)
	}
	if got := texts(call(t, s, "conversations.history", "channel", room, "oldest", root)); !slices.Equal(got, []string{"mine", "shown"}) {
		t.Errorf("history after the root is %q", got)
	}
	if got := texts(call(t, s, "conversations.replies", "channel", room, "ts", root, "oldest", a)); !slices.Equal(got, []string{"root", "shown"}) {
		t.Errorf("replies after the first are %q", got)
	}
	first := call(t, s, "conversations.history", "channel", room, "limit", "2", "include_all_metadata", "true")
	if !first.HasMore || first.Messages[0].TS != mine.TS || first.Messages[0].Metadata.Payload["key"] != "k" || first.Messages[1].TS != b {
		t.Errorf("the first page is %+v", first)
	}
	if got := call(t, s, "conversations.history", "channel", room, "limit", "2", "cursor", first.Meta.Next); got.HasMore || len(got.Messages) != 1 {
		t.Errorf("the second page is %+v", got)
	}
	if got := call(t, s, "conversations.history", "channel", room, "limit", "1"); got.Messages[0].Metadata != nil {
		t.Error("metadata came unasked")
	}
}

func TestAChannelHasARate(t *testing.T) {
	t.Parallel()
	s := New(t)
	s.Burst = 2
	a, b := s.Channel("a", "channel"), s.Channel("b", "channel")
	for i, c := range []struct {
		channel string
		wait    time.Duration
		want    int
	}{{a, 0, 200}, {a, 0, 200}, {a, 0, 429}, {b, 0, 200}, {a, time.Second, 200}} {
		s.Advance(c.wait)
		out := call(t, s, "chat.postMessage", "channel", c.channel, "text", "hi")
		if out.status != c.want || (c.want == 429) != (out.after != "") {
			t.Errorf("%d: answered %d, %q", i, out.status, out.after)
		}
	}
}

func TestFaultsAndWhatTheyLeave(t *testing.T) {
	t.Parallel()
	for _, f := range Faults() {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			s := New(t)
			room := s.Channel("a", "channel")
			s.Fault("chat.postMessage", f, 1)
			form := url.Values{"channel": {room}, "text": {"hi"}}.Encode()
			out, err := post(t, s, "chat.postMessage", s.BotToken, "application/x-www-form-urlencoded", form)
			if err == nil && out.OK {
				t.Error("nothing went wrong")
			}
			done := slices.Contains([]Fault{Cut, HangAfter, CloseAfter}, f)
			if got := len(s.Sent()) == 1; got != done {
				t.Errorf("sent: %v, want %v", got, done)
			}
			if out, err := post(t, s, "chat.postMessage", s.BotToken, "application/x-www-form-urlencoded", form); err != nil || !out.OK {
				t.Errorf("it goes on being wrong: %v, %v", out, err)
			}
		})
	}
}

// dial connects and waits for hello.
func dial(t *testing.T, s *Server) *websocket.Conn {
	t.Helper()
	conn, resp, err := websocket.DefaultDialer.DialContext(t.Context(), call(t, s, "apps.connections.open").URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	t.Cleanup(func() { _ = conn.Close() })
	if f := next(t, conn); f.Type != "hello" {
		t.Fatalf("the first frame is %+v", f)
	}
	return conn
}

func next(t *testing.T, conn *websocket.Conn) (f frame) {
	t.Helper()
	if err := errors.Join(conn.SetReadDeadline(time.Now().Add(5*time.Second)), conn.ReadJSON(&f)); err != nil {
		t.Fatal(err)
	}
	return f
}

func ack(t *testing.T, s *Server, conn *websocket.Conn, f frame) {
	t.Helper()
	before := len(s.Acks())
	if err := conn.WriteJSON(map[string]string{"envelope_id": f.EnvelopeID}); err != nil {
		t.Fatal(err)
	}
	if !s.Until(t.Context(), func() bool { return len(s.Acks()) > before }) {
		t.Fatal("the acknowledgement did not arrive")
	}
}

func TestWhatIsNotAcknowledgedComesAgain(t *testing.T) {
	t.Parallel()
	s := New(t)
	ann, room := s.User("ann"), s.Channel("general", "channel")
	conn := dial(t, s)
	s.Say(room, ann, "hi")
	first := next(t, conn)
	for attempt, wait := range []time.Duration{3 * time.Second, 63 * time.Second, 303 * time.Second} {
		s.Advance(wait)
		f := next(t, conn)
		if f.Attempt != attempt+1 || f.Reason != "timeout" || f.EnvelopeID == first.EnvelopeID || string(f.Payload) != string(first.Payload) {
			t.Errorf("try %d is %+v", attempt+1, f)
		}
	}
	s.Advance(3 * time.Second)
	if s.Lost() != 1 || s.Unacked() != 0 {
		t.Errorf("lost %d, open %d", s.Lost(), s.Unacked())
	}
	s.Say(room, ann, "ho")
	f := next(t, conn)
	ack(t, s, conn, f)
	s.Advance(time.Hour)
	if s.Lost() != 1 || s.Unacked() != 0 || f.Attempt != 0 {
		t.Error("what was acknowledged came again")
	}
}

func TestNothingIsKeptForWhoIsAway(t *testing.T) {
	t.Parallel()
	s := New(t)
	ann, room := s.User("ann"), s.Channel("general", "channel")
	s.Say(room, ann, "nobody there")
	s.Advance(60 * time.Second)
	s.Advance(300 * time.Second)
	if s.Lost() != 1 || s.Unacked() != 0 {
		t.Errorf("lost %d, open %d", s.Lost(), s.Unacked())
	}
}

func TestTheNextSocketGetsWhatOneLeft(t *testing.T) {
	t.Parallel()
	s := New(t)
	ann, room := s.User("ann"), s.Channel("general", "channel")
	one := dial(t, s)
	s.Say(room, ann, "hi")
	next(t, one)
	s.Disconnect("warning")
	if f := next(t, one); f.Type != "disconnect" {
		t.Fatalf("got %+v", f)
	}
	two := dial(t, s)
	s.Say(room, ann, "for the new one")
	if f := next(t, two); f.Attempt != 0 || !strings.Contains(string(f.Payload), "for the new one") {
		t.Errorf("got %+v", f)
	}
	s.DropRetired()
	if f := next(t, two); f.Attempt != 1 || !strings.Contains(string(f.Payload), `"hi"`) {
		t.Errorf("got %+v", f)
	}
	if s.Opened() != 2 {
		t.Errorf("opened %d", s.Opened())
	}
}

func TestOneOfSeveralSocketsGetsAnEvent(t *testing.T) {
	t.Parallel()
	s := New(t)
	ann, room := s.User("ann"), s.Channel("general", "channel")
	one, two := dial(t, s), dial(t, s)
	for range 4 {
		s.Say(room, ann, "hi")
	}
	for _, c := range []*websocket.Conn{one, two, one, two} {
		ack(t, s, c, next(t, c))
	}
	if s.Unacked() != 0 {
		t.Error("an event went to no socket, or to both")
	}
}

func TestAMentionIsToldTwice(t *testing.T) {
	t.Parallel()
	s := New(t)
	ann, room := s.User("ann"), s.Channel("general", "channel")
	conn := dial(t, s)
	ts := s.Mention(room, ann, "hi")
	ids := map[string]bool{}
	for _, want := range []string{"app_mention", "message"} {
		f := next(t, conn)
		var p struct {
			EventID string `json:"event_id"`
			TeamID  string `json:"team_id"`
			Event   event
		}
		if err := json.Unmarshal(f.Payload, &p); err != nil {
			t.Fatal(err)
		}
		ids[p.EventID] = true
		if p.Event.Type != want || p.Event.TS != ts || p.TeamID != s.TeamID || p.Event.Channel != room || (p.Event.Team == "") != (want == "message") {
			t.Errorf("got %+v", p)
		}
	}
	if len(ids) != 2 {
		t.Error("both have one event id")
	}
}

func TestATicketIsForOneSocket(t *testing.T) {
	t.Parallel()
	s := New(t)
	u := call(t, s, "apps.connections.open").URL
	conn, _, err := websocket.DefaultDialer.DialContext(t.Context(), u, nil) //nolint:bodyclose // the socket has the connection
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, resp, err := websocket.DefaultDialer.DialContext(t.Context(), u, nil); err == nil || resp.StatusCode != http.StatusForbidden { //nolint:bodyclose // a part of it was read, and the connection closed
		t.Errorf("the ticket opened a second one: %v", err)
	}
}
