package whatsapp

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/fault"
)

// envelope is the body of a call of wacli's. All of it may be missing.
type envelope struct {
	Event   string  `json:"event"`
	Payload payload `json:"payload"`
}

type payload struct {
	Chat    chatRow    `json:"chat"`
	Message messageRow `json:"message"`
	Sender  contactRow `json:"sender_contact"`

	// Of a call somebody makes.
	CallID   string `json:"call_id"`
	PeerJID  string `json:"peer_jid"`
	PeerName string `json:"peer_name"`
	Video    bool   `json:"video"`
	Started  stamp  `json:"started_at"`
}

type chatRow struct {
	JID     string `json:"jid"`
	Name    string `json:"name"`
	Locked  bool   `json:"locked"`
	IsGroup bool   `json:"is_group"`
}

// messageRow is a message as wacli has it in a call and in its list. ChatName and IsGroup
// are in lists of some versions only.
type messageRow struct {
	ID             string `json:"id"`
	ChatJID        string `json:"chat_jid"`
	ChatName       string `json:"chat_name"`
	IsGroup        bool   `json:"is_group"`
	SenderJID      string `json:"sender_jid"`
	Content        string `json:"content"`
	Timestamp      stamp  `json:"timestamp"`
	IsFromMe       bool   `json:"is_from_me"`
	MessageType    string `json:"message_type"`
	FileName       string `json:"file_name"`
	MentionsMe     bool   `json:"mentions_me"`
	QuotedIsFromMe bool   `json:"quoted_is_from_me"`
	MentionCount   int    `json:"mention_count"`
}

type contactRow struct {
	FullName string `json:"full_name"`
	PushName string `json:"push_name"`
}

// stamp is a time as some version of some program writes it: RFC 3339, or seconds since
// 1970 as a number or as text. What is neither is no time.
type stamp struct{ time.Time }

func (s *stamp) UnmarshalJSON(data []byte) error {
	text := string(bytes.Trim(data, `"`))
	if n, err := strconv.ParseFloat(text, 64); err == nil && n > 0 && n < 1e11 {
		s.Time = time.Unix(int64(n), 0).UTC()
	} else if t, err := time.Parse(time.RFC3339, text); err == nil {
		s.Time = t.UTC()
	}
	return nil
}

// decodeEnvelope reads the body of a call of wacli's. Invalid if it is no JSON object.
func decodeEnvelope(body []byte) (envelope, error) {
	var e envelope
	if err := json.Unmarshal(body, &e); err != nil {
		return envelope{}, fault.New(fault.Invalid, "the body is not an event of wacli's: %w", err)
	}
	return e, nil
}

// received turns an event into a message. It is false for events that are none: those we
// do not know, and all of a chat that wacli's owner locked.
func (e envelope) received(me channel.Me, now time.Time) (channel.Received, bool) {
	p := e.Payload
	switch {
	case p.Chat.Locked:
		return channel.Received{}, false
	case e.Event == "incoming_message", e.Event == "outgoing_message":
		m, ok := p.Message.received(p.Chat, me, now)
		m.Own = m.Own || e.Event == "outgoing_message"
		if name := line(p.Sender.PushName); name != "" && m.SenderName == "" {
			m.SenderName = name
		}
		if name := line(p.Sender.FullName); name != "" && m.SenderName == "" {
			m.SenderName = name
		}
		return m, ok
	case e.Event == "call.incoming":
		return p.call(now)
	}
	return channel.Received{}, false
}

