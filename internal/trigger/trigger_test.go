package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
)

// value is a key of a trigger's payload as text.
func (tr Trigger) value(key string) string {
	text, _ := lookUp(objectOf(tr.Payload), key)
	return text
}

func TestAnEventStartsWhatListensWithItsPayload(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.replace(on("all", events("mail.*")), on("one", On{Event: &EventFilter{Kinds: []string{"mail.came"}, Where: map[string]Match{"from.name": equal("ada")}}}))
		h.live()
		h.emit("mail:1", "mail.went", map[string]any{"from": map[string]string{"name": "ada"}})
		id := h.emit("mail:1", "mail.came", map[string]any{"from": map[string]string{"name": "ada"}, "size": 3})
		h.emit("mail:1", "mail.came", map[string]any{"from": map[string]string{"name": "bob"}})
		h.emit("mail:1", "post.came", nil)
		h.until(func() bool { return len(h.works()) == 4 })
		h.settled()
		var one []Trigger
		for _, tr := range h.works() {
			if tr.Target == "loop:one" {
				one = append(one, tr)
			}
		}
		if len(one) != 1 || len(h.works()) != 4 {
			t.Fatalf("started: %+v", h.works())
		}
		tr := one[0]
		if tr.Kind != ByEvent || tr.Event != id || tr.EventKind != "mail.came" || tr.value("event_kind") != "mail.came" || tr.value("size") != "3" {
			t.Errorf("the trigger is %+v", tr)
		}
		if !tr.Label.Tainted() || !slices.Contains(tr.Label.Audiences, label.OperatorOnly) {
			t.Errorf("the label of others' words is %s", tr.Label)
		}
	})
}

// KARMAX dropped what came while a loop was at work.
func TestEventsThatArriveWhileItRunsAreHandledAfterItInOrder(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		begun, release := make(chan struct{}, 100), make(chan struct{})
		var atOnce, most atomic.Int64
		h.work = func(ctx context.Context, _ *run.Run, _ Trigger) error {
			most.Store(max(most.Load(), atOnce.Add(1)))
			defer atOnce.Add(-1)
			begun <- struct{}{}
			<-release
			return nil
		}
		h.replace(on("slow", events("job.came")))
		h.live()
		h.emit("job:0", "job.came", map[string]int{"n": 0})
		<-begun
		for n := 1; n <= 5; n++ {
			h.emit(fmt.Sprint("job:", n), "job.came", map[string]int{"n": n})
		}
		h.until(func() bool { return h.lag() == 0 })
		close(release)
		h.until(func() bool { return len(h.works()) == 6 })
		for n, tr := range h.works() {
			if tr.value("n") != fmt.Sprint(n) {
				t.Errorf("run %d has payload %s", n, tr.Payload)
			}
		}
		if most.Load() != 1 {
			t.Errorf("%d runs of one target at once", most.Load())
		}
	})
}

// KARMAX retried with kind "retry" and no payload.
func TestARetryKeepsItsTrigger(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		var seen []string
		h.work = func(_ context.Context, r *run.Run, tr Trigger) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			seen = append(seen, tr.Kind+" "+tr.value("n"))
			if len(seen) < 3 {
				return errors.New("not yet")
			}
			return nil
		}
		h.replace(on("flaky", events("job.came")))
		h.live()
		h.emit("job:1", "job.came", map[string]int{"n": 7})
		h.until(func() bool { return len(h.works()) == 1 })
		if want := []string{"event 7", "event 7", "event 7"}; !slices.Equal(seen, want) {
			t.Errorf("the attempts saw %q", seen)
		}
	})
}

