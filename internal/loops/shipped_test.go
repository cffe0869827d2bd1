package loops

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/memory"
	"github.com/ombud-run/ombud/internal/model"
)

// world is integrations that a test changes.
type world struct {
	mu    sync.Mutex
	state map[string]Health
}

func (w *world) set(name string, h Health) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state[name] = h
}

func (w *world) probes(context.Context) (out []Probe, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.state {
		out = append(out, Probe{Name: name, Kind: "test", Look: func(context.Context) (Health, string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.state[name] == "panics" {
				panic("oh")
			}
			return w.state[name], "because of " + name
		}})
	}
	return out, nil
}

func TestEachChangeOfAnIntegrationIsToldOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		w := &world{state: map[string]Health{"mail": Working, "model": NotConnected}}
		n := NewIntegrations(d, newVault(t), nil, w.probes)
		h := open(t, d, setup{loops: []Loop{n.Loop()}})
		for i, c := range []struct {
			change func()
			told   string
		}{
			{func() {}, ""},
			{func() { w.set("mail", Failing) }, "🔔 loop:integration-health: integrations\nmail is failing, was working: because of mail"},
			{func() {}, ""},
			{func() { w.set("mail", Degraded); w.set("new", "panics") },
				"🔔 loop:integration-health: integrations\nmail is degraded, was failing: because of mail\nnew is failing: its check broke down: oh"},
			{func() { w.set("mail", Working); w.set("new", Working) },
				"🔔 loop:integration-health: integrations\nmail is working, was degraded: because of mail\nnew is working, was failing: because of new"},
			{func() {}, ""},
		} {
			before := len(h.heard("main"))
			c.change()
			if i == 1 { // who looks by hand is not told for the loop
				if _, err := n.Check(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			h.do("integration-health")
			if got := strings.Join(h.heard("main")[before:], "|"); got != c.told {
				t.Errorf("%d: told %q, want %q", i, got, c.told)
			}
		}
		delete(w.state, "new")
		list, err := n.Check(t.Context())
		if err != nil || len(list) != 2 || list[0].Name != "mail" || list[0].State != Working || list[1].State != NotConnected {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

func TestAHundredProbesAreAskedAFewAtATime(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int32
	h := open(t, sqlite(t), setup{})
	n := NewIntegrations(h.db, h.d.Vault, nil, func(context.Context) (out []Probe, err error) {
		for i := range 100 {
			out = append(out, Probe{Name: string(rune('a'+i%26)) + string(rune('a'+i/26)), Kind: "test", Look: func(context.Context) (Health, string) {
				for at := now.Add(1); ; {
					if old := most.Load(); at <= old || most.CompareAndSwap(old, at) {
						break
					}
				}
				<-time.After(time.Millisecond)
				now.Add(-1)
				return Working, ""
			}})
		}
		return out, nil
	})
	list, err := n.Check(t.Context())
	if err != nil || len(list) != 100 || most.Load() > atOnce {
		t.Errorf("%d, %d at once, %v", len(list), most.Load(), err)
	}
}

// A check leaves nobody behind: it ends when the last of its probes has.
func TestACheckWaitsForItsProbes(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	var ended atomic.Bool
	h := open(t, sqlite(t), setup{})
	n := NewIntegrations(h.db, h.d.Vault, nil, func(context.Context) ([]Probe, error) {
		return []Probe{{Name: "slow", Kind: "test", Look: func(ctx context.Context) (Health, string) {
			stop()
			<-ctx.Done()
			<-time.After(20 * time.Millisecond)
			ended.Store(true)
			return Failing, "it does not answer"
		}}}, nil
	})
	if _, err := n.Check(ctx); !errors.Is(err, context.Canceled) || !ended.Load() {
		t.Errorf("%v while a probe is under way: %t", err, !ended.Load())
	}
}

// spent is how far the budget of a test is used up.
type spent struct{ day, month int64 }

func (s *spent) Left(context.Context, db.Q, string, string) (budget.Headroom, error) {
	return budget.Headroom{Levels: []budget.Level{
		{Window: "month", Limit: budget.At(100e6), Spent: s.month}, {Window: "day", Limit: budget.At(10e6), Spent: s.day},
		{Window: "day", Spent: 1e9},
	}}, nil
}

func TestEachMarkOfTheBudgetIsToldOnce(t *testing.T) {
	t.Parallel()
	s := &spent{}
	h := open(t, sqlite(t), setup{loops: []Loop{BudgetWatch(s, time.UTC)}})
	for i, c := range []struct {
		day, month int64
		told       []string
	}{
		{7.9e6, 10e6, nil},
		{8e6, 10e6, []string{"80% of the day's budget\n$8.00 of $10.00"}},
		{9e6, 10e6, nil},
		{10e6, 85e6, []string{"80% of the month's budget\n$85.00 of $100.00", "100% of the day's budget\n$10.00 of $10.00 are used up. Nothing more"}},
		{10e6, 100e6, []string{"100% of the month's budget"}},
		{10e6, 100e6, nil},
	} {
		s.day, s.month = c.day, c.month
		before := len(h.heard("main"))
		h.do("budget-watch")
		got := h.heard("main")[before:]
		if len(got) != len(c.told) {
			t.Fatalf("%d: told %q, want %q", i, got, c.told)
		}
		for j, want := range c.told {
			if !strings.Contains(got[j], want) {
				t.Errorf("%d: told %q, want %q", i, got[j], want)
			}
		}
	}
}

func TestAProjectionIsOfTheWholeWindow(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 6, 16, 12, 0, 0, 0, time.UTC)
	period, share := windowOf("day", noon)
	if text := spendingText(budget.Level{Window: "day", Limit: budget.At(10e6), Spent: 8e6}, 8e6, share); period != "2026-06-16" || !strings.HasSuffix(text, "$16.00 at the end of the day.") {
		t.Errorf("%s %s", period, text)
	}
	if period, share = windowOf("month", noon); period != "2026-06" || share < 0.51 || share > 0.52 {
		t.Errorf("%s %f", period, share)
	}
}

// piles is what waits in a test.
type piles struct{ list []eventlog.Pile }

func (p *piles) Unhandled(context.Context) ([]eventlog.Pile, error) { return p.list, nil }

func TestDeadLettersThatWaitAreRememberedOnceForEachChange(t *testing.T) {
	t.Parallel()
	p := &piles{}
	h := open(t, sqlite(t), setup{loops: []Loop{LetterWatch(p)}})
	tell := func(want int) {
		t.Helper()
		h.do("dead-letters")
		if got := h.heard("main"); len(got) != want {
			t.Errorf("told %q, want %d", got, want)
		}
	}
	tell(0)
	p.list = []eventlog.Pile{{Source: "run", Name: "recipe", Count: 2, Oldest: 1e15, Newest: 2e15}}
	tell(1)
	tell(1)
	p.list[0].Count = 3
	tell(2)
	if got := h.heard("main")[1]; !strings.Contains(got, "3 dead letters wait") || !strings.Contains(got, "ombud dlq list") {
		t.Errorf("%q", got)
	}
}

func (h *house) remember(text string, l label.Label, expires int64) {
	h.t.Helper()
	err := h.db.InTx(h.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := h.mem.RememberTx(ctx, tx, memory.New{Agent: agent.Default, Text: text, Label: l, Expires: expires, Origin: memory.Origin{Actor: "operator"}})
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

func TestUpkeepMergesOnlyIfItIsAskedToAndOnlyAsAProposal(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		settings := map[string]string{}
		h := open(t, d, setup{set: map[string]Setting{"memory-upkeep": {Values: settings}}, ships: func(h *house) []Loop { return []Loop{MemoryUpkeep(h.mem)} }})
		op := label.Of(label.Operator, label.OperatorOnly)
		h.remember("Anna likes green tea with honey in the morning", op, 0)
		h.remember("Anna likes green tea with honey in the early morning", op, 0)
		h.remember("Bo likes green tea with honey in the morning", label.Of(label.Untrusted("bo"), label.OperatorOnly), 0)
		h.remember("The old code is gone soon", op, h.db.Time()+1)
		rec := h.do("memory-upkeep")
		lines, err := h.d.Lines(t.Context(), "loop:memory-upkeep", rec.ID, 0, 10)
		if err != nil || len(lines) != 1 || !strings.HasPrefix(lines[0].Text, "1 facts") {
			t.Errorf("%v %v", lines, err)
		}
		if open, err := h.apr.List(t.Context(), approval.Filter{State: approval.Pending, Limit: 9}); err != nil || len(open) != 0 {
			t.Errorf("proposed without being asked to: %v %v", open, err)
		}
		settings["merge"] = "true"
		h.do("memory-upkeep")
		h.do("memory-upkeep") // it does not propose the same again
		open, err := h.apr.List(t.Context(), approval.Filter{State: approval.Pending, Limit: 9})
		if err != nil || len(open) != 1 || !strings.Contains(open[0].Summary, "Anna likes green tea") || strings.Contains(open[0].Summary, "Bo") {
			t.Errorf("%+v %v", open, err)
		}
		if facts, err := h.mem.List(t.Context(), agent.Default, 9); err != nil || len(facts) != 3 {
			t.Errorf("%v %v", facts, err)
		}
	})
}

func TestUpkeepWithoutAModelCostsNothing(t *testing.T) {
	t.Parallel()
	h := open(t, sqlite(t), setup{ships: func(h *house) []Loop { return []Loop{MemoryUpkeep(h.mem)} }, brain: func(context.Context, model.Request) (model.Response, error) {
		return model.Response{}, errors.New("it was asked")
	}})
	if rec := h.do("memory-upkeep"); rec.Cost != 0 {
		t.Errorf("%d", rec.Cost)
	}
}

func TestUpkeepForgetsAllThatIsOverHoweverMuchItIs(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		h := open(t, d, setup{ships: func(h *house) []Loop { return []Loop{MemoryUpkeep(h.mem)} }})
		for range 11 {
			err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				for range 100 {
					if err := h.d.logTx(ctx, tx, "loop:x", "", Info, "said"); err != nil {
						return err
					}
				}
				_, err := tx.Exec(ctx, "UPDATE loop_logs SET at = 1")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		rec := h.do("memory-upkeep")
		if lines, err := h.d.Lines(t.Context(), "loop:x", "", 0, 1000); err != nil || len(lines) != 0 {
			t.Errorf("%d lines are left, %v", len(lines), err)
		}
		if lines, err := h.d.Lines(t.Context(), "loop:memory-upkeep", rec.ID, 0, 9); err != nil || len(lines) != 1 || !strings.Contains(lines[0].Text, "1100 lines") {
			t.Errorf("it said %v, %v", lines, err)
		}
	})
}
