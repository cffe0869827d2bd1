package telegram

import (
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
)

// received is what an update tells, and whether it tells anything: a message, or a press
// of one of our buttons. now is the time of a press, which has none of its own.
func (u update) received(me channel.Me, now time.Time) (channel.Received, bool) {
	switch {
	case u.broken != nil:
		return channel.Received{}, false
	case u.Press != nil:
		return u.Press.received(me, now)
	case u.Message != nil:
		return u.Message.received(me)
	case u.Post != nil:
		return u.Post.received(me)
	}
	return channel.Received{}, false
}

func (m *message) received(me channel.Me) (channel.Received, bool) {
	text := m.says()
	if text == "" || m.ID == 0 || m.Chat.ID == 0 {
		return channel.Received{}, false
	}
	r := m.Chat.place()
	r.ID, r.Thread, r.Text, r.At = strconv.Itoa(m.ID), m.thread(), text, time.Unix(m.Date, 0).UTC()
	m.sender(me, &r)
	if m.ReplyTo != nil && m.ReplyTo.From != nil && !m.answersRoot() {
		r.QuotesMe = me.Is(id(m.ReplyTo.From.ID))
	}
	r.Forwarded = m.Forward != nil
	r.Elsewhere = elsewhere(me, m.Text, m.Entities) || elsewhere(me, m.Caption, m.CaptionEntities)
	if m.Forward == nil { // what another wrote names nobody, and commands nothing
		r.MentionsMe = mentions(me, m.Text, m.Entities) || mentions(me, m.Caption, m.CaptionEntities)
		r.Command = commands(me, m.Text, m.Entities, !r.Group) || commands(me, m.Caption, m.CaptionEntities, !r.Group)
	}
	return r, true
}

// thread is that of a topic of a forum. Messages that answer each other in a group without
// topics have such a number too, and are one talk.
func (m *message) thread() string {
	if !m.IsTopic || m.Thread == 0 {
		return ""
	}
	return strconv.Itoa(m.Thread)
}

// answersRoot reports whether a message answers nothing but the beginning of its topic, as
// every message of a topic does that answers none.
func (m *message) answersRoot() bool {
	return bool(m.ReplyTo.TopicCreated) || m.IsTopic && m.ReplyTo.ID == m.Thread
}

// sender says who wrote a message. An admin who hides, and a channel, write in the name of
// a chat: Telegram puts a bot of its own in their place, which wrote nothing.
func (m *message) sender(me channel.Me, r *channel.Received) {
	switch {
	case m.SenderChat != nil:
		r.Sender, r.SenderName = id(m.SenderChat.ID), name(m.SenderChat.Title, m.Signature)
	case m.From != nil:
		r.Sender, r.SenderName = id(m.From.ID), m.From.shown()
		r.Bot, r.Own = m.From.IsBot, me.Is(id(m.From.ID))
	default:
		r.Sender, r.SenderName = id(m.Chat.ID), name(m.Chat.Title, m.Signature)
	}
}

func (u user) shown() string {
	if full := name(u.FirstName, u.LastName); full != "" {
		return full
	}
	return name(u.Username)
}

// place begins what is received with where it was.
func (c chat) place() channel.Received {
	title := c.Title
	if title == "" {
		title = c.FirstName + " " + c.LastName
	}
	return channel.Received{Chat: id(c.ID), Title: name(title), Group: c.Type != "private"}
}

func id(n int64) string { return strconv.FormatInt(n, 10) }

// mentions reports whether a text names ombud: its whole @name, which Telegram marked as
// one, or a mark with its id for a name that is none.
func mentions(me channel.Me, text string, entities []entity) bool {
	for _, e := range entities {
		switch e.Type {
		case "mention":
			if isMe(me, strings.TrimPrefix(span(text, e.Offset, e.Length), "@")) {
				return true
			}
		case "text_mention":
			if e.User != nil && me.Is(id(e.User.ID)) {
				return true
			}
		}
	}
	return false
}

func isMe(me channel.Me, name string) bool {
	for _, n := range me.Names {
		if name != "" && strings.EqualFold(name, n) {
			return true
		}
	}
	return false
}

// commands reports whether a text begins with a command to ombud: with its name, or in a
// direct chat with nobody's.
func commands(me channel.Me, text string, entities []entity, direct bool) bool {
	for _, e := range entities {
		if e.Type != "bot_command" || e.Offset != 0 {
			continue
		}
		_, to, named := strings.Cut(span(text, 0, e.Length), "@")
		return named && isMe(me, to) || !named && direct
	}
	return false
}

// elsewhere reports whether a text is a command to another bot, by its name.
func elsewhere(me channel.Me, text string, entities []entity) bool {
	for _, e := range entities {
		if e.Type == "bot_command" && e.Offset == 0 {
			_, to, named := strings.Cut(span(text, 0, e.Length), "@")
			return named && !isMe(me, to)
		}
	}
	return false
}

// received is a press of one of our buttons.
func (p *press) received(me channel.Me, now time.Time) (channel.Received, bool) {
	approval, yes, ours := parseData(p.Data)
	if !ours || p.ID == "" || p.Message == nil || p.Message.Chat.ID == 0 || p.From.ID == 0 {
		return channel.Received{}, false
	}
	r := p.Message.Chat.place()
	r.ID, r.Thread, r.At = "press:"+p.ID, p.Message.thread(), now.UTC()
	r.Sender, r.SenderName, r.Bot, r.Own = id(p.From.ID), p.From.shown(), p.From.IsBot, me.Is(id(p.From.ID))
	r.Press = &channel.Press{Approval: approval, Yes: yes, Ref: strconv.Itoa(p.Message.ID)}
	r.Text = textDeny
	if yes {
		r.Text = textApprove
	}
	return r, true
}

// The data of a button is a:<approval>:y or a:<approval>:n.
const (
	dataPrefix  = "a:"
	dataYes     = ":y"
	dataNo      = ":n"
	maxData     = 64 // bytes, Telegram's limit
	textApprove = "Approve"
	textDeny    = "Deny"
)

func parseData(data string) (approval string, yes, ours bool) {
	rest, ours := strings.CutPrefix(data, dataPrefix)
	if !ours || len(data) > maxData {
		return "", false, false
	}
	if approval, yes = strings.CutSuffix(rest, dataYes); !yes {
		if approval, ours = strings.CutSuffix(rest, dataNo); !ours {
			return "", false, false
		}
	}
	return approval, yes, approval != ""
}
