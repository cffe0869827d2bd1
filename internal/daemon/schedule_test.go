package daemon

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/hold"
	"github.com/ombud-run/ombud/internal/wire"
)

func scheduleOf(t *testing.T, c *wire.Client, id string) (x wire.Schedule) {
	t.Helper()
	list, err := c.ScheduleList(t.Context(), wire.ScheduleListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Schedules {
		if s.ID == id {
			return s
		}
	}
	return x
}

func TestAScheduleSpeaksToAnAgent(t *testing.T) {
	t.Parallel()
	eachStore(t, "", func(t *testing.T, c *wire.Client, _ Options) {
		added, err := c.ScheduleAdd(t.Context(), wire.ScheduleAddRequest{When: "@every 1s", Say: "remember that the boiler code is 4711", Name: "boiler", Conversation: "jobs"})
		if err != nil {
			t.Fatal(err)
		}
		id := added.Schedule.ID
		until(t, "a firing", func() bool { return scheduleOf(t, c, id).Fired > 0 })
		if _, err := c.SchedulePause(t.Context(), wire.ScheduleRequest{Schedule: "boiler"}); err != nil {
			t.Fatal(err)
		}
		x := scheduleOf(t, c, id)
		if x.State != "paused" || x.Last == nil || x.Last.RunID == "" || x.Conversation != "jobs" {
			t.Fatalf("it stands at %+v", x)
		}
		done(t, c, x.Last.RunID)
		e, err := c.Explain(t.Context(), wire.ExplainRequest{ID: id})
		if err != nil || e.Run == nil || e.Run.ID != x.Last.RunID {
			t.Fatalf("explain: %+v, %v", e, err)
		}
		said, err := c.EventsList(t.Context(), wire.EventsListRequest{Kinds: []string{"comms.message"}})
		if err != nil || len(said.Events) == 0 {
			t.Fatalf("%v, %v", said, err)
		}
		m := said.Events[0]
		if m.Actor != "schedule:"+id || !strings.HasPrefix(m.Cause, "schedule:"+id+":") || !strings.Contains(string(m.Data), "4711") {
			t.Errorf("the message is %+v", m)
		}
		jobs, err := c.EventsList(t.Context(), wire.EventsListRequest{Kinds: []string{"scheduler.job"}})
		if err != nil || len(jobs.Events) != len(said.Events) {
			t.Errorf("%d firings for %d messages, %v", len(jobs.Events), len(said.Events), err)
		}
		if got, err := c.MemorySearch(t.Context(), wire.MemorySearchRequest{Query: "boiler"}); err != nil || len(got.Facts) == 0 {
			t.Errorf("remembered %v, %v", got, err)
		}
		ran, err := c.ScheduleRun(t.Context(), wire.ScheduleRequest{Schedule: id})
		if err != nil || ran.RunID == "" {
			t.Fatalf("by hand: %+v, %v", ran, err)
		}
		done(t, c, ran.RunID)
		if _, err := c.ScheduleRemove(t.Context(), wire.ScheduleRequest{Schedule: id}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAScheduleThatCouldOnlyFailIsRefused(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	c, _ := up(t, o)
	long := int64(18_446_744_074) // as nanoseconds it goes round, to less than a second
	for _, req := range []wire.ScheduleAddRequest{
		{When: "@daily"}, {When: "0 0 31 2 *", Say: "x"}, {When: "@daily", Say: "x", Replace: true},
		{When: "@daily", Say: "x", JitterS: long}, {When: "@daily", Say: "x", JitterS: -long}, {When: "@daily", Say: "x", GraceS: &long},
	} {
		if _, err := c.ScheduleAdd(t.Context(), req); !fault.Is(err, fault.Invalid) {
			t.Errorf("%+v: %v", req, err)
		}
	}
	for _, req := range []wire.ScheduleAddRequest{
		{When: "@daily", Say: "x", Agent: "nobody"}, {When: "@daily", Say: "x", Conversation: "conv_0197a3b0c0d07000a000000000000000"},
	} {
		if _, err := c.ScheduleAdd(t.Context(), req); !fault.Is(err, fault.NotFound) {
			t.Errorf("%+v: %v", req, err)
		}
	}
	zero := int64(0)
	first, err := c.ScheduleAdd(t.Context(), wire.ScheduleAddRequest{When: "@daily", Zone: "Asia/Kathmandu", Say: "x", Name: "a", GraceS: &zero, Missed: "all"})
	if err != nil || first.Schedule.GraceS != 0 || first.Schedule.Overlap != "queue" || !strings.HasSuffix(first.Schedule.Next, "T00:00:00+05:45") {
		t.Errorf("%+v, %v", first, err)
	}
	again := wire.ScheduleAddRequest{When: "@hourly", Say: "x", Name: "a"}
	if _, err := c.ScheduleAdd(t.Context(), again); !fault.Is(err, fault.Conflict) {
		t.Errorf("the same name: %v", err)
	}
	again.Replace = true
	if got, err := c.ScheduleAdd(t.Context(), again); err != nil || got.Schedule.ID != first.Schedule.ID || got.Schedule.When != "@hourly" {
		t.Errorf("replaced: %+v, %v", got, err)
	}
}

// TestAHeldInstanceShowsWhatWouldFire, and lets it pass if that is asked for.
func TestAHeldInstanceShowsWhatWouldFire(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	c, stop := up(t, o)
	for _, name := range []string{"a", "b"} {
		if _, err := c.ScheduleAdd(t.Context(), wire.ScheduleAddRequest{When: "@every 1s", Say: "help", Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(t.Context(), storeOptions(o))
	if err != nil {
		t.Fatal(err)
	}
	err = d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return hold.SetTx(ctx, tx, hold.Record{Restore: "res_1", Backup: "bak_1", At: tx.Now(), Made: tx.Now()})
	})
	if err := errors.Join(err, d.Close()); err != nil {
		t.Fatal(err)
	}
	c, _ = up(t, o)
	var pending wire.PendingWork
	until(t, "what would fire", func() bool {
		if pending, err = c.RestorePending(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(pending.Timers) == 2
	})
	if p := pending.Timers[0]; p.Kind != "schedule" || !strings.HasSuffix(p.Text, ": help") {
		t.Errorf("it shows %+v", p)
	}
	if _, err := c.ScheduleRun(t.Context(), wire.ScheduleRequest{Schedule: "a"}); !fault.Is(err, fault.Waiting) {
		t.Errorf("by hand: %v", err)
	}
	held := scheduleOf(t, c, pending.Timers[0].ID)
	out, err := c.RestoreRelease(t.Context(), wire.RestoreReleaseRequest{Restore: "res_1", SkipOverdue: true})
	if err != nil || out.Skipped < 2 {
		t.Fatalf("%+v, %v", out, err)
	}
	until(t, "a firing", func() bool { return scheduleOf(t, c, held.ID).Fired > held.Fired })
	if now := scheduleOf(t, c, held.ID); now.MissedCount == held.MissedCount {
		t.Errorf("nothing was passed over: %+v", now)
	}
}
