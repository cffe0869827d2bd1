package slacktest

import (
	"encoding/json"
	"regexp"
	"strings"
)

// event is an event of the Events API about a message.
type event struct {
	message
	ClientMsgID string `json:"client_msg_id,omitempty"`
	Team        string `json:"team,omitempty"`
	Channel     string `json:"channel"`
	EventTS     string `json:"event_ts"`
	ChannelType string `json:"channel_type,omitempty"`
}

type callback struct {
	Token        string `json:"token"`
	TeamID       string `json:"team_id"`
	APIAppID     string `json:"api_app_id"`
	Event        any    `json:"event"`
	Type         string `json:"type"`
	EventID      string `json:"event_id"`
	EventTime    int64  `json:"event_time"`
	EventContext string `json:"event_context"`
}

func (s *Server) callback(ev any) {
	var id string
	s.change(func() { id = s.id("Ev") })
	s.envelope("events_api", false, callback{
		Token: "verification-token", TeamID: s.TeamID, APIAppID: s.AppID, Event: ev,
		Type: "event_callback", EventID: id, EventTime: s.Now().Unix(), EventContext: "4-" + id,
	})
}

// Option changes what is said.
type Option func(*message)

// In says it in a thread.
func In(thread string) Option { return func(m *message) { m.ThreadTS = thread } }

// Broadcast shows a reply in the channel too.
func Broadcast() Option { return func(m *message) { m.Subtype = "thread_broadcast" } }

// Subtype sets the subtype.
func Subtype(t string) Option { return func(m *message) { m.Subtype = t } }

// With attaches files.
func With(files ...File) Option {
	return func(m *message) { m.Files, m.Subtype = files, "file_share" }
}

// ByBot makes another app the author.
func ByBot(bot string) Option { return func(m *message) { m.BotID, m.Subtype = bot, "bot_message" } }

// Say writes a message as a user, with text as Slack keeps it (<@U…>, &amp;), and returns
// its ts. It is in the channel's history; the app is told by one event, if it is connected.
func (s *Server) Say(channel, user, text string, opts ...Option) string {
	m, kind := s.write(channel, user, text, opts)
	s.callback(s.event(m, kind))
	return m.TS
}

// Mention writes a message that names the app, before text. The app is told twice of it,
// as Slack does: by app_mention and by message, with two event ids and one ts.
func (s *Server) Mention(channel, user, text string, opts ...Option) string {
	m, kind := s.write(channel, user, "<@"+s.BotUser+"> "+text, opts)
	named := s.event(m, "")
	named.Type = "app_mention"
	plain := s.event(m, kind)
	plain.Team = ""
	s.callback(named)
	s.callback(plain)
	return m.TS
}

// Post puts a message into the history alone: nobody tells the app.
func (s *Server) Post(channel, user, text string, opts ...Option) string {
	m, _ := s.write(channel, user, text, opts)
	return m.TS
}

func (s *Server) write(channel, user, text string, opts []Option) (m *message, kind string) {
	m = &message{Type: "message", User: user, Text: text, Channel: channel}
	for _, o := range opts {
		o(m)
	}
	if m.BotID != "" {
		m.User = ""
	}
	m.Blocks = rich(text)
	s.change(func() {
		c := s.channels[channel]
		s.keep(c, m)
		kind = c.Type
		copied := *m
		m = &copied
	})
	return m, kind
}

func (s *Server) event(m *message, kind string) event {
	return event{message: *m, ClientMsgID: "0dc9f2b2-2b0a-4f0e-9d4a-" + m.TS, Team: s.TeamID, Channel: m.Channel, EventTS: m.TS, ChannelType: kind}
}

// element is a part of a rich text.
type element struct {
	Type     string    `json:"type"`
	BlockID  string    `json:"block_id,omitempty"`
	Text     string    `json:"text,omitempty"`
	UserID   string    `json:"user_id,omitempty"`
	Elements []element `json:"elements,omitempty"`
}

