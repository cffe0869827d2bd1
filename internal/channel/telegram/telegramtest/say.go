package telegramtest

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Ann is who speaks where a test says nothing else.
func Ann() User { return User{ID: 1001, FirstName: "Ann", Username: "ann_b", Language: "en"} }

// Direct is the direct chat with a person; it has their id.
func Direct(u User) Chat {
	return Chat{ID: u.ID, Type: Private, FirstName: u.FirstName, LastName: u.LastName, Username: u.Username}
}

// TheGroup is a supergroup.
func TheGroup() Chat { return Chat{ID: -1001234567890, Type: Supergroup, Title: "The kitchen"} }

// Words is what somebody says.
type Words struct {
	From     User   // default: Ann; of a channel post nobody
	Chat     Chat   // default: the direct chat with From
	Text     string // its mentions, commands and addresses become entities, as Telegram does it
	Entities []Entity
	Thread   int      // of a topic of a forum
	ReplyTo  *Message // a message of the chat
	As       *Chat    // the chat in whose name From speaks: an anonymous admin, a channel
	Forward  *Origin
	Photo    bool
	Voice    int    // seconds
	Document string // name of a file
	Edited   bool   // it changes an earlier message: Message
	Message  int    // its id; default: the next one of the chat
}

// Say makes somebody say something: an update. It returns the message. The bot can write to
// the chat from then on.
func (s *Server) Say(w Words) Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.speak(w)
	s.add(u)
	return *cmp.Or(u.Message, u.Edited, u.ChannelPost, u.EditedPost)
}

// speak makes the update of what somebody says. The lock is held.
func (s *Server) speak(w Words) Update {
	if w.Chat.Type != Channel && w.From.ID == 0 {
		w.From = Ann()
	}
	if w.Chat.ID == 0 {
		w.Chat = Direct(w.From)
	}
	c := s.meet(w.Chat)
	m := &Message{ID: w.Message, Date: s.now().Unix(), Chat: w.Chat, SenderChat: w.As, Forward: w.Forward, ReplyTo: w.ReplyTo}
	if m.ID == 0 {
		m.ID = c.next()
	}
	if w.From.ID != 0 {
		m.From = &w.From
	}
	if w.Chat.Type == Channel {
		m.SenderChat = &w.Chat
	}
	if w.Thread != 0 {
		c.threads[w.Thread] = true
		m.Thread, m.IsTopic = w.Thread, true
		if m.ReplyTo == nil { // what answers nothing answers the root of its topic
			m.ReplyTo = &Message{ID: w.Thread, Thread: w.Thread, IsTopic: true, From: &s.Bot, Date: m.Date, Chat: w.Chat,
				TopicCreated: &Topic{Name: "Topic " + strconv.Itoa(w.Thread), Color: 7322096}}
		}
	}
	entities := append(Entities(w.Text), w.Entities...)
	if attach(m, w) {
		m.Caption, m.CaptionEntities = w.Text, entities
	} else {
		m.Text, m.Entities = w.Text, entities
	}
	c.messages[m.ID] = m
	return wrap(m, w)
}

// wrap makes an update of a message.
func wrap(m *Message, w Words) Update {
	post := w.Chat.Type == Channel
	if w.Edited {
		m.EditDate = m.Date
	}
	switch {
	case w.Edited && post:
		return Update{kind: "edited_channel_post", EditedPost: m}
	case w.Edited:
		return Update{kind: "edited_message", Edited: m}
	case post:
		return Update{kind: "channel_post", ChannelPost: m}
	}
	return Update{kind: "message", Message: m}
}

