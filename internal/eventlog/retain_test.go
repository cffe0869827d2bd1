package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

func ids(t *testing.T, l *Log) []string {
	t.Helper()
	all, err := l.Read(t.Context(), 0, 0, Filter{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range all {
		out = append(out, e.ID)
	}
	return out
}

func TestPruneRemovesOnlyWhatNobodyNeeds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *Log, c *clock) {
		l.retries = []time.Duration{time.Second}
		var j journal
		r := open(t, l, Subscription{Name: "s", Handle: j.handle})
		j.set("dead", errBad)
		j.set("blocked", errBad)
		must(t, l, ev("dead", "a"), ev("1", "a"), ev("2", "a"), ev("run1", "run:1"), ev("run2", "run:1"), ev("last", "b"))
		run(t, r)
		c.forward(time.Second)
		run(t, r) // dead is a dead letter now, told by an event
		must(t, l, ev("3", "a"), ev("blocked", "c"), ev("4", "a"), ev("5", "c"))
		run(t, r)
		must(t, l, ev("6", "a"), ev("unread", "a"), ev("7", "a"))
		keep := func(_ context.Context, _ *db.Tx, stream string) (bool, error) { return stream == "run:1", nil }
		if n, err := l.Prune(t.Context(), c.us.Load(), keep); n != 2 || err != nil {
			t.Errorf("pruned %d, %v; 1 and 2 are old enough", n, err)
		}
		c.forward(time.Second)
		n, err := l.Prune(t.Context(), c.us.Load(), keep)
		if n != 1 || err != nil { // 3; what is blocked holds the rest
			t.Errorf("pruned %d, %v", n, err)
		}
		j.set("blocked", nil)
		run(t, r)
		if _, err := l.Prune(t.Context(), c.us.Load(), keep); err != nil {
			t.Error(err)
		}
		got := ids(t, l)
		told := got[4]
		if want := []string{"dead", "run1", "run2", "last", told, "5", "7"}; !slices.Equal(got, want) {
			t.Errorf("left %v, want %v", got, want)
		}
		if e := must(t, l, ev("8", "b"))[0]; e.Version != 2 {
			t.Errorf("a version was used again: %+v", e)
		}
		boom := errors.New("boom")
		if _, err := l.Prune(t.Context(), c.us.Load()+1, func(context.Context, *db.Tx, string) (bool, error) { return false, boom }); !errors.Is(err, boom) {
			t.Errorf("keep's error: %v", err)
		}
	})
}

func TestTailSeesWhatIsThereAndWhatComes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *Log, _ *clock) {
		must(t, l, ev("1", "a"), ev("2", "a"), ev("x", "b"))
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan string)
		ended := make(chan error, 1)
		go func() {
			ended <- l.Tail(ctx, 1, Filter{StreamPrefix: "a"}, func(e Event) error { got <- e.ID; return nil })
		}()
		if id := <-got; id != "2" {
			t.Errorf("first %s", id)
		}
		must(t, l, ev("y", "b"), ev("3", "a"))
		if id := <-got; id != "3" {
			t.Errorf("next %s", id)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestSteppedClockIsAnEventAndDriftIsNot(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, l *Log, _ *clock) {
		var at Reading
		w := l.WatchClock(func() Reading { return at })
		for _, c := range []struct {
			wall, mono, step time.Duration
		}{
			{time.Second, time.Second, 0},
			{3 * time.Second, time.Second, 0}, // 2 s are still no step
			{3 * time.Second, time.Second, 0}, // and do not add up
			{-time.Hour, time.Second, -time.Hour - time.Second},
			{time.Second, time.Second, 0},     // told once
			{8 * time.Hour, 0, 8 * time.Hour}, // suspended
		} {
			at.Wall, at.Mono = at.Wall.Add(c.wall), at.Mono+c.mono
			if step, err := w.RunOnce(t.Context()); step != c.step || err != nil {
				t.Errorf("%+v: step %s, %v", c, step, err)
			}
		}
		told, err := l.Read(t.Context(), 0, 0, Filter{Kinds: []string{KindClock}})
		if err != nil || len(told) != 2 {
			t.Fatal(told, err)
		}
		var s ClockStep
		if err := json.Unmarshal(told[0].Data, &s); err != nil || s.StepUS != (-time.Hour-time.Second).Microseconds() {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

func TestClocksRunTogether(t *testing.T) {
	t.Parallel()
	read := Clocks()
	a := read()
	b := read()
	if d := (b.Wall.Sub(a.Wall) - (b.Mono - a.Mono)).Abs(); d > clockStep || b.Mono < a.Mono {
		t.Errorf("%v then %v", a, b)
	}
}

func TestKindBringsOldPayloadsUpToDate(t *testing.T) {
	t.Parallel()
	type v1 struct{ Name string }
	type v3 struct{ First, Last string }
	step := func(from, to string) Upcast {
		return func(raw json.RawMessage) (json.RawMessage, error) {
			var m map[string]string
			if err := json.Unmarshal(raw, &m); err != nil {
				return nil, err
			}
			m[to] = m[from]
			delete(m, from)
			return json.Marshal(m)
		}
	}
	old := Kind[v1]{Name: "person"}
	now := Kind[v3]{Name: "person", Upcasts: []Upcast{step("Name", "Full"), step("Full", "Last")}}
	each(t, func(t *testing.T, l *Log, _ *clock) {
		first := must(t, l, old.New("p", v1{"Ada"}), now.New("p", v3{"Ada", "L"}))
		for i, want := range []v3{{Last: "Ada"}, {"Ada", "L"}} {
			e, err := l.ByID(t.Context(), first[i].ID)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := now.Decode(e); got != want || err != nil {
				t.Errorf("event %d: %+v, %v", i, got, err)
			}
		}
	})
	for what, c := range map[string]struct {
		e     Event
		class fault.Class
	}{
		"other kind": {Event{Kind: "x", Format: 1}, fault.Invalid},
		"newer":      {Event{Kind: "person", Format: 4, Data: json.RawMessage(`{}`)}, fault.Invalid},
		"erased":     {Event{Kind: "person", Format: 1, Erased: true}, fault.NotFound},
		"old broken": {Event{Kind: "person", Format: 1, Data: json.RawMessage(`[]`)}, fault.Verification},
		"broken":     {Event{Kind: "person", Format: 3, Data: json.RawMessage(`[]`)}, fault.Verification},
	} {
		if _, err := now.Decode(c.e); !fault.Is(err, c.class) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
