package slacktest

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// answer is what a call returns: the fields of every method, of which it sets its own.
type answer struct {
	OK       bool       `json:"ok"`
	Error    string     `json:"error,omitempty"`
	URL      string     `json:"url,omitempty"`
	Team     string     `json:"team,omitempty"`
	TeamID   string     `json:"team_id,omitempty"`
	User     any        `json:"user,omitempty"`
	UserID   string     `json:"user_id,omitempty"`
	BotID    string     `json:"bot_id,omitempty"`
	Channel  any        `json:"channel,omitempty"`
	TS       string     `json:"ts,omitempty"`
	Text     string     `json:"text,omitempty"`
	Message  *message   `json:"message,omitempty"`
	Messages []*message `json:"messages,omitempty"`
	HasMore  *bool      `json:"has_more,omitempty"`
	Meta     *struct {
		NextCursor string `json:"next_cursor"`
	} `json:"response_metadata,omitempty"`

	wait time.Duration // answered with 429
}

func refusal(code string) answer { return answer{Error: code} }

// reads are the methods that take no JSON.
func reads(method string) bool {
	switch method {
	case "conversations.history", "conversations.replies", "conversations.info", "users.info":
		return true
	}
	return false
}

func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request) {
	method := strings.TrimPrefix(r.URL.Path, "/api/")
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	s.change(func() { s.calls = append(s.calls, Call{method, kind, string(body)}) })
	fault := s.takeFault(method)
	if s.before(w, r, fault) {
		return
	}
	form, bad := arguments(method, kind, body)
	a := refusal(bad)
	if bad == "" {
		if bad = s.admit(method, bearer(r)); bad != "" {
			a = refusal(bad)
		} else {
			a = s.call(method, form)
		}
	}
	a.OK = a.Error == ""
	out, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	if a.wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(a.wait/time.Second)+1))
		w.WriteHeader(http.StatusTooManyRequests)
	}
	s.after(w, r, fault, out)
}

func arguments(method, kind string, body []byte) (url.Values, string) {
	switch {
	case kind == "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return nil, "invalid_form_data"
		}
		return form, ""
	case kind == "application/json" && !reads(method):
		var fields map[string]json.RawMessage
		if json.Unmarshal(body, &fields) != nil {
			return nil, "invalid_json"
		}
		form := url.Values{}
		for k, v := range fields {
			text := string(v)
			_ = json.Unmarshal(v, &text) // what is no string stays as it is written
			form.Set(k, text)
		}
		return form, ""
	case kind == "application/json":
		return nil, "invalid_arguments"
	}
	return url.Values{}, ""
}

// admit checks the token, and that it is of the kind a method needs.
func (s *Server) admit(method, token string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.refuse != "":
		return s.refuse
	case token == "":
		return "not_authed"
	case token != s.AppToken && token != s.BotToken:
		return "invalid_auth"
	case (method == "apps.connections.open") != (token == s.AppToken) && method != "auth.test":
		return "not_allowed_token_type"
	}
	return ""
}

func (s *Server) call(method string, form url.Values) (a answer) {
	switch method {
	case "auth.test":
		return answer{URL: "https://test.slack.com/", Team: "Test", TeamID: s.TeamID, User: s.BotName, UserID: s.BotUser, BotID: s.BotID}
	case "apps.connections.open":
		return s.open()
	}
	s.change(func() {
		switch method {
		case "chat.postMessage":
			a = s.post(form)
		case "chat.update":
			a = s.update(form)
		case "conversations.history":
			a = s.history(form)
		case "conversations.replies":
			a = s.replies(form)
		case "conversations.info":
			a = s.info(form)
		case "users.info":
			a = s.user(form)
		default:
			a = refusal("unknown_method")
		}
	})
	return a
}

func (s *Server) user(form url.Values) answer {
	name, ok := s.users[form.Get("user")]
	if !ok {
		return refusal("user_not_found")
	}
	type profile struct {
		DisplayName string `json:"display_name"`
	}
	return answer{User: struct {
		ID       string  `json:"id"`
		Name     string  `json:"name"`
		RealName string  `json:"real_name"`
		Profile  profile `json:"profile"`
	}{form.Get("user"), strings.ToLower(name), name + " Full", profile{name}}}
}

func (s *Server) info(form url.Values) answer {
	c := s.channels[form.Get("channel")]
	if c == nil {
		return refusal("channel_not_found")
	}
	return answer{Channel: struct {
		ID   string `json:"id"`
		Name string `json:"name,omitempty"`
		IM   bool   `json:"is_im"`
		User string `json:"user,omitempty"`
	}{c.ID, c.Name, c.Type == "im", c.User}}
}

