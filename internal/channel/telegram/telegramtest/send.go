package telegramtest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// Sent is a message that the bot sent, as the server holds it now.
type Sent struct {
	ChatID    int64
	MessageID int
	Thread    int
	ReplyTo   int
	Text      string
	Entities  []Entity
	Buttons   [][]Button
	Preview   bool // of the first address in it
	Edits     int  // how often it was changed
}

const (
	maxText     = 4096 // UTF-16 units
	maxEntities = 100  // more are dropped
	maxData     = 64   // bytes of a button's data
)

// record is what the server keeps beside a message of the bot's.
type record struct {
	Sent
	message *Message
}

// Sent is every message of the bot's, in the order in which they were sent.
func (s *Server) Sent() []Sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Sent, 0, len(s.sent))
	for _, r := range s.sent {
		out = append(out, r.Sent)
	}
	return out
}

// Texts are the texts of Sent.
func (s *Server) Texts() []string {
	var out []string
	for _, m := range s.Sent() {
		out = append(out, m.Text)
	}
	return out
}

// content is what a message is sent or changed with.
type content struct {
	text     string
	entities []Entity
	markup   *Keyboard
	preview  bool
}

// read checks the content of a call.
func read(p params) (c content, wrong reply, ok bool) {
	c = content{text: p["text"], preview: true}
	var options struct {
		Disabled bool `json:"is_disabled"`
	}
	if _, err := p.decode("link_preview_options", &options); err != nil {
		return c, bad("can't parse link preview options JSON object"), false
	}
	c.preview = !options.Disabled && !p.bool("disable_web_page_preview")
	if !utf8.ValidString(c.text) {
		return c, bad("strings must be encoded in UTF-8"), false
	}
	if mode := p["parse_mode"]; mode != "" {
		var what string
		if c.text, what = parseMode(mode, c.text); what != "" {
			return c, bad(what), false
		}
	} else if _, err := p.decode("entities", &c.entities); err != nil {
		return c, bad("can't parse entities JSON object"), false
	}
	if what := checkEntities(c.text, c.entities); what != "" {
		return c, bad(what), false
	}
	c.entities = c.entities[:min(len(c.entities), maxEntities)]
	switch {
	case strings.TrimSpace(c.text) == "":
		return c, bad("message text is empty"), false
	case Units(c.text) > maxText:
		return c, bad("message is too long"), false
	}
	wrong, ok = c.readMarkup(p)
	return c, wrong, ok
}

func (c *content) readMarkup(p params) (reply, bool) {
	found, err := p.decode("reply_markup", &c.markup)
	if err != nil {
		return bad("can't parse reply keyboard markup JSON object"), false
	}
	if !found {
		return reply{}, true
	}
	for _, row := range c.markup.Rows {
		for _, b := range row {
			switch {
			case b.Text == "":
				return bad("can't parse inline keyboard button: Field \"text\" must be non-empty"), false
			case b.Data == "" && b.URL == "":
				return bad("can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard"), false
			case len(b.Data) > maxData:
				return bad("BUTTON_DATA_INVALID"), false
			}
		}
	}
	if len(c.markup.Rows) == 0 {
		c.markup = nil
	}
	return reply{}, true
}

type replyParameters struct {
	MessageID int  `json:"message_id"`
	Lenient   bool `json:"allow_sending_without_reply"`
}

func (s *Server) sendMessage(p params) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, wrong, ok := s.target(p)
	if !ok {
		return wrong
	}
	what, wrong, ok := read(p)
	if !ok {
		return wrong
	}
	thread := int(p.int("message_thread_id"))
	if thread != 0 && !c.threads[thread] {
		return bad("message thread not found")
	}
	var to replyParameters
	if _, err := p.decode("reply_parameters", &to); err != nil {
		return bad("can't parse reply parameters JSON object")
	}
	answered := c.messages[to.MessageID]
	if to.MessageID != 0 && answered == nil && !to.Lenient {
		return bad("message to be replied not found")
	}
	if wrong, ok := s.room(c); !ok {
		return wrong
	}
	m := &Message{ID: c.next(), From: &s.Bot, Date: s.now().Unix(), Chat: c.Chat, Thread: thread, IsTopic: thread != 0,
		ReplyTo: answered, Text: what.text, Entities: what.entities, Markup: what.markup}
	c.messages[m.ID] = m
	s.sent = append(s.sent, &record{message: m})
	s.describe(s.sent[len(s.sent)-1], what)
	return reply{result: json.RawMessage(mustJSON(m))} // as it is now
}

// describe brings what a test sees of a message up to date. The lock is held.
func (s *Server) describe(r *record, what content) {
	m := r.message
	edits := r.Edits
	r.Sent = Sent{ChatID: m.Chat.ID, MessageID: m.ID, Thread: m.Thread, Text: m.Text, Entities: m.Entities, Preview: what.preview, Edits: edits}
	if m.ReplyTo != nil {
		r.ReplyTo = m.ReplyTo.ID
	}
	if m.Markup != nil {
		r.Buttons = m.Markup.Rows
	}
	s.tell()
}

// editMessage replaces the text of a message of the bot's with its buttons, or the buttons
// alone. Buttons that are not named go away.
func (s *Server) editMessage(p params, text bool) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, wrong, ok := s.target(p)
	if !ok {
		return wrong
	}
	m := c.messages[int(p.int("message_id"))]
	switch {
	case m == nil:
		return bad("message to edit not found")
	case m.From == nil || m.From.ID != s.Bot.ID:
		return bad("message can't be edited")
	}
	what := content{text: m.Text, entities: m.Entities}
	if text {
		what, wrong, ok = read(p)
	} else {
		wrong, ok = what.readMarkup(p)
	}
	if !ok {
		return wrong
	}
	if m.Text == what.text && slices.Equal(m.Entities, what.entities) && sameButtons(m.Markup, what.markup) {
		return bad("message is not modified: specified new message content and reply markup are exactly the same as a current content and reply markup of the message")
	}
	if wrong, ok := s.room(c); !ok {
		return wrong
	}
	m.Text, m.Entities, m.Markup, m.EditDate = what.text, what.entities, what.markup, s.now().Unix()
	for _, r := range s.sent {
		if r.message == m {
			r.Edits++
			s.describe(r, what)
		}
	}
	return reply{result: json.RawMessage(mustJSON(m))} // as it is now
}

func sameButtons(a, b *Keyboard) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(a.Rows, b.Rows, func(x, y []Button) bool { return slices.Equal(x, y) })
}

func (s *Server) answerCallback(p params) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tell()
	id := p["callback_query_id"]
	if answered, known := s.presses[id]; !known || answered {
		return bad("query is too old and response timeout expired or query ID is invalid")
	}
	s.presses[id] = true
	return reply{result: true}
}

func (s *Server) sendChatAction(p params) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, wrong, ok := s.target(p); !ok {
		return wrong
	}
	if p["action"] == "" {
		return reply{code: http.StatusBadRequest, description: "Bad Request: wrong parameter action in request"}
	}
	return reply{result: true}
}