func TestAPersonATimerAndAScheduleStartIt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.replace(on("x", On{Timer: true}, On{Schedule: &Schedule{When: "@every 1h", Zone: "UTC"}}, On{Schedule: &Schedule{Name: "nightly", When: "0 3 * * *", Zone: "UTC"}}))
		h.live()
		id, err := h.Manual(t.Context(), "loop:x", json.RawMessage(`{"a":1}`), "operator")
		if err != nil || id == "" {
			t.Fatal(id, err)
		}
		err = h.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return h.ArmTx(ctx, tx, Wake{Target: "loop:x", ID: "tick", At: tx.Now() + 1, Payload: json.RawMessage(`{"b":2}`), Label: label.Of(label.Own, label.OperatorOnly)})
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.times.Run(t.Context(), "loop:x/nightly", "operator"); err != nil {
			t.Fatal(err)
		}
		h.until(func() bool { return len(h.works()) == 3 })
		got := map[string]Trigger{}
		for _, tr := range h.works() {
			got[tr.Kind] = tr
		}
		for kind, key := range map[string]string{ByHand: "a", ByTimer: "b", BySchedule: "job_id"} {
			if tr := got[kind]; tr.value(key) == "" || tr.Event == "" || tr.Root != tr.Event || tr.Depth != 0 || tr.Label.Tainted() {
				t.Errorf("%s: %+v", kind, tr)
			}
		}
		if got[ByTimer].Name != "tick" || got[ByTimer].value("timer_id") != "tick" || got[BySchedule].Name != "nightly" || got[ByHand].By != "operator" {
			t.Errorf("names: %+v", got)
		}
		if x, err := h.times.Get(t.Context(), "loop:x/1"); err != nil || x.Next == 0 {
			t.Errorf("the first schedule: %+v %v", x, err)
		}
		h.replace()
		if _, err := h.times.Get(t.Context(), "loop:x/nightly"); !fault.Is(err, fault.NotFound) {
			t.Errorf("the schedule of a target that is gone: %v", err)
		}
	})
}

// A reminder may have the words of a page, and an error those of whoever sent it: a run
// that hears of them has read them.
func TestWhatAnEventTellsIsTakenForOthersWords(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.work = func(_ context.Context, _ *run.Run, tr Trigger) error {
			if tr.Kind == ByTimer {
				return fault.New(fault.Invalid, "what the page says")
			}
			return nil
		}
		h.replace(on("sets", On{Timer: true}), on("hears", events("timer.fired", "run.failed")))
		h.live()
		err := h.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return h.ArmTx(ctx, tx, Wake{Target: "loop:sets", ID: "soon", At: tx.Now() + 1, Payload: json.RawMessage(`{"text":"what the page says"}`), Label: label.Of(label.Untrusted("web"), label.OperatorOnly)})
		})
		if err != nil {
			t.Fatal(err)
		}
		heard := func() (out []Trigger) {
			for _, tr := range h.works() {
				if tr.Target == "loop:hears" {
					out = append(out, tr)
				}
			}
			return out
		}
		h.until(func() bool { return len(heard()) == 2 })
		for _, tr := range heard() {
			if !tr.Label.Tainted() || !strings.Contains(string(tr.Payload), "what the page says") {
				t.Errorf("%s is labelled %s: %s", tr.EventKind, tr.Label, tr.Payload)
			}
		}
	})
}

func TestANewTargetHearsOnlyWhatComesAndAnOldOneAllOfIt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.replace(on("old", events("job.came")))
		if err := h.log.Start(t.Context(), h.Subscription()); err != nil { // from here on it is read
			t.Fatal(err)
		}
		h.log.Stop()
		h.emit("job:1", "job.came", nil)
		changed := on("old", events("job.came"))
		changed.Definition = "v2"
		h.replace(changed, on("new", events("job.came")))
		h.emit("job:2", "job.came", nil)
		h.live()
		h.until(func() bool { return len(h.works()) == 3 })
		h.settled()
		count := map[string]int{}
		for _, tr := range h.works() {
			count[tr.Target]++
		}
		if count["loop:old"] != 2 || count["loop:new"] != 1 {
			t.Errorf("started: %v", count)
		}
	})
}

