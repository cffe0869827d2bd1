package telegramtest

import (
	"net/http"
	"strconv"
	"time"
)

// chat is what the server knows of one.
type chat struct {
	Chat
	messages map[int]*Message
	threads  map[int]bool
	last     int    // id of the newest message
	refusal  string // why the bot may not write there, if it may not
	movedTo  int64  // the supergroup that it became
	sends    []time.Time
}

func (c *chat) next() int {
	c.last++
	return c.last
}

// meet returns a chat, which the bot knows from now on. The lock is held.
func (s *Server) meet(c Chat) *chat {
	known := s.chats[c.ID]
	if known == nil {
		known = &chat{messages: map[int]*Message{}, threads: map[int]bool{}}
		s.chats[c.ID] = known
	}
	known.Chat = c
	return known
}

// Meet lets the bot write to a chat.
func (s *Server) Meet(c Chat) { s.change(func() { s.meet(c) }) }

// Block makes a person block the bot, or a group throw it out.
func (s *Server) Block(chatID int64) {
	s.change(func() {
		if c := s.chats[chatID]; c != nil {
			c.refusal = kickedFrom(c.Chat)
		}
	})
}

func kickedFrom(c Chat) string {
	if c.Type == Private {
		return "Forbidden: bot was blocked by the user"
	}
	return "Forbidden: bot was kicked from the " + c.Type + " chat"
}

// Flood is how many messages a chat takes in a time; more are answered 429. The zero value
// takes all.
type Flood struct {
	Messages int
	In       time.Duration
}

// Limit sets how many messages each chat takes.
func (s *Server) Limit(f Flood) { s.change(func() { s.flood = f }) }

// room says whether a chat takes one more message, and counts it. The lock is held.
func (s *Server) room(c *chat) (reply, bool) {
	if s.flood.Messages <= 0 {
		return reply{}, true
	}
	now := s.now()
	for len(c.sends) > 0 && now.Sub(c.sends[0]) >= s.flood.In {
		c.sends = c.sends[1:]
	}
	if len(c.sends) >= s.flood.Messages {
		wait := s.flood.In - now.Sub(c.sends[0])
		return RetryAfter(int((wait + time.Second - 1) / time.Second)).reply, false
	}
	c.sends = append(c.sends, now)
	return reply{}, true
}

// target finds the chat of a call that writes. The lock is held.
func (s *Server) target(p params) (*chat, reply, bool) {
	if p["chat_id"] == "" {
		return nil, bad("chat_id is empty"), false
	}
	id, err := strconv.ParseInt(p["chat_id"], 10, 64)
	c := s.chats[id]
	switch {
	case err != nil || c == nil:
		return nil, bad("chat not found"), false
	case c.movedTo != 0:
		r := bad("group chat was upgraded to a supergroup chat")
		r.parameters = &parameters{MigrateTo: c.movedTo}
		return nil, r, false
	case c.refusal != "":
		return nil, reply{code: http.StatusForbidden, description: c.refusal}, false
	}
	return c, reply{}, true
}