// rich makes the blocks that Slack makes of what a person writes.
func rich(text string) json.RawMessage {
	user := regexp.MustCompile(`<@([UW][A-Z0-9]+)(?:\|[^>]*)?>`)
	var parts []element
	for text != "" {
		at := user.FindStringSubmatchIndex(text)
		if at == nil {
			parts = append(parts, element{Type: "text", Text: unescape(text)})
			break
		}
		if at[0] > 0 {
			parts = append(parts, element{Type: "text", Text: unescape(text[:at[0]])})
		}
		parts = append(parts, element{Type: "user", UserID: text[at[2]:at[3]]})
		text = text[at[1]:]
	}
	out, err := json.Marshal([]element{{Type: "rich_text", BlockID: "b1", Elements: []element{{Type: "rich_text_section", Elements: parts}}}})
	if err != nil {
		panic(err)
	}
	return out
}

func unescape(s string) string {
	return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(s)
}

// Event sends the app an event as it stands, which is the JSON of the event itself.
func (s *Server) Event(raw string) { s.callback(json.RawMessage(raw)) }

// Envelope sends an envelope of any kind with a payload as it stands.
func (s *Server) Envelope(kind, payload string) { s.envelope(kind, false, json.RawMessage(payload)) }

// Slash types a slash command.
func (s *Server) Slash(channel, user, command, text string) {
	s.envelope("slash_commands", true, struct {
		Token     string `json:"token"`
		TeamID    string `json:"team_id"`
		ChannelID string `json:"channel_id"`
		UserID    string `json:"user_id"`
		Command   string `json:"command"`
		Text      string `json:"text"`
		AppID     string `json:"api_app_id"`
	}{"verification-token", s.TeamID, channel, user, command, text, s.AppID})
}

type named struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type action struct {
	ActionID string `json:"action_id"`
	BlockID  string `json:"block_id"`
	Text     struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"text"`
	Value    string `json:"value"`
	Type     string `json:"type"`
	ActionTS string `json:"action_ts"`
}

// Press presses a button of a message that the app posted. It reports whether there is
// such a button.
func (s *Server) Press(ts, user, actionID string) bool {
	var payload struct {
		Type      string `json:"type"`
		User      named  `json:"user"`
		AppID     string `json:"api_app_id"`
		Token     string `json:"token"`
		Container struct {
			Type      string `json:"type"`
			MessageTS string `json:"message_ts"`
			ChannelID string `json:"channel_id"`
			ThreadTS  string `json:"thread_ts,omitempty"`
		} `json:"container"`
		TriggerID string   `json:"trigger_id"`
		Team      named    `json:"team"`
		Channel   named    `json:"channel"`
		Message   message  `json:"message"`
		Actions   []action `json:"actions"`
	}
	s.change(func() {
		for _, m := range s.sent {
			if m.TS != ts {
				continue
			}
			if b, ok := button(m.Blocks, actionID); ok {
				b.ActionTS = s.stamp()
				payload.Actions = []action{b}
			}
			payload.Type, payload.AppID, payload.Token, payload.TriggerID = "block_actions", s.AppID, "verification-token", "1.2.abc"
			payload.User, payload.Team = named{user, s.users[user]}, named{s.TeamID, "test"}
			payload.Channel = named{m.Channel, s.channels[m.Channel].Name}
			payload.Container.Type, payload.Container.MessageTS, payload.Container.ChannelID, payload.Container.ThreadTS = "message", m.TS, m.Channel, m.ThreadTS
			payload.Message = *m
		}
	})
	if len(payload.Actions) == 0 {
		return false
	}
	s.envelope("interactive", false, payload)
	return true
}

func button(blocks json.RawMessage, id string) (action, bool) {
	var all []struct {
		BlockID  string   `json:"block_id"`
		Elements []action `json:"elements"`
	}
	_ = json.Unmarshal(blocks, &all) // the server took them before
	for _, b := range all {
		for _, e := range b.Elements {
			if e.ActionID == id {
				e.BlockID = b.BlockID
				return e, true
			}
		}
	}
	return action{}, false
}