// writable finds the channel that a message is for.
func (s *Server) writable(form url.Values) (*room, string) {
	c := s.channels[form.Get("channel")]
	switch {
	case c == nil:
		return nil, "channel_not_found"
	case !c.Member:
		return nil, "not_in_channel"
	case c.Archived:
		return nil, "is_archived"
	}
	return c, content(form)
}

// content checks what a message may hold.
func content(form url.Values) string {
	text := form.Get("text")
	var blocks []json.RawMessage
	if b := form.Get("blocks"); b != "" && json.Unmarshal([]byte(b), &blocks) != nil {
		return "invalid_blocks_format"
	}
	switch {
	case utf8.RuneCountInString(text) > 40000:
		return "msg_too_long"
	case strings.TrimSpace(text) == "" && len(blocks) == 0:
		return "no_text"
	case len(blocks) > 50:
		return "invalid_blocks"
	}
	for _, raw := range blocks {
		if !validBlock(raw) {
			return "invalid_blocks"
		}
	}
	if m := form.Get("metadata"); m != "" {
		var meta Metadata
		if json.Unmarshal([]byte(m), &meta) != nil || meta.Type == "" || meta.Payload == nil {
			return "invalid_metadata_format"
		}
	}
	return ""
}

func validBlock(raw json.RawMessage) bool {
	type text struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	var b struct {
		Type     string `json:"type"`
		Text     *text  `json:"text"`
		Elements []struct {
			Type     string `json:"type"`
			ActionID string `json:"action_id"`
			Value    string `json:"value"`
			Text     *text  `json:"text"`
		} `json:"elements"`
	}
	if json.Unmarshal(raw, &b) != nil {
		return false
	}
	switch b.Type {
	case "section":
		n := 0
		if b.Text != nil {
			n = utf8.RuneCountInString(b.Text.Text)
		}
		return n >= 1 && n <= 3000 && (b.Text.Type == "mrkdwn" || b.Text.Type == "plain_text")
	case "actions":
		seen := map[string]bool{}
		for _, e := range b.Elements {
			if e.Type != "button" || e.Text == nil || e.Text.Type != "plain_text" || len(e.Text.Text) > 75 ||
				len(e.Value) > 2000 || len(e.ActionID) > 255 || seen[e.ActionID] {
				return false
			}
			seen[e.ActionID] = true
		}
		return len(b.Elements) >= 1 && len(b.Elements) <= 25
	}
	return b.Type == "divider" || b.Type == "context" || b.Type == "header"
}

// take takes one message out of what a channel may get now, or tells how long to wait.
func (s *Server) take(c *room) time.Duration {
	now := s.now()
	if c.filled.IsZero() {
		c.tokens = float64(s.Burst)
	} else {
		c.tokens = min(float64(s.Burst), c.tokens+now.Sub(c.filled).Seconds())
	}
	c.filled = now
	if c.tokens < 1 {
		return time.Duration((1 - c.tokens) * float64(time.Second))
	}
	c.tokens--
	return 0
}

func (s *Server) post(form url.Values) answer {
	c, bad := s.writable(form)
	if bad != "" {
		return refusal(bad)
	}
	if wait := s.take(c); wait > 0 {
		return answer{Error: "ratelimited", wait: wait}
	}
	m := &message{Type: "message", User: s.BotUser, BotID: s.BotID, AppID: s.AppID, Channel: c.ID, ThreadTS: form.Get("thread_ts")}
	s.fill(m, form)
	s.keep(c, m)
	s.sent = append(s.sent, m)
	return answer{Channel: c.ID, TS: m.TS, Message: m.copied()}
}

// fill sets what a call says of a message; what it does not say stays.
func (s *Server) fill(m *message, form url.Values) {
	m.Text = form.Get("text")
	if b := form.Get("blocks"); b != "" {
		m.Blocks = json.RawMessage(b)
	}
	if string(m.Blocks) == "[]" {
		m.Blocks = nil
	}
	if t := form.Get("metadata"); t != "" {
		m.Metadata = &Metadata{}
		_ = json.Unmarshal([]byte(t), m.Metadata) // content has read it
	}
}

func (s *Server) update(form url.Values) answer {
	c, bad := s.writable(form)
	if bad != "" {
		return refusal(bad)
	}
	if wait := s.take(c); wait > 0 {
		return answer{Error: "ratelimited", wait: wait}
	}
	for _, m := range c.messages {
		if m.TS == form.Get("ts") {
			if m.BotID != s.BotID {
				return refusal("cant_update_message")
			}
			s.fill(m, form)
			m.edits++
			return answer{Channel: c.ID, TS: m.TS, Text: m.Text, Message: m.copied()}
		}
	}
	return refusal("message_not_found")
}