// KARMAX's disable left the events, the webhooks and the recipes on.
func TestAPausedTargetStartsNothingAndSaysWhatCame(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		x := on("x", events("job.came"), On{Timer: true}, On{Schedule: &Schedule{Name: "s", When: "@every 1h", Zone: "UTC"}})
		h.replace(x)
		h.live()
		if _, err := h.Pause(t.Context(), "loop:x", "operator"); err != nil {
			t.Fatal(err)
		}
		x.Definition = "v2"
		h.replace(x) // a new definition does not wake it
		h.emit("job:1", "job.came", nil)
		err := h.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			if err := h.ArmTx(ctx, tx, Wake{Target: "loop:x", ID: "tick", At: tx.Now() + 1}); err != nil {
				return err
			}
			id, err := h.StartTx(ctx, tx, "loop:x", Trigger{Kind: ByRun})
			if id != "" {
				t.Errorf("it was started: %s", id)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.Manual(t.Context(), "loop:x", nil, "operator")
		wantClass(t, err, fault.Conflict)
		_, err = h.times.Run(t.Context(), "loop:x/s", "operator")
		wantClass(t, err, fault.Conflict)
		h.until(func() bool { return h.standing().Withheld == 3 })
		if n := len(h.works()); n > 0 {
			t.Fatalf("%d runs of a paused target", n)
		}
		if _, err := h.Force(t.Context(), "loop:x", nil, "operator"); err != nil {
			t.Fatal(err)
		}
		h.until(func() bool { return len(h.works()) == 1 })
		if _, err := h.Resume(t.Context(), "loop:x", "operator"); err != nil {
			t.Fatal(err)
		}
		if told := strings.Join(h.tells(), "\n"); !strings.Contains(told, "3 triggers started nothing") {
			t.Errorf("told: %q", told)
		}
		h.emit("job:2", "job.came", nil)
		h.until(func() bool { return len(h.works()) == 2 })
	})
}

// An editor that saves by renaming, or a checkout of another branch, takes a file away and
// brings it back.
func TestAPausedTargetThatGoesAndComesBackIsStillPaused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		x := on("x", events("job.came"), On{Schedule: &Schedule{Name: "s", When: "@every 1h", Zone: "UTC"}})
		h.replace(x)
		h.live()
		if _, err := h.Pause(t.Context(), "loop:x", "operator"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			h.replace()
			_, err := h.Manual(t.Context(), "loop:x", nil, "operator")
			wantClass(t, err, fault.NotFound)
			_, err = h.Pause(t.Context(), "loop:x", "operator")
			wantClass(t, err, fault.NotFound)
			for _, owner := range []string{"", "loop"} {
				if all, err := h.List(t.Context(), owner); err != nil || len(all) > 0 {
					t.Errorf("of %q there is %+v, %v", owner, all, err)
				}
			}
			h.replace(x)
			if s := h.standing(); s.PausedBy != "operator" || s.Owner != "loop" {
				t.Errorf("it came back as %+v", s)
			}
		}
		h.emit("job:1", "job.came", nil)
		h.until(func() bool { return h.standing().Withheld == 1 })
		if _, err := h.Resume(t.Context(), "loop:x", "operator"); err != nil {
			t.Fatal(err)
		}
		h.replace()
		h.replace(x)
		h.emit("job:2", "job.came", nil)
		h.until(func() bool { return len(h.works()) == 1 })
	})
}

func (h *house) standing() (s Standing) {
	h.t.Helper()
	err := h.db.Read(h.t.Context(), func(ctx context.Context, q db.Q) (err error) {
		s, err = h.GetIn(ctx, q, "loop:x")
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

func TestATargetThatIsGoneLeavesItsRunsToTheirDefinition(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		begun, release := make(chan struct{}, 10), make(chan struct{})
		h.work = func(context.Context, *run.Run, Trigger) error {
			begun <- struct{}{}
			<-release
			return nil
		}
		h.replace(on("x", events("job.came"), On{Timer: true}))
		h.live()
		h.emit("job:1", "job.came", nil)
		h.emit("job:2", "job.came", nil)
		<-begun
		h.until(func() bool { return h.lag() == 0 })
		h.replace()
		h.emit("job:3", "job.came", nil)
		close(release)
		h.until(func() bool { return len(h.works()) == 2 })
		list, err := h.runs.List(t.Context(), run.Filter{Kind: workKind})
		if err != nil || len(list) != 2 || list[0].Definition != "v1" || list[1].Definition != "v1" {
			t.Errorf("runs: %+v %v", list, err)
		}
		err = h.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return h.ArmTx(ctx, tx, Wake{Target: "loop:x", ID: "late", At: tx.Now() + 1})
		})
		if err != nil {
			t.Fatal(err)
		}
		h.until(func() bool {
			_, err := h.log.Last(t.Context(), "trigger:loop:x", "trigger.dropped")
			return err == nil
		})
	})
}

func TestAHeldInstanceStartsNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.held = fault.New(fault.Unavailable, "held")
		h.replace(on("x", events("job.came")))
		h.live()
		_, err := h.Manual(t.Context(), "loop:x", nil, "operator")
		wantClass(t, err, fault.Unavailable)
		h.emit("job:1", "job.came", nil)
		h.until(func() bool { return h.lag() == 0 })
		list, err := h.runs.List(t.Context(), run.Filter{Kind: workKind})
		if err != nil || len(list) != 1 || list[0].State != run.Queued {
			t.Fatalf("runs: %+v %v", list, err)
		}
		h.mu.Lock()
		h.held = nil
		h.mu.Unlock()
		h.until(func() bool { return len(h.works()) == 1 })
	})
}

func TestAPoisonedEventDelaysOnlyItsStream(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.replace(on("good", events("job.came")))
		h.live()
		came := func(stream, n string) eventlog.New {
			return eventlog.New{Stream: stream, Kind: "job.came", Actor: "test", Data: map[string]string{"n": n}, Expect: eventlog.Any}
		}
		_, err := h.log.Append(t.Context(), // at once: the poisoned one is given up soon
			eventlog.New{Stream: "job:a", Kind: run.TimerFired, Actor: "test", Data: "no timer", Expect: eventlog.Any},
			came("job:a", "behind it"), came("job:b", "beside it"))
		if err != nil {
			t.Fatal(err)
		}
		h.until(func() bool { return len(h.works()) == 2 })
		h.settled()
		var order []string
		for _, tr := range h.works() {
			order = append(order, tr.value("n"))
		}
		if !slices.Equal(order, []string{"beside it", "behind it"}) {
			t.Errorf("order: %q", order)
		}
	})
}

// A loop that listens to what its own runs do must not run for ever.
func TestRunsThatStartEachOtherAreCutOffAndTold(t *testing.T) {
	t.Parallel()
	for name, many := range map[string]int{"one by one": 1, "each more than one": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, h *house) {
				h.work = func(ctx context.Context, r *run.Run, tr Trigger) error {
					for range many {
						_, err := h.log.Append(ctx, eventlog.New{Stream: "tool", Kind: "tool.called", Actor: "test", Trace: r.ID(), Expect: eventlog.Any})
						if err != nil {
							return err
						}
					}
					return nil
				}
				h.replace(on("echo", events("tool.called")))
				h.live()
				h.emit("tool", "tool.called", nil)
				h.until(func() bool { return len(h.letters()) > 0 })
				h.settled()
				n := len(h.works())
				if many == 1 && n != MaxDepth+1 || n > MaxFamily+1 || n < MaxDepth {
					t.Errorf("%d runs", n)
				}
				if dead := h.letters(); len(dead) != 1 || !strings.Contains(dead[0].Error, "loop:echo") || dead[0].Name != subscription {
					t.Errorf("dead letters: %+v", dead)
				}
				h.work = nil
				h.emit("tool", "tool.called", nil) // another cause
				h.until(func() bool { return len(h.works()) == n+1 })
			})
		})
	}
}

func (h *house) letters() []eventlog.DeadLetter {
	h.t.Helper()
	list, err := h.log.DeadLetters(h.t.Context(), eventlog.LetterFilter{})
	if err != nil {
		h.t.Fatal(err)
	}
	return list
}

func TestARunThatStartsItsOwnTargetIsRefused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		deepest := make(chan error, 1)
		h.work = func(ctx context.Context, r *run.Run, tr Trigger) error {
			return h.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
				_, err := h.StartTx(ctx, tx, "loop:again", Trigger{Kind: ByRun, Parent: r.ID()})
				if err != nil {
					deepest <- err
				}
				return nil
			})
		}
		h.replace(on("again"))
		h.live()
		if _, err := h.Manual(t.Context(), "loop:again", nil, "operator"); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-deepest:
			wantClass(t, err, fault.Conflict)
		case <-time.After(patience):
			t.Fatal("it goes on for ever")
		}
		h.settled()
		if n := len(h.works()); n != MaxDepth+1 {
			t.Errorf("%d runs", n)
		}
	})
}

