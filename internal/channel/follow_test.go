package channel

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

// streams is a site whose operator sees answers as they are written.
func streams(t *testing.T, s *site) *editing {
	t.Helper()
	e := &editing{network: s.net}
	s.net.editing = e
	s.talks.run = "run_1"
	s.add(map[string]string{"stream": "on", "strangers": "all"})
	code, err := s.people.Start(t.Context(), "net", "operator")
	if err != nil {
		t.Fatal(err)
	}
	s.hear(Received{ID: "0", Chat: "dm", Sender: "ann", Text: "/pair " + code.Text})
	return e
}

// The message that shows an answer as it is written becomes the answer's first piece: it is
// there once.
func TestAnAnswerIsShownAsItIsWritten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		e := streams(t, s)
		s.hear(Received{ID: "1", Chat: "dm", Sender: "ann", Text: "go"})
		s.talks.notes <- agent.Note{Text: "Hel"}
		s.until("it is shown", func() bool { return slices.Equal(s.net.texts(), []string{"Hel"}) })
		s.talks.notes <- agent.Note{Text: "lo"}
		s.until("it is shown as it grows", func() bool { return e.last() == "Hello" })
		it := s.ended(s.say("Hello. World", func(m *outbox.Message) { m.Run = "run_1" }))
		if it.State != outbox.Delivered || e.last() != "Hello." || !slices.Equal(s.net.texts(), []string{"Hel", "World"}) {
			t.Errorf("%s, edited to %q, sent %q", it.State, e.last(), s.net.texts())
		}
		s.talks.over.Store(true)
	})
}

// What a turn sends beside its answer is no part of it: it stays, wherever it goes.
func TestWhatATurnSendsBesideItsAnswerIsNoPartOfThePreview(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		e := streams(t, s)
		s.hear(Received{ID: "1", Chat: "dm", Sender: "ann", Text: "go"})
		s.talks.notes <- agent.Note{Text: "Hel"}
		s.until("it is shown", func() bool { return slices.Equal(s.net.texts(), []string{"Hel"}) })
		for n, text := range []string{"beside", "elsewhere"} {
			s.ended(s.say(text, func(m *outbox.Message) { m.Run, m.Ordinal, m.Conversation = "run_1", n+1, "chat "+text }))
		}
		s.ended(s.say("Hello", func(m *outbox.Message) { m.Run = "run_1" }))
		if !slices.Equal(s.net.texts(), []string{"Hel", "beside", "elsewhere"}) || e.last() != "Hello" || len(e.edits) != 1 {
			t.Errorf("edited to %+v, sent %q", e.edits, s.net.texts())
		}
		s.talks.over.Store(true)
	})
}

// A network that asks to wait is left alone: nothing is shown meanwhile, and the answer comes
// when the time is over.
func TestANetworkThatAsksToWaitIsLeftAlone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		e := streams(t, s)
		s.hear(Received{ID: "2", Chat: "dm", Sender: "ann", Text: "go"})
		s.talks.notes <- agent.Note{Text: "Hel"}
		s.until("it is shown", func() bool { return len(s.net.texts()) == 1 })
		l, err := s.line("net")
		if err != nil {
			t.Fatal(err)
		}
		e.mu.Lock()
		e.wrong = &outbox.RetryAfter{After: time.Hour, Err: fault.New(fault.Unavailable, "429")}
		e.mu.Unlock()
		s.talks.notes <- agent.Note{Text: "lo"}
		s.until("the chat is shut", func() bool { return l.shutFor(Place{Chat: "dm"}) > 0 })
		e.mu.Lock()
		e.wrong = nil
		e.mu.Unlock()
		s.talks.notes <- agent.Note{Text: " there"}
		l.shut(Place{Chat: "chat1", Thread: "t"}, &outbox.RetryAfter{After: time.Hour, Err: fault.New(fault.Unavailable, "429")})
		id := s.say("Hello", nil)
		s.until("it was tried", func() bool { return s.item(id).Error != "" })
		if it := s.item(id); it.State != outbox.Queued || it.NextAt < s.db.Time()+50*60*1e6 || len(s.net.texts()) != 1 || e.last() != "" {
			t.Errorf("%+v; sent %q, edited to %q", it, s.net.texts(), e.last())
		}
		s.talks.over.Store(true)
	})
}

// A preview that is gone is no reason to lose the answer.
func TestAnAnswerWhosePreviewIsGoneIsAMessageOfItsOwn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		e := streams(t, s)
		s.hear(Received{ID: "1", Chat: "dm", Sender: "ann", Text: "go"})
		s.talks.notes <- agent.Note{Text: "Hel"}
		s.until("it is shown", func() bool { return len(s.net.texts()) == 1 })
		e.mu.Lock()
		e.wrong = fault.New(fault.NotFound, "message to edit not found")
		e.mu.Unlock()
		it := s.ended(s.say("Hello", func(m *outbox.Message) { m.Run = "run_1" }))
		if it.State != outbox.Delivered || !slices.Equal(s.net.texts(), []string{"Hel", "Hello"}) {
			t.Errorf("%s, sent %q", it.State, s.net.texts())
		}
		s.talks.over.Store(true)
	})
}

// What is not decided yet is shown to the operator alone.
func TestNobodyElseSeesAnAnswerAsItIsWritten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *site) {
		streams(t, s)
		s.hear(Received{ID: "1", Chat: "x", Sender: "eve", Text: "go"})
		s.hear(Received{ID: "2", Chat: "dm2", Sender: "ann", Text: "go"})
		select {
		case s.talks.notes <- agent.Note{Text: "secret"}:
		default:
		}
		it := s.ended(s.say("done", func(m *outbox.Message) { m.Run = "run_1" }))
		if it.State != outbox.Delivered || strings.Contains(strings.Join(s.net.texts(), " "), "secret") {
			t.Errorf("%s, sent %q", it.State, s.net.texts())
		}
		s.talks.over.Store(true)
	})
}
