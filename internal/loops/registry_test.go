package loops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/trigger"
)

func nothingToDo(context.Context, *Kit) error { return nil }

func TestTheRegistryRefusesWhatCannotBeDone(t *testing.T) {
	t.Parallel()
	d := Deps{DB: sqlite(t)}
	whole := loop("whole", nothingToDo)
	set := loop("set", nothingToDo)
	set.Settings = map[string][]string{"merge": {"true", "false"}, "to": nil}
	with := func(loop, name, value string) map[string]Setting {
		return map[string]Setting{loop: {Values: map[string]string{name: value}}}
	}
	for _, good := range []map[string]Setting{with("set", "merge", "false"), with("set", "to", "anybody"), {"whole": {Timeout: time.Minute}}} {
		if _, err := New(d, nil, nil, nil, []Loop{whole, set}, good); err != nil {
			t.Errorf("%v: %v", good, err)
		}
	}
	for name, c := range map[string]struct {
		loops []Loop
		set   map[string]Setting
		class fault.Class
	}{
		"twice":     {[]Loop{whole, whole}, nil, fault.Internal},
		"no name":   {[]Loop{loop("", nothingToDo)}, nil, fault.Internal},
		"bad name":  {[]Loop{loop("a b", nothingToDo)}, nil, fault.Internal},
		"no run":    {[]Loop{{Name: "x", Description: "x", On: []trigger.On{{Manual: true}}}}, nil, fault.Internal},
		"unstarted": {[]Loop{{Name: "x", Description: "x", Run: nothingToDo}}, nil, fault.Internal},
		"setting":   {[]Loop{whole}, map[string]Setting{"hole": {}}, fault.Config},
		"no such":   {[]Loop{set}, with("set", "mrge", "true"), fault.Config},
		"none":      {[]Loop{whole}, with("whole", "merge", "true"), fault.Config},
		"value":     {[]Loop{set}, with("set", "merge", "yes"), fault.Config},
	} {
		if _, err := New(d, nil, nil, nil, c.loops, c.set); !fault.Is(err, c.class) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An event that comes while its loop runs is handled after it, in order and with its
// payload; none is dropped. A poisoned one ends as a dead letter and the next is taken.
func TestEventsQueueAndAPoisonedOneIsGivenUp(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		var mu sync.Mutex
		var saw []string
		tries := map[string]int{}
		first := make(chan struct{})
		reads := Loop{
			Name: "reads", Description: "test", On: []trigger.On{{Event: &trigger.EventFilter{Kinds: []string{"user.defined"}}}},
			Run: func(_ context.Context, k *Kit) error {
				var p struct{ N string }
				if err := json.Unmarshal(k.Trigger().Payload, &p); err != nil {
					return err
				}
				if p.N == "a" {
					<-first
				}
				mu.Lock()
				defer mu.Unlock()
				tries[p.N]++
				if p.N == "bad" {
					return errors.New("it cannot be read")
				}
				saw = append(saw, p.N)
				return nil
			},
		}
		h := open(t, d, setup{loops: []Loop{reads}})
		for _, n := range []string{"a", "b", "bad", "c", "d"} {
			err := h.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				_, err := h.log.AppendTx(ctx, tx, eventlog.New{
					Stream: "user", Kind: "user.defined", Actor: "operator", Data: map[string]string{"N": n}, Expect: eventlog.Any,
				})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		count := func(state run.State) int {
			list, err := h.runs.List(t.Context(), run.Filter{Kind: Kind, State: state, Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			return len(list)
		}
		h.until(func() bool { return count(run.Queued) == 4 }) // they stand in line behind a
		close(first)
		h.until(func() bool { return count(run.Completed) == 4 && count(run.Failed) == 1 })
		mu.Lock()
		defer mu.Unlock()
		if got := strings.Join(saw, ""); got != "abcd" || tries["bad"] != attempts {
			t.Errorf("saw %s, bad was tried %d times", got, tries["bad"])
		}
		piles, err := h.log.Piles(t.Context())
		if err != nil || len(piles) != 1 || piles[0].Count != 1 {
			t.Errorf("given up: %v %v", piles, err)
		}
	})
}

func TestADisabledLoopIsStartedByNothing(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var by []string
	all := Loop{
		Name: "all", Description: "test",
		On: []trigger.On{{Event: &trigger.EventFilter{Kinds: []string{"user.defined"}}}, {Timer: true}, {Schedule: &trigger.Schedule{When: "@every 24h"}}},
		Run: func(_ context.Context, k *Kit) error {
			mu.Lock()
			defer mu.Unlock()
			by = append(by, k.Trigger().Kind)
			return nil
		},
	}
	h := open(t, sqlite(t), setup{loops: []Loop{all}})
	if _, err := h.times.Pause(t.Context(), "loop:all", "operator"); err != nil {
		t.Fatal(err)
	}
	err := h.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := h.log.AppendTx(ctx, tx, eventlog.New{Stream: "user", Kind: "user.defined", Actor: "operator", Data: struct{}{}, Expect: eventlog.Any}); err != nil {
			return err
		}
		return h.times.ArmTx(ctx, tx, trigger.Wake{Target: "loop:all", ID: "t", At: tx.Now() + 1, Label: own()})
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.times.Manual(t.Context(), "loop:all", nil, "operator"); !fault.Is(err, fault.Conflict) {
		t.Errorf("by hand: %v", err)
	}
	h.until(func() bool {
		s, err := h.loops.Get(t.Context(), "all")
		return err == nil && s.Standing.Withheld == 2
	})
	if s, err := h.loops.Get(t.Context(), "all"); err != nil || s.State != Disabled || !strings.Contains(s.Reason, "2 triggers") {
		t.Errorf("%+v %v", s, err)
	}
	if _, err := h.times.Resume(t.Context(), "loop:all", "operator"); err != nil {
		t.Fatal(err)
	}
	h.do("all")
	mu.Lock()
	defer mu.Unlock()
	if strings.Join(by, ",") != "manual" {
		t.Errorf("started by %v", by)
	}
}

func TestTheStateOfALoopSaysHowItDoes(t *testing.T) {
	t.Parallel()
	var fails sync.Map
	var list []Loop
	for _, name := range []string{"well", "ill", "off", "idle"} {
		list = append(list, loop(name, func(context.Context, *Kit) error {
			if _, bad := fails.Load(name); bad {
				return fault.New(fault.Invalid, "no good")
			}
			return nil
		}))
	}
	off := false
	h := open(t, sqlite(t), setup{loops: list, set: map[string]Setting{"off": {Enabled: &off}}})
	fails.Store("ill", true)
	h.do("well")
	h.fails("ill")
	for name, want := range map[string]string{"well": Well, "ill": Ailing, "off": Off, "idle": Idle} {
		s, err := h.loops.Get(t.Context(), name)
		if err != nil || s.State != want {
			t.Errorf("%s is %s (%s), want %s; %v", name, s.State, s.Reason, want, err)
		}
	}
	if _, err := h.loops.Get(t.Context(), "wel"); !fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), "well") {
		t.Errorf("%v", err)
	}
	all, err := h.loops.List(t.Context())
	if err != nil || len(all) != 4 {
		t.Errorf("%d %v", len(all), err)
	}
}

func TestALoopIsDarkWhenItsScheduleWasQuietForMoreThanThreeIntervals(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 3, 2, 12, 7, 0, 0, time.UTC) // a Monday
	for _, c := range []struct {
		when  string
		after time.Duration
		dark  bool
	}{
		{"@every 15m", 40 * time.Minute, false},
		{"@every 15m", 45 * time.Minute, false},
		{"@every 15m", 47 * time.Minute, true},
		{"0 * * * *", 2*time.Hour + 54*time.Minute, false},
		{"0 * * * *", 2*time.Hour + 55*time.Minute, true},
		{"30 8 * * 1-5", 68 * time.Hour, false}, // Thursday, shortly before half past eight
		{"30 8 * * 1-5", 4 * 24 * time.Hour, true},
		{"30 8 * * 1", 20 * 24 * time.Hour, false},
		{"30 8 * * 1", 22 * 24 * time.Hour, true},
		{"@at 2026-03-03T00:00:00Z", 400 * 24 * time.Hour, false},
	} {
		if got := quiet(trigger.Schedule{When: c.when, Zone: "UTC"}, from, from.Add(c.after)); got != c.dark {
			t.Errorf("%s after %s: dark is %v", c.when, c.after, got)
		}
	}
}

