package deadletter

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
)

// TestThreeSourcesAreOneList gives up one thing of each source, decides them and looks at
// what is in the log and the audit log.
func TestThreeSourcesAreOneList(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		event, work, message := h.event("e1"), h.run("x"), h.delivery("hello")
		for _, c := range []struct {
			d        eventlog.DeadLetter
			source   eventlog.Source
			name     string
			attempts int64
		}{{event, eventlog.FromSubscription, reader, 1}, {work, eventlog.FromRun, workKind, 2}, {message, eventlog.FromDelivery, channel, 1}} {
			d := c.d
			if d.Source != c.source || d.Name != c.name || d.Attempts != c.attempts || d.Class != fault.Invalid && d.Source != eventlog.FromRun ||
				!strings.Contains(d.Error, "bad") || d.First == 0 || d.Last < d.First || !strings.HasPrefix(d.ID, "dead_") {
				t.Errorf("%+v", d)
			}
			if got := h.list(eventlog.LetterFilter{Source: d.Source, Name: d.Name, State: eventlog.LetterWaiting}); len(got) != 1 || got[0].ID != d.ID {
				t.Errorf("the list of %s: %+v", d.Source, got)
			}
			if ways := Ways(d); len(ways) < 2 || ways[len(ways)-1].Command != "ombud dlq drop "+d.ID {
				t.Errorf("ways of %s: %+v", d.Source, ways)
			}
		}
		piles, err := h.letters.Unhandled(t.Context())
		if err != nil || len(piles) != 3 || piles[0].Count != 1 {
			t.Errorf("%+v, %v", piles, err)
		}
		for _, what := range []string{"handle", "work", "send"} {
			h.fails(what, false)
		}
		for _, d := range []eventlog.DeadLetter{event, work, message} {
			if err := h.replay(d.ID); err != nil {
				t.Fatal(d.Source, err)
			}
			if got := h.get(d.ID); got.State != eventlog.LetterReplayed || got.Replays != 1 || got.By != "operator" || got.Settled == 0 {
				t.Errorf("after the replay: %+v", got)
			}
			events, audited := h.decisions(d.ID)
			if !slices.Equal(events, []string{KindReplayed}) || !slices.Equal(audited, []string{"replayed"}) {
				t.Errorf("%s: events %q, audited %q", d.Source, events, audited)
			}
			for what, err := range map[string]error{"replay": h.replay(d.ID), "drop": h.drop(d.ID)} {
				if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "was replayed by operator") || !strings.Contains(err.Error(), "nothing to "+what) {
					t.Errorf("%s after the replay of %s: %v", what, d.Source, err)
				}
			}
		}
		if got := h.notes("handled"); got[len(got)-1] != "e1 true" {
			t.Errorf("the event was handed over as %q", got)
		}
		h.wait(work.Ref, run.Completed)
		until(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.sent) == 1 })
		if h.sent[0].PossibleRepeat {
			t.Error("what surely was not sent is marked as a possible repeat")
		}
		if left := h.list(eventlog.LetterFilter{State: eventlog.LetterWaiting}); len(left) != 0 {
			t.Errorf("left: %+v", left)
		}
		if _, err := h.runs.Verify(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestAReplayedRunGoesOnFromItsStepsAndAFreshOneDoesNot.
func TestAReplayedRunGoesOnFromItsStepsAndAFreshOneDoesNot(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		d := h.run("input")
		if err := h.replay(d.ID); err != nil {
			t.Fatal(err)
		}
		again := h.letterOf(d.Ref) // it fails once more
		if again.ID != d.ID || again.Attempts != 4 || again.Replays != 1 || again.First != d.First || again.Settled != 0 {
			t.Errorf("given up again: %+v", again)
		}
		h.fails("work", false)
		if _, err := h.letters.Replay(t.Context(), Request{ID: d.ID[:len(d.ID)-2], By: "operator", Fresh: true}); err != nil {
			t.Fatal(err)
		}
		fresh := h.get(d.ID).Run
		if fresh == d.Ref {
			t.Fatal("no new run")
		}
		h.wait(fresh, run.Completed)
		rec, _, err := h.runs.Get(t.Context(), fresh)
		if err != nil || rec.Kind != workKind || rec.Name != "the name" || rec.Definition != "d1" || rec.Key != "key" || string(rec.Input) != `"input"` {
			t.Errorf("%+v, %v", rec, err)
		}
		cause, err := h.log.ByID(t.Context(), rec.Cause)
		if err != nil || cause.Kind != KindReplayed || !strings.Contains(string(cause.Data), d.Ref) {
			t.Errorf("the cause of the new run does not name the old one: %+v, %v", cause, err)
		}
		want := []string{d.Ref + ` first "input"`, fresh + ` first "input"`, fresh + ` second "input"`}
		if got := h.notes("worked"); !slices.Equal(got, want) {
			t.Errorf("done:\n%q, want\n%q", got, want)
		}
	})
}

