package telegramtest

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"
)

// keep is how long the Bot API keeps an update that nobody fetched.
const keep = 24 * time.Hour

// ahead is how far behind the newest update an offset may lie. One that lies farther away
// is not believed, and the queue is read from its head: ids begin anew at random after a
// week without updates.
const ahead = 10

// poll is a getUpdates that waits.
type poll struct {
	offset int64
	limit  int
	answer chan reply // buffered: whoever ends the poll does not wait
}

func conflict(what string) reply {
	return reply{code: http.StatusConflict, description: "Conflict: " + what}
}

func (s *Server) getUpdates(ctx context.Context, p params) reply {
	offset, limit, timeout := p.int("offset"), int(p.int("limit")), time.Duration(p.int("timeout"))*time.Second
	if limit < 1 || limit > 100 {
		limit = 100
	}
	w := &poll{offset: offset, limit: limit, answer: make(chan reply, 1)}
	out, waits := s.startPoll(w, p, min(timeout, 50*time.Second))
	if !waits {
		return out
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case out = <-w.answer:
		return out
	case <-timer.C:
	case <-ctx.Done():
	case <-s.closed:
	}
	s.change(func() {
		if s.poll == w {
			s.poll = nil
		}
	})
	select {
	case out = <-w.answer: // it was answered while it ended
		return out
	default:
		return reply{result: []json.RawMessage{}}
	}
}

// startPoll answers a poll at once, or makes it the one that waits.
func (s *Server) startPoll(w *poll, p params, timeout time.Duration) (reply, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tell()
	if s.webhook != "" {
		return conflict("can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"), false
	}
	s.offsets = append(s.offsets, w.offset)
	var allowed []string
	if found, err := p.decode("allowed_updates", &allowed); err == nil && found {
		s.allowed = allowed
	}
	found := s.take(w.offset, w.limit)
	if len(found) > 0 || timeout <= 0 {
		return reply{result: found}, false
	}
	if s.poll != nil {
		s.poll.answer <- conflict("terminated by other getUpdates request; make sure that only one bot instance is running")
	}
	s.poll = w
	return reply{}, true
}

// take forgets what an offset confirms and returns what waits behind it.
func (s *Server) take(offset int64, limit int) []json.RawMessage {
	old := s.now().Add(-keep).Unix()
	s.updates = slices.DeleteFunc(s.updates, func(u Update) bool { return u.at < old })
	if offset < 0 { // counted from the end
		offset += s.nextID
	}
	if offset <= s.nextID+ahead {
		s.updates = slices.DeleteFunc(s.updates, func(u Update) bool { return u.ID < offset })
	}
	out := []json.RawMessage{}
	for _, u := range s.updates[:min(limit, len(s.updates))] {
		out = append(out, u.raw)
	}
	return out
}

// wanted reports whether a bot hears of a kind of update: by default of all but changes of
// other members.
func (s *Server) wanted(kind string) bool {
	if len(s.allowed) == 0 {
		return kind != "chat_member"
	}
	return slices.Contains(s.allowed, kind)
}

// add puts an update into the queue and wakes the poll that waits. The lock is held.
func (s *Server) add(u Update) int64 {
	if !s.wanted(u.kind) {
		return 0
	}
	u.ID, u.at = s.nextID, s.now().Unix()
	s.nextID++
	if u.raw == nil {
		u.raw = mustJSON(u)
	} else {
		u.raw = withID(u.raw, u.ID)
	}
	s.updates = append(s.updates, u)
	if w := s.poll; w != nil {
		s.poll = nil
		w.answer <- reply{result: s.take(w.offset, w.limit)}
	}
	s.tell()
	return u.ID
}

// withID adds its id to an update that a test wrote as JSON. What is no JSON object goes
// out as it is.
func withID(raw []byte, id int64) []byte {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || fields["update_id"] != nil {
		return raw
	}
	fields["update_id"] = mustJSON(id)
	return mustJSON(fields)
}

func mustJSON(v any) []byte {
	out, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types are ours
	}
	return out
}

// Raw puts an update of a kind, such as message, into the queue that is the given JSON: an
// object, to which its update_id is added. It returns that id.
func (s *Server) Raw(kind, object string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.add(Update{kind: kind, raw: []byte(object)})
}

// Renumber makes the ids of the next updates begin at a number, as after a week of silence.
func (s *Server) Renumber(next int64) { s.change(func() { s.nextID = next }) }

// Waiting is how many updates are not confirmed.
func (s *Server) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.updates)
}

// Polling reports whether a long poll waits.
func (s *Server) Polling() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.poll != nil
}

// Offsets are those of all polls so far that were not refused.
func (s *Server) Offsets() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.offsets)
}

// Webhook makes another program's webhook the receiver of the updates; "" takes it away.
func (s *Server) Webhook(url string) {
	s.setWebhook(url != "", params{"url": url})
}

func (s *Server) setWebhook(set bool, p params) reply {
	s.change(func() {
		s.webhook = ""
		if set {
			s.webhook = p["url"]
		}
		if p.bool("drop_pending_updates") {
			s.updates = nil
		}
		if w := s.poll; w != nil && s.webhook != "" {
			s.poll = nil
			w.answer <- conflict("terminated by setWebhook request")
		}
	})
	return reply{result: true}
}

type webhookInfo struct {
	URL     string `json:"url"`
	Custom  bool   `json:"has_custom_certificate"`
	Pending int    `json:"pending_update_count"`
}

func (s *Server) webhookInfo() reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	return reply{result: webhookInfo{URL: s.webhook, Pending: len(s.updates)}}
}
