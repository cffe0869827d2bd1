package slack

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
)

// callback is the payload of an events_api envelope.
type callback struct {
	TeamID string          `json:"team_id"`
	Event  json.RawMessage `json:"event"`
}

// message is a message as an event or a history tells of it.
type message struct {
	Type         string          `json:"type"`
	Subtype      string          `json:"subtype"`
	Channel      string          `json:"channel"`      // not in a history
	ChannelType  string          `json:"channel_type"` // not in a history, not of an app_mention
	User         string          `json:"user"`
	BotID        string          `json:"bot_id"`
	Username     string          `json:"username"` // of a bot
	Text         string          `json:"text"`
	TS           string          `json:"ts"`
	ThreadTS     string          `json:"thread_ts"`
	ParentUserID string          `json:"parent_user_id"`
	LatestReply  string          `json:"latest_reply"` // of the root of a thread
	Blocks       json.RawMessage `json:"blocks"`
	Files        json.RawMessage `json:"files"`
	Attachments  json.RawMessage `json:"attachments"`
	Metadata     json.RawMessage `json:"metadata"`
}

// subtypes of messages that somebody wrote. All others tell of something else: of a
// change, of who joined, of a new topic.
var subtypes = map[string]bool{"": true, "file_share": true, "thread_broadcast": true, "me_message": true, "bot_message": true}

// written reports whether somebody wrote m, and it can be told from others.
func (m message) written() bool {
	_, ok := micros(m.TS)
	return ok && (m.Type == "message" || m.Type == "app_mention") && subtypes[m.Subtype] && isID(m.Channel) && (m.User != "" || m.BotID != "")
}