// attach adds what is attached, and reports whether anything is.
func attach(m *Message, w Words) bool {
	switch {
	case w.Photo:
		m.Photo = []Photo{{FileID: "AgACAgIAAx", UniqueID: "AQADx1", Width: 90, Height: 67, Size: 1253}, {FileID: "AgACAgIAAy", UniqueID: "AQADx2", Width: 800, Height: 600, Size: 84261}}
	case w.Voice > 0:
		m.Voice = &File{FileID: "AwACAgIAAx", UniqueID: "AgADx3", Duration: w.Voice, MIME: "audio/ogg", Size: 4096}
	case w.Document != "":
		m.Document = &File{FileID: "BQACAgIAAx", UniqueID: "AgADx4", Name: w.Document, MIME: "application/pdf", Size: 68210}
	default:
		return false
	}
	return true
}

// Press makes a person press the button of a message of the bot's that has the given text.
// It returns the id of the callback query, "" if there is no such button.
func (s *Server) Press(who User, chatID int64, messageID int, button string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chats[chatID]
	if c == nil || c.messages[messageID] == nil || c.messages[messageID].Markup == nil {
		return ""
	}
	m := c.messages[messageID]
	for _, row := range m.Markup.Rows {
		for _, b := range row {
			if b.Text != button {
				continue
			}
			s.nextPress++
			id := fmt.Sprintf("43820%014d", s.nextPress)
			s.presses[id] = false
			s.add(Update{kind: "callback_query", Callback: &CallbackQuery{ID: id, From: who, Message: m, Instance: "-3422", Data: b.Data}})
			return id
		}
	}
	return ""
}

// Answered reports whether the press of a button was answered, so that the button of the
// person stops turning.
func (s *Server) Answered(callback string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.presses[callback]
}

// Join tells the bot what it is in a chat, by who made it that: member, administrator,
// left or kicked.
func (s *Server) Join(by User, in Chat, status string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.meet(in)
	c.refusal = ""
	if status == "kicked" || status == "left" {
		c.refusal = kickedFrom(in)
	}
	s.add(Update{kind: "my_chat_member", MyMembership: &MemberUpdate{Chat: in, From: by, Date: s.now().Unix(),
		Old: Membership{Status: "left", User: s.Bot}, New: Membership{Status: status, User: s.Bot}}})
}

// Upgrade makes a group a supergroup, which has another id. The bot is told in both.
func (s *Server) Upgrade(from Chat, to Chat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, fresh := s.meet(from), s.meet(to)
	old.movedTo = to.ID
	admin := User{ID: 1087968824, IsBot: true, FirstName: "Group", Username: "GroupAnonymousBot"}
	s.add(Update{kind: "message", Message: &Message{ID: old.next(), From: &admin, SenderChat: &from, Date: s.now().Unix(), Chat: from, MigrateTo: to.ID}})
	s.add(Update{kind: "message", Message: &Message{ID: fresh.next(), From: &admin, SenderChat: &to, Date: s.now().Unix(), Chat: to, MigrateFrom: from.ID}})
}

var entityPattern = regexp.MustCompile(`(?:https?://[^\s]+)|@[A-Za-z0-9_]{2,32}|/[A-Za-z0-9_]{1,64}(?:@[A-Za-z0-9_]{3,32})?`)

// Entities finds what Telegram finds in a text by itself: mentions, commands and addresses.
func Entities(text string) (out []Entity) {
	for _, at := range entityPattern.FindAllStringIndex(text, -1) {
		part := text[at[0]:at[1]]
		before, _ := utf8.DecodeLastRuneInString(text[:at[0]])
		after, _ := utf8.DecodeRuneInString(text[at[1]:])
		kind := "url"
		switch part[0] {
		case '@':
			kind = "mention"
		case '/':
			kind = "bot_command"
		}
		if kind != "url" && (wordy(before) || wordy(after)) || kind == "bot_command" && (marks(before) || marks(after)) {
			continue
		}
		out = append(out, Entity{Type: kind, Offset: Units(text[:at[0]]), Length: Units(part)})
	}
	return out
}

func wordy(r rune) bool {
	return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

func marks(r rune) bool { return r == '/' || r == '<' || r == '>' }

// Units is the length of a text as Telegram counts, in UTF-16 units.
func Units(text string) int { return len(utf16.Encode([]rune(text))) }