// TestAReplayThatFailsLeavesTheLetterWaiting.
func TestAReplayThatFailsLeavesTheLetterWaiting(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		d := h.event("e1")
		handled := len(h.notes("handled"))
		if err := h.replay(d.ID); !fault.Is(err, fault.Invalid) {
			t.Errorf("%v", err)
		}
		if got := h.get(d.ID); got.State != eventlog.LetterWaiting || got.Attempts != 2 || got.Replays != 0 {
			t.Errorf("%+v", got)
		}
		if events, audited := h.decisions(d.ID); !slices.Equal(events, []string{KindRefused}) || !slices.Equal(audited, []string{"invalid"}) {
			t.Errorf("events %q, audited %q", events, audited)
		}
		if n := len(h.notes("handled")); n != handled {
			t.Errorf("rows of a handler that failed: %d", n-handled)
		}
	})
}

// TestADoubtfulDeliveryIsSentAgainAsAPossibleRepeat.
func TestADoubtfulDeliveryIsSentAgainAsAPossibleRepeat(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.how = fault.New(fault.Timeout, "it is bad: no answer")
		d := h.delivery("hello")
		if d.Title != "uncertain" {
			t.Fatalf("%+v", d)
		}
		h.fails("send", false)
		if err := h.replay(d.ID); err != nil {
			t.Fatal(err)
		}
		until(t, func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.sent) == 1 })
		if !h.sent[0].PossibleRepeat {
			t.Error("it is not marked")
		}
		other := h.delivery("other")
		if _, err := h.outbox.Decide(t.Context(), other.Ref, "delivered", "adapter", "settled late"); err != nil {
			t.Fatal(err)
		}
		if got := h.get(other.ID); got.State != eventlog.LetterReplayed {
			t.Errorf("decided elsewhere: %+v", got)
		}
	})
}

