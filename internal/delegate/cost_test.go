package delegate

import (
	"context"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
)

// perToken is a table in which a token costs a micro-dollar, and one that is written two.
func perToken(_ harness.Name, model string, u harness.Usage) (int64, bool) {
	return u.Input + u.CacheRead + u.CacheWrite + 2*u.Output, model == "lab-1"
}

// told is what a program says of a run that has cost so much by that table.
func told(micro int64) harness.Usage {
	return harness.Usage{Known: true, Input: micro - 20, Output: 10, Context: 1000}
}

// cut is the record of a program that was ended.
func cut(t child.Task, u harness.Usage) harness.Record {
	u.Partial = u.Known
	return harness.Record{CLI: t.CLI, Session: t.NewSession, Model: "lab-1", Outcome: harness.Killed, Reason: child.ReasonQuiet, Usage: u}
}

// rest is what the one response may have cost that was not seen, of told.
const rest = 1000 + 2*response

// TestWhatAnEndedRunHasCostIsBookedAsFarAsItIsKnown, whoever ended it, and what may be beside
// that is bounded and said.
func TestWhatAnEndedRunHasCostIsBookedAsFarAsItIsKnown(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := open(t, d)
		h.deps.Price = perToken
		began := make(chan struct{}, 1)
		usage := told(300_000)
		h.stage.play(func(ctx context.Context, task child.Task) (harness.Record, error) {
			if task.Spent != nil && usage.Known {
				task.Spent("lab-1", usage, harness.Cost{})
			}
			if strings.Contains(task.Prompt, "silent") { // it ends by a limit of ours
				return cut(task, usage), nil
			}
			began <- struct{}{}
			<-ctx.Done()
			return cut(task, usage), nil
		})
		cancelled := func() {
			h.call(CallTool, callInput{Prompt: "x", Background: true})
			<-began
			list, err := h.List(t.Context(), 1)
			if err == nil {
				err = h.Runs.Cancel(t.Context(), list[0].Run, "operator", "enough")
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		cancelled()
		if x, _ := h.last(); x.Outcome != "cancelled" || x.MicroUSD != 300_000 || x.Priced || x.Possible != rest {
			t.Errorf("cancelled: %+v", x)
		}
		if spent, reserved, possible, unknown := h.spent(); spent != 300_000 || reserved != 0 || possible != rest || unknown != 1 {
			t.Errorf("booked are %d, held %d, possible %d, unknown %d", spent, reserved, possible, unknown)
		}
		res := h.call(CallTool, callInput{Prompt: "silent"})
		if x, _ := h.last(); x.Outcome != "killed" || x.MicroUSD != 300_000 || x.Priced || x.Possible != rest {
			t.Errorf("killed: %+v", x)
		}
		if !strings.Contains(res.Text, "at least $0.30, perhaps $0.065 more") || !strings.Contains(res.Text, "delegate.quiet") {
			t.Errorf("it is told as %s", res.Text)
		}
		if spent, reserved, possible, unknown := h.spent(); spent != 600_000 || reserved != 0 || possible != 2*rest || unknown != 2 {
			t.Errorf("booked are %d, held %d, possible %d, unknown %d", spent, reserved, possible, unknown)
		}
		h.deps.Price = func(harness.Name, string, harness.Usage) (int64, bool) { return 0, false }
		h.deps.Likely = func(_ harness.Name, name string, u harness.Usage) (int64, bool) {
			return perToken("", name, u) // a model nobody priced: nothing is known to be spent
		}
		_, _, before, _ := h.spent()
		cancelled()
		if x, _ := h.last(); x.MicroUSD != 0 || x.Priced || x.Possible != 300_000+rest {
			t.Errorf("of an unknown price: %+v", x)
		}
		if spent, reserved, possible, _ := h.spent(); spent != 600_000 || reserved != 0 || possible != before+300_000+rest {
			t.Errorf("booked are %d, held %d, possible %d", spent, reserved, possible)
		}
		usage = harness.Usage{} // it tells nothing: all that was held may be
		cancelled()
		if x, _ := h.last(); x.MicroUSD != 0 || x.Priced || x.Possible != firstHold {
			t.Errorf("of a silent one: %+v", x)
		}
		if _, reserved, possible, _ := h.spent(); reserved != 0 || possible != before+300_000+rest+firstHold {
			t.Errorf("held %d, possible %d", reserved, possible)
		}
	})
}