func TestARunOfAnotherVersionIsKeptBack(t *testing.T) {
	t.Parallel()
	h := open(t, sqlite(t), setup{loops: []Loop{loop("one", nothingToDo)}})
	x := h.loops.byName["one"]
	for version, want := range map[string]bool{x.definition(): true, "loop:one@v2": false} {
		if got, err := h.loops.knows(t.Context(), nil, run.Record{Name: "loop:one", Definition: version}); got != want || err != nil {
			t.Errorf("%s: %v %v", version, got, err)
		}
	}
}

func TestOthersWordsAreMarkedWhereverTheyStand(t *testing.T) {
	t.Parallel()
	wrap := func(_, text string) string { return "<" + text + ">" }
	for in, want := range map[string]string{
		"":                          "",
		"nothing":                   "nothing",
		"say longer words twice":    "say <longer words> twice",
		"longer wordslonger words":  "<longer words><longer words>",
		"a longer b longer words c": "a <longer> b <longer words> c",
	} {
		if got := markAll(in, []string{"longer words", "longer"}, wrap); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := fmt.Sprint(len(texts(json.RawMessage(`{"a":"x","b":["y",{"c":"z"}],"d":1}`)))); got != "3" {
		t.Errorf("%s texts", got)
	}
}

func FuzzMarking(f *testing.F) {
	f.Add("some longer words here", "longer words", "words")
	f.Fuzz(func(t *testing.T, text, a, b string) {
		if a == "" || b == "" || !utf8.ValidString(text) || !utf8.ValidString(a) || !utf8.ValidString(b) || strings.ContainsAny(text+a+b, "\x01\x02") {
			t.Skip()
		}
		foreign := []string{a, b}
		if len(b) > len(a) {
			foreign = []string{b, a}
		}
		got := markAll(text, foreign, func(_, s string) string { return "\x01" + s + "\x02" })
		if plain := strings.NewReplacer("\x01", "", "\x02", "").Replace(got); plain != text {
			t.Errorf("%q became %q", text, plain)
		}
		open := false
		rest := ""
		for _, r := range got {
			switch {
			case r == '\x01':
				if open {
					t.Fatalf("marks within marks: %q", got)
				}
				open = true
			case r == '\x02':
				open = false
				rest += "\x01"
			case !open:
				rest += string(r)
			}
		}
		if strings.Contains(rest, a) || strings.Contains(rest, b) {
			t.Errorf("%q has unmarked words of others", got)
		}
	})
}
