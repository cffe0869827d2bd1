package slacktest

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Metadata is what an app keeps with a message.
type Metadata struct {
	Type    string            `json:"event_type"`
	Payload map[string]string `json:"event_payload"`
}

// File is an attachment.
type File struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Mimetype string `json:"mimetype"`
}

// message is a message as Slack stores it.
type message struct {
	Type         string          `json:"type"`
	Subtype      string          `json:"subtype,omitempty"`
	User         string          `json:"user,omitempty"`
	BotID        string          `json:"bot_id,omitempty"`
	AppID        string          `json:"app_id,omitempty"`
	Text         string          `json:"text"`
	TS           string          `json:"ts"`
	ThreadTS     string          `json:"thread_ts,omitempty"`
	ParentUserID string          `json:"parent_user_id,omitempty"`
	ReplyCount   int             `json:"reply_count,omitempty"`
	LatestReply  string          `json:"latest_reply,omitempty"`
	Blocks       json.RawMessage `json:"blocks,omitempty"`
	Files        []File          `json:"files,omitempty"`
	Metadata     *Metadata       `json:"metadata,omitempty"`

	Channel string `json:"-"`
	edits   int
}

// copied is a message as it is now: an answer is written when others may change it.
func (m *message) copied() *message {
	c := *m
	return &c
}

// Sent is a message the app posted, as it is now.
type Sent struct {
	Channel, Thread, TS, Text string
	Blocks                    string // JSON; "" without
	Metadata                  Metadata
	Edits                     int
}

// Sent tells every message the app posted.
func (s *Server) Sent() (out []Sent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.sent {
		o := Sent{Channel: m.Channel, Thread: m.ThreadTS, TS: m.TS, Text: m.Text, Blocks: string(m.Blocks), Edits: m.edits}
		if m.Metadata != nil {
			o.Metadata = *m.Metadata
		}
		out = append(out, o)
	}
	return out
}

// keep stores a message in its channel, and what its thread then shows. A thread that
// does not exist makes it one of the channel, as Slack does.
func (s *Server) keep(c *room, m *message) {
	m.TS = s.stamp()
	if m.ThreadTS != "" {
		i := slices.IndexFunc(c.messages, func(p *message) bool { return p.TS == m.ThreadTS })
		if i < 0 {
			m.ThreadTS = ""
		} else {
			p := c.messages[i]
			p.ThreadTS, p.ReplyCount, p.LatestReply = p.TS, p.ReplyCount+1, m.TS
			m.ParentUserID = p.User
		}
	}
	c.messages = append(c.messages, m)
}

func (s *Server) readable(form url.Values) (*room, string) {
	c := s.channels[form.Get("channel")]
	switch {
	case c == nil:
		return nil, "channel_not_found"
	case !c.Member:
		return nil, "not_in_channel"
	}
	return c, ""
}

// history pages through a channel, newest first, without the replies in threads.
func (s *Server) history(form url.Values) answer {
	c, bad := s.readable(form)
	if bad != "" {
		return refusal(bad)
	}
	var all []*message
	for _, m := range slices.Backward(c.messages) {
		if m.ThreadTS == "" || m.ThreadTS == m.TS || m.Subtype == "thread_broadcast" {
			all = append(all, m)
		}
	}
	return s.page(form, nil, all)
}

// replies pages through a thread, oldest first, each page with its root.
func (s *Server) replies(form url.Values) answer {
	c, bad := s.readable(form)
	if bad != "" {
		return refusal(bad)
	}
	var root *message
	var all []*message
	for _, m := range c.messages {
		switch {
		case m.TS == form.Get("ts"):
			root = m
		case m.ThreadTS == form.Get("ts"):
			all = append(all, m)
		}
	}
	if root == nil {
		return refusal("thread_not_found")
	}
	return s.page(form, root, all)
}

// page cuts a page. oldest and latest leave themselves out unless inclusive is set.
func (s *Server) page(form url.Values, root *message, all []*message) answer {
	limit, err := strconv.Atoi(form.Get("limit"))
	if form.Get("limit") == "" {
		limit = 100
	} else if err != nil || limit < 1 || limit > 999 {
		return refusal("invalid_limit")
	}
	if s.PageMost > 0 {
		limit = min(limit, s.PageMost)
	}
	from := 0
	if cur := form.Get("cursor"); cur != "" {
		if from, err = strconv.Atoi(strings.TrimPrefix(cur, "bmV4dF90czox-")); err != nil {
			return refusal("invalid_cursor")
		}
	}
	inclusive := form.Get("inclusive") == "true" || form.Get("inclusive") == "1"
	metadata := !s.HideMetadata && (form.Get("include_all_metadata") == "true" || form.Get("include_all_metadata") == "1")
	in := func(ts string) bool {
		if inclusive && (ts == form.Get("oldest") || ts == form.Get("latest")) {
			return true
		}
		return ts > form.Get("oldest") && (form.Get("latest") == "" || ts < form.Get("latest"))
	}
	all = slices.DeleteFunc(slices.Clone(all), func(m *message) bool { return !in(m.TS) })
	cut := all[min(from, len(all)):min(from+limit, len(all))]
	more := from+limit < len(all)
	a := answer{HasMore: &more}
	if root != nil {
		cut = append([]*message{root}, cut...)
	}
	for _, m := range cut {
		m = m.copied()
		if !metadata {
			m.Metadata = nil
		}
		a.Messages = append(a.Messages, m)
	}
	if more {
		a.Meta = &struct {
			NextCursor string `json:"next_cursor"`
		}{"bmV4dF90czox-" + strconv.Itoa(from+limit)}
	}
	return a
}