// TestATaskHoldsWhatItMayBeExpectedToCost, more once it tells more, and ends where the
// budget has no more.
func TestATaskHoldsWhatItMayBeExpectedToCost(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := open(t, d) // $10 a day, and $5 a task
		h.deps.Price = perToken
		type program struct {
			task  child.Task
			ended <-chan struct{}
			done  chan harness.Record
		}
		begun := make(chan program)
		h.stage.play(func(ctx context.Context, task child.Task) (harness.Record, error) {
			p := program{task, ctx.Done(), make(chan harness.Record)}
			begun <- p
			return <-p.done, nil
		})
		held := func(want int64, when string) {
			t.Helper()
			if _, reserved, _, _ := h.spent(); reserved != want {
				t.Errorf("%s: held are %d, want %d", when, reserved, want)
			}
		}
		const tasks = 3
		var turns [tasks]string
		var programs [tasks]program
		for i := range tasks {
			turns[i] = h.begin(CallTool, callInput{Prompt: "x"})
			programs[i] = <-begun
		}
		held(tasks*firstHold, "at the start")
		a := programs[0]
		a.task.Spent("lab-1", told(200_000), harness.Cost{})
		held(tasks*firstHold, "while it is enough")
		a.task.Spent("lab-1", told(400_000), harness.Cost{})
		held((tasks+1)*firstHold, "once it comes near")
		a.task.Spent("lab-1", told(3_000_000), harness.Cost{})
		held((tasks-1)*firstHold+5_000_000, "up to its limit") // 1, 2, 4 and not 8
		a.task.Spent("lab-1", told(6_000_000), harness.Cost{}) // claude stops by itself
		held((tasks-1)*firstHold+5_000_000, "and no further")
		b := programs[1]
		b.task.Spent("odd-1", told(10), harness.Cost{}) // of which nobody knows what it costs
		held(9_500_000+firstHold, "of an unknown price")
		c := programs[2]
		c.task.Spent("lab-1", told(400_000), harness.Cost{}) // nothing is left, and what is held is not used up
		select {
		case <-c.ended:
			t.Error("it was ended before its budget was")
		default:
		}
		c.task.Spent("lab-1", told(500_000), harness.Cost{})
		<-c.ended
		c.done <- cut(c.task, told(500_000))
		res := h.end(turns[2])
		for _, want := range []string{"limit", "over budget", "$10.00 a day", "raise the limit"} {
			if res.Status != act.OK || !strings.Contains(res.Text, want) {
				t.Errorf("it does not say %q: %+v", want, res)
			}
		}
		a.done <- done(a.task, "42", 4_000_000)
		b.done <- done(b.task, "42", 100_000)
		h.end(turns[0])
		h.end(turns[1])
		if spent, reserved, possible, unknown := h.spent(); spent != 4_600_000 || reserved != 0 || possible != rest || unknown != 1 {
			t.Errorf("booked are %d, held %d, possible %d, unknown %d", spent, reserved, possible, unknown)
		}
	})
}

// TestOneThatTellsItsCostInTheEndHoldsMore: nothing can be held later. And one that does not
// stop by itself is ended at its limit.
func TestOneThatTellsItsCostInTheEndHoldsMore(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t), func(c *Config) { c.Budget = budget.At(3_000_000) })
	h.deps.Price = func(harness.Name, string, harness.Usage) (int64, bool) { return 3_500_000, true }
	repo(t, h.cfg.Workspace)
	h.stage.play(func(ctx context.Context, task child.Task) (harness.Record, error) {
		_, reserved, _, _ := h.spent()
		if want := map[bool]int64{false: silentHold, true: firstHold}[task.Write]; reserved != want {
			t.Errorf("held are %d, want %d", reserved, want)
		}
		if !task.Write {
			return done(task, "42", 10), nil
		}
		task.Spent("gpt-5.5", harness.Usage{Known: true, Cumulative: true, Input: 1}, harness.Cost{})
		<-ctx.Done()
		return cut(task, harness.Usage{Known: true, Cumulative: true, Input: 1}), nil
	})
	h.call(CallTool, callInput{Prompt: "x", Harness: "codex"})
	res := h.call(CallTool, callInput{Prompt: "x", Harness: "codex", Write: true})
	if !strings.Contains(res.Text, "limit") || !strings.Contains(res.Text, "delegate.usd") {
		t.Errorf("%+v", res)
	}
}

// TestATurnsLimitIsNotATasks: a task has one of its own.
func TestATurnsLimitIsNotATasks(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	h.deps.Budget = budget.New(h.db, budget.Config{Instance: budget.Limits{Day: budget.At(10_000_000)}, Run: budget.At(1_000_000)})
	h.stage.play(answers("42", 2_000_000))
	if res := h.call(CallTool, callInput{Prompt: "x"}); res.Status != act.OK {
		t.Errorf("%+v", res)
	}
	if got := h.stage.started()[0].BudgetMicroUSD; got != 5_000_000 {
		t.Errorf("it may cost %d", got)
	}
}

// TestWhereNothingLimitsATaskAPriceNobodyKnowsHoldsNoMore: there is no amount that would be
// enough, and what is held for nothing would be counted all the same.
func TestWhereNothingLimitsATaskAPriceNobodyKnowsHoldsNoMore(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := open(t, d, func(c *Config) { c.Budget = budget.Limit{} })
		h.deps.Budget = budget.New(h.db, budget.Config{})
		h.deps.Price = perToken
		h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
			task.Spent("odd-1", told(10), harness.Cost{})
			if _, reserved, _, _ := h.spent(); reserved != firstHold {
				t.Errorf("held are %d", reserved)
			}
			return done(task, "42", 10), nil
		})
		if res := h.call(CallTool, callInput{Prompt: "x"}); res.Status != act.OK {
			t.Errorf("%+v", res)
		}
	})
}