// micros reads a ts, which is seconds with six digits behind the point.
func micros(ts string) (int64, bool) {
	sec, frac, ok := strings.Cut(ts, ".")
	if !ok || len(frac) != 6 || len(sec) < 1 || len(sec) > 12 {
		return 0, false
	}
	for _, r := range sec + frac {
		if r < '0' || r > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(sec+frac, 10, 64)
	return n, err == nil && n > 0
}

// stamp writes a ts.
func stamp(n int64) string {
	n = max(n, 0)
	frac := strconv.FormatInt(n%1e6, 10)
	return strconv.FormatInt(n/1e6, 10) + "." + strings.Repeat("0", 6-len(frac)) + frac
}

// reply reports whether m is in a thread that another message began.
func (m message) reply() bool { return m.ThreadTS != "" && m.ThreadTS != m.TS }

// group reports whether others than the sender read the chat.
func (m message) group() bool {
	if m.ChannelType == "" {
		return !strings.HasPrefix(m.Channel, "D")
	}
	return m.ChannelType != "im"
}

// mentions reports whether m names one of the ids, by the structure of its text or blocks.
func (m message) mentions(is func(id string) bool) (yes bool) {
	if m.Type == "app_mention" {
		return true
	}
	mentioned(m.Text, func(id, _ string) { yes = yes || is(id) })
	if yes {
		return true
	}
	var blocks []json.RawMessage
	_ = json.Unmarshal(m.Blocks, &blocks) // of another shape: they name nobody
	for _, raw := range blocks {
		var b element
		if json.Unmarshal(raw, &b) == nil && b.Type == "rich_text" && b.names(is, maxDepth) {
			return true
		}
	}
	return false
}

// maxDepth is how deep rich texts go: a list in a block has four levels.
const maxDepth = 8

// element is a part of a rich text.
type element struct {
	Type     string            `json:"type"`
	UserID   string            `json:"user_id"`
	Elements []json.RawMessage `json:"elements"`
}

func (e element) names(is func(id string) bool, depth int) bool {
	if e.Type == "user" && is(e.UserID) {
		return true
	}
	if depth == 0 {
		return false
	}
	for _, raw := range e.Elements {
		var in element
		if json.Unmarshal(raw, &in) == nil && in.names(is, depth-1) {
			return true
		}
	}
	return false
}

// received is what a message says, with the names that are known.
func (m message) received(me channel.Me, who names) channel.Received {
	at, _ := micros(m.TS) // written has read it
	who = who.knowing(me)
	r := channel.Received{
		ID: m.TS, Chat: m.Channel, Group: m.group(), At: time.UnixMicro(at).UTC(),
		Sender: cmp.Or(m.User, m.BotID),
		Own:    me.Is(m.User) || me.Is(m.BotID),
		Bot:    m.BotID != "" || m.Subtype == "bot_message" || m.User == "USLACKBOT",
	}
	r.MentionsMe = m.mentions(me.Is)
	r.QuotesMe = m.reply() && me.Is(m.ParentUserID)
	switch {
	case m.reply():
		r.Thread = m.ThreadTS
	case r.Group && r.MentionsMe:
		r.Thread = m.TS
	}
	raw := m.Text
	if bare := withoutName(raw, me.Is); strings.HasPrefix(bare, "/") && (r.MentionsMe || !r.Group) {
		raw, r.Command = bare, true
	}
	if r.Group {
		r.Title = who.room(m.Channel)
	}
	r.SenderName = m.Username
	if m.BotID == "" {
		r.SenderName = who.user(m.User)
	}
	r.Text = withLines(plain(raw, who.user, who.room), m.attached())
	return r
}

// names looks names up.
type names struct {
	user func(id string) string
	room func(id string) string
}

// knowing knows ombud's own name without asking.
func (n names) knowing(me channel.Me) names {
	return names{room: n.room, user: func(id string) string {
		if me.Is(id) {
			return strings.TrimPrefix(me.Name, "@")
		}
		return n.user(id)
	}}
}

// maxLines bounds the lines that tell of attachments.
const maxLines = 20

// attached has a line for each file, and for what a bot attached to say it.
func (m message) attached() (lines []string) {
	var files []json.RawMessage
	_ = json.Unmarshal(m.Files, &files) // of another shape: nothing to tell
	for _, raw := range files[:min(len(files), maxLines)] {
		var f struct {
			Name     string `json:"name"`
			Title    string `json:"title"`
			Mimetype string `json:"mimetype"`
		}
		_ = json.Unmarshal(raw, &f)
		kind, _, _ := strings.Cut(f.Mimetype, "/")
		if kind != "image" && kind != "audio" && kind != "video" {
			kind = "file"
		}
		lines = append(lines, "["+kind+": "+line(cmp.Or(f.Name, f.Title, "without a name"))+"]")
	}
	if m.Text != "" || len(lines) > 0 {
		return lines
	}
	var more []json.RawMessage
	_ = json.Unmarshal(m.Attachments, &more)
	for _, raw := range more[:min(len(more), maxLines)] {
		var a struct {
			Fallback string `json:"fallback"`
			Text     string `json:"text"`
		}
		if json.Unmarshal(raw, &a) == nil && cmp.Or(a.Text, a.Fallback) != "" {
			lines = append(lines, unescape.Replace(cmp.Or(a.Text, a.Fallback)))
		}
	}
	return lines
}

// line makes one short line of a name that somebody chose.
func line(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
	if r := []rune(s); len(r) > 200 {
		return string(r[:200]) + "…"
	}
	return s
}

func withLines(text string, lines []string) string {
	if text != "" {
		lines = append([]string{text}, lines...)
	}
	return strings.Join(lines, "\n")
}

// pressed is the payload of an interactive envelope.
type pressed struct {
	Type string `json:"type"`
	User struct {
		ID       string `json:"id"`
		Username string `json:"username"`
		Name     string `json:"name"`
	} `json:"user"`
	Container struct {
		MessageTS string `json:"message_ts"`
		ChannelID string `json:"channel_id"`
		ThreadTS  string `json:"thread_ts"`
	} `json:"container"`
	Channel struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"channel"`
	Message struct {
		TS       string `json:"ts"`
		ThreadTS string `json:"thread_ts"`
	} `json:"message"`
	Actions []struct {
		ActionID string `json:"action_id"`
		Value    string `json:"value"`
		ActionTS string `json:"action_ts"`
		Text     struct {
			Text string `json:"text"`
		} `json:"text"`
	} `json:"actions"`
}

// The buttons of a question.
const (
	approveID = "ombud_approve"
	denyID    = "ombud_deny"
)

// received is a press of a button of a question. It reports whether it is one.
func (p pressed) received() (channel.Received, bool) {
	chat, ref := cmp.Or(p.Channel.ID, p.Container.ChannelID), cmp.Or(p.Message.TS, p.Container.MessageTS)
	if p.Type != "block_actions" || !isID(p.User.ID) || !isID(chat) || ref == "" {
		return channel.Received{}, false
	}
	for _, act := range p.Actions {
		at, ok := micros(act.ActionTS)
		if !ok || act.Value == "" || act.ActionID != approveID && act.ActionID != denyID {
			continue
		}
		r := channel.Received{
			ID: "press:" + ref + ":" + act.ActionTS, Chat: chat, Group: !strings.HasPrefix(chat, "D"),
			Sender: p.User.ID, SenderName: line(cmp.Or(p.User.Name, p.User.Username)), Text: line(act.Text.Text),
			At:    time.UnixMicro(at).UTC(),
			Press: &channel.Press{Approval: act.Value, Yes: act.ActionID == approveID, Ref: ref},
		}
		if t := cmp.Or(p.Message.ThreadTS, p.Container.ThreadTS); t != ref {
			r.Thread = t
		}
		if r.Group && p.Channel.Name != "privategroup" {
			r.Title = line(p.Channel.Name)
		}
		return r, true
	}
	return channel.Received{}, false
}