func TestWhatCannotBeStartedIsRefusedByName(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		for want, x := range map[string]Target{
			"is no name":            {Name: "recipe:x", RunKind: workKind},
			"is no kind of event":   on("x", events("Mail Came")),
			"tell of the starting":  on("x", events("trigger.manual")),
			"exactly one of sched":  on("x", On{}),
			"exactly one of equal":  on("x", On{Event: &EventFilter{Kinds: []string{"a"}, Where: map[string]Match{"k": {}}}}),
			"what a run of it is":   {Name: "loop:x"},
			"while it is busy":      {Name: "loop:x", RunKind: workKind, Busy: "drop"},
			"loop:x is there twice": on("x"),
			"25 * * *":              on("x", On{Schedule: &Schedule{When: "0 25 * * *"}}),
			"would never fire":      on("x", On{Schedule: &Schedule{When: "0 0 30 2 *", Zone: "UTC"}}),
			"Europe/Nowhere":        on("x", On{Schedule: &Schedule{When: "@daily", Zone: "Europe/Nowhere"}}),
		} {
			err := h.tryReplace("loop", on("first"), x, x)
			if err == nil || !strings.Contains(err.Error(), want) || !fault.Is(err, fault.Invalid) {
				t.Errorf("want %q, got %v", want, err)
			}
		}
		if list, err := h.List(t.Context(), ""); err != nil || len(list) != 0 {
			t.Errorf("something was kept: %+v %v", list, err)
		}
	})
}

func TestConditionsOnPayloads(t *testing.T) {
	t.Parallel()
	yes, no, begin := true, false, "ab"
	payload := objectOf(json.RawMessage(`{"s":"abc","n":1.50,"b":true,"z":null,"o":{"k":"v"},"dotted.key":"d"}`))
	for i, c := range []struct {
		key  string
		m    Match
		want bool
	}{
		{"s", equal("abc"), true}, {"s", equal("ab"), false}, {"n", equal("1.50"), true}, {"n", equal("1.5"), false}, {"b", equal("true"), true},
		{"z", equal("null"), true}, {"o.k", equal("v"), true}, {"o.x", equal(""), false}, {"dotted.key", equal("d"), true},
		{"s", Match{OneOf: []string{"x", "abc"}}, true}, {"s", Match{OneOf: []string{}}, false}, {"s", Match{Prefix: &begin}, true},
		{"n", Match{Prefix: &begin}, false}, {"z", Match{Exists: &yes}, true}, {"q", Match{Exists: &yes}, false}, {"q", Match{Exists: &no}, true},
	} {
		f := EventFilter{Kinds: []string{"a.b"}, Where: map[string]Match{c.key: c.m}}
		if f.matches("a.b", payload) != c.want {
			t.Errorf("%d: %s %+v is not %v", i, c.key, c.m, c.want)
		}
	}
	for pattern, want := range map[string]bool{"*": true, "a.*": true, "a.b": true, "a": false, "b.*": false, "a.b.*": false} {
		if covers(pattern, "a.b") != want {
			t.Errorf("%s covers a.b: %v", pattern, !want)
		}
	}
	if covers("*", "trigger.manual") {
		t.Error("our own events start something")
	}
}

// What is listened to changes while the log is read. Whoever listens from one commit on
// hears what the next commit brings, however close it is.
func TestAListenerHearsWhatComesRightAfterIt(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.live()
		const rounds = 40
		for i := range rounds {
			kind := fmt.Sprintf("kind.n%d", i)
			h.replace(on("x", events(kind)))
			h.emit("job", kind, nil)
			h.emit("job", "kind.other", nil)
			h.until(func() bool { return len(h.works()) == i+1 })
		}
		h.settled()
		if n := len(h.works()); n != rounds {
			t.Errorf("%d runs of %d events", n, rounds)
		}
	})
}

func equal(text string) Match { return Match{Equal: &text} }

// Two parts that own targets cannot have one of the same name, and neither takes the
// other's with it.
func TestNoOwnerTakesATargetFromAnother(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.replace(on("a", events("x")))
		if err := h.tryReplace("loop/signed", on("a", events("y"))); !fault.Is(err, fault.Conflict) {
			t.Errorf("taken by another: %v", err)
		}
		if err := h.tryReplace("loop/signed", on("b", events("y"))); err != nil {
			t.Fatal(err)
		}
		h.replace() // it has none any more
		if err := h.tryReplace("loop/signed", on("a", events("y"))); err != nil {
			t.Errorf("what nobody owns: %v", err)
		}
		if list, err := h.List(t.Context(), "loop"); err != nil || len(list) != 0 {
			t.Errorf("%+v, %v", list, err)
		}
	})
}