// TestWhatCannotBeDecidedSaysWhy.
func TestWhatCannotBeDecidedSaysWhy(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		event, work, message := h.event("e1"), h.run("x"), h.delivery("hello")
		for _, id := range []string{"dead_x", "", event.ID + "0"} {
			if err := h.replay(id); !fault.Is(err, fault.NotFound) {
				t.Errorf("replay %q: %v", id, err)
			}
			if err := h.drop(id); !fault.Is(err, fault.NotFound) {
				t.Errorf("drop %q: %v", id, err)
			}
		}
		if err := h.replay("dead_"); !fault.Is(err, fault.Invalid) {
			t.Errorf("several: %v", err)
		}
		if _, err := h.letters.Replay(t.Context(), Request{ID: event.ID, By: "operator", Fresh: true}); !fault.Is(err, fault.Invalid) {
			t.Errorf("an event afresh: %v", err)
		}
		h.mu.Lock()
		h.held = fault.New(fault.Waiting, "held")
		h.mu.Unlock()
		for _, d := range []eventlog.DeadLetter{event, work, message} {
			if err := h.replay(d.ID); !fault.Is(err, fault.Waiting) {
				t.Errorf("replay of %s while held: %v", d.Source, err)
			}
			if err := h.drop(d.ID); err != nil { // moves rows only
				t.Errorf("drop of %s: %v", d.Source, err)
			}
			if events, audited := h.decisions(d.ID); !slices.Equal(events, []string{KindDropped}) || !slices.Equal(audited, []string{"dropped"}) {
				t.Errorf("%s: events %q, audited %q", d.Source, events, audited)
			}
		}
		h.mu.Lock()
		h.held = nil
		h.mu.Unlock()
		for _, d := range []eventlog.DeadLetter{event, work, message} {
			for what, err := range map[string]error{"replay": h.replay(d.ID), "drop": h.drop(d.ID)} {
				if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "was dropped by operator") {
					t.Errorf("%s of a dropped %s: %v", what, d.Source, err)
				}
			}
		}
		if it, err := h.outbox.Get(t.Context(), message.Ref); err != nil || it.State != "skipped" {
			t.Errorf("the message is %s, %v", it.State, err)
		}
		h.log.Stop()
		gone := h.gone(t)
		if err := h.replay(gone.ID); !fault.Is(err, fault.Unavailable) {
			t.Errorf("without its subscription: %v", err)
		}
	})
}

// gone is the letter of a subscription that does not run any more.
func (h *house) gone(t *testing.T) eventlog.DeadLetter {
	t.Helper()
	h.start(t.Context())
	d := h.event("e9")
	h.log.Stop()
	return d
}

// TestARunThatSomebodyHearsOfMakesNoLetter: a parent that works, or has ended.
func TestARunThatSomebodyHearsOfMakesNoLetter(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		parent, err := h.runs.Start(t.Context(), run.Spec{Kind: workKind, At: h.db.Time() + time.Hour.Microseconds(), Input: "parent"})
		if err != nil {
			t.Fatal(err)
		}
		h.fails("work", true)
		child := func() string {
			id, err := h.runs.Start(t.Context(), run.Spec{Kind: workKind, Parent: parent, Input: "child"})
			if err != nil {
				t.Fatal(err)
			}
			h.wait(id, run.Failed)
			return id
		}
		child()
		if got := h.list(eventlog.LetterFilter{}); len(got) != 0 {
			t.Errorf("its parent hears of it: %+v", got)
		}
		if err := h.runs.Cancel(t.Context(), parent, "test", ""); err != nil {
			t.Fatal(err)
		}
		h.letterOf(child())
	})
}

// TestLettersAreKeptAsLongAsTheyAreMeantTo.
func TestLettersAreKeptAsLongAsTheyAreMeantTo(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		settled, waiting := h.event("e1"), h.event("e2")
		if err := h.drop(settled.ID); err != nil {
			t.Fatal(err)
		}
		left := func() (out []string) {
			t.Helper()
			if err := h.letters.Forget(context.Background()); err != nil {
				t.Fatal(err)
			}
			for _, d := range h.list(eventlog.LetterFilter{}) {
				out = append(out, d.Ref)
			}
			return out
		}
		h.ahead.Store(int64(29 * 24 * time.Hour))
		if got := left(); !slices.Equal(got, []string{"e1", "e2"}) {
			t.Errorf("after 29 days: %q", got)
		}
		h.ahead.Store(int64(31 * 24 * time.Hour))
		if got := left(); !slices.Equal(got, []string{"e2"}) {
			t.Errorf("after 31 days: %q", got)
		}
		h.letters = New(h.letters.Deps, Options{Keep: 40 * 24 * time.Hour})
		if got := left(); !slices.Equal(got, []string{"e2"}) {
			t.Errorf("kept for 40 days, after 31: %q", got)
		}
		h.ahead.Store(int64(41 * 24 * time.Hour))
		if got := left(); len(got) != 0 {
			t.Errorf("kept for 40 days, after 41: %q (%s)", got, waiting.ID)
		}
	})
}