// received is a row as a message.
func (r messageRow) received(chat chatRow, me channel.Me, now time.Time) (channel.Received, bool) {
	m := channel.Received{
		Chat: normal(cmp.Or(chat.JID, r.ChatJID)), Title: line(cmp.Or(chat.Name, r.ChatName)),
		Sender: normal(r.SenderJID), At: r.Timestamp.Time, Text: r.text(),
		MentionsMe: r.MentionsMe, QuotesMe: r.QuotedIsFromMe,
	}
	if m.Chat == "" {
		m.Chat = m.Sender
	}
	if len(m.Chat) > maxJID || !talks(m.Chat) || strings.TrimSpace(m.Text) == "" {
		return channel.Received{}, false
	}
	m.Group = chat.IsGroup || r.IsGroup || isGroup(m.Chat)
	if m.Sender == "" || len(m.Sender) > maxJID {
		m.Sender = m.Chat // of a direct chat it is who writes; of a group, nobody we know
	}
	if !m.Group && !r.IsFromMe {
		m.SenderName = m.Title
	}
	if m.At.IsZero() || m.At.After(now) {
		m.At = now
	}
	// Who wrote it says whether it is ours, never what it says: a message that names us
	// comes from others too, also in a chat of the account with itself.
	m.Own = r.IsFromMe || me.Is(m.Sender)
	m.MentionsMe = m.MentionsMe || r.MentionCount > 0 && names(r.Content, me)
	m.Command = !m.Group && command.MatchString(m.Text)
	m.ID = r.id(m)
	return m, true
}

// id is the network's id of a message, or one of its content where wacli gives none, so
// that the same again is the same.
func (r messageRow) id(m channel.Received) string {
	id := strings.TrimSpace(r.ID)
	if id != "" && len(id) <= maxID && line(id) == id {
		return id
	}
	sum := sha256.Sum256([]byte(m.Chat + "\x00" + m.Sender + "\x00" + r.Timestamp.String() + "\x00" + r.ID + "\x00" + m.Text))
	return "sha256:" + hex.EncodeToString(sum[:16])
}

const (
	maxID   = 256      // bytes
	maxText = 64 << 10 // bytes; WhatsApp itself takes 65,536 characters
)

var command = regexp.MustCompile(`^/[A-Za-z]`)

// names reports whether a text has one of our ids as a mention is written: @123. That
// somebody is mentioned says the structure; this says who, where wacli did not see that
// the id is ours.
func names(text string, me channel.Me) bool {
	for _, id := range append([]string{me.ID}, me.IDs...) {
		u := user(id)
		for rest := text; u != ""; {
			_, after, found := strings.Cut(rest, "@"+u)
			if !found {
				break
			}
			if after == "" || after[0] < '0' || after[0] > '9' {
				return true
			}
			rest = after
		}
	}
	return false
}

// text is what a message says, with a line for what is attached.
func (r messageRow) text() string {
	text := clean(r.Content)
	switch r.MessageType {
	case "image", "document", "video", "audio", "ptt", "sticker":
		return attach(text, r.MessageType, r.FileName)
	}
	return text
}

// attach adds a line for an attachment, unless the text is that already. Only a document
// has a name that its sender gave it.
func attach(text, kind, file string) string {
	mark := "[" + kind + "]"
	if name := line(file); kind == "document" && name != "" {
		mark = "[" + kind + ": " + name + "]"
	}
	if t := strings.TrimSpace(text); t == "" || t == "["+kind+"]" {
		return mark
	}
	return text + "\n" + mark
}

// clean bounds a text and takes out what no store takes.
func clean(text string) string {
	text = strings.ReplaceAll(text, "\x00", "")
	if len(text) <= maxText {
		return text
	}
	return fault.Cut(text, maxText) + "\n[cut]"
}

// call is a call that somebody makes, as a message. It is marked as a program's, though a
// person rings: nothing was said that could be answered, and in a direct chat everything
// a person writes starts a turn.
func (p payload) call(now time.Time) (channel.Received, bool) {
	peer := normal(p.PeerJID)
	if p.CallID == "" || len(p.CallID) > maxID || len(peer) > maxJID || !talks(peer) {
		return channel.Received{}, false
	}
	name := line(p.PeerName)
	kind := "call"
	if p.Video {
		kind = "video call"
	}
	m := channel.Received{
		ID: "call:" + line(p.CallID), Chat: peer, Title: name, Group: isGroup(peer), Sender: peer, SenderName: name,
		Text: "[" + kind + " from " + cmp.Or(name, user(peer)) + "]", At: p.Started.Time, Bot: true,
	}
	if m.At.IsZero() || m.At.After(now) {
		m.At = now
	}
	return m, true
}
