package schedule

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
)

func TestAScheduleFiresOnceForEachInstant(t *testing.T) {
	t.Parallel()
	each(t, "2026-03-04T12:00:00Z", func(t *testing.T, h *house) {
		x := h.add("hourly", "0 * * * *", "Europe/Stockholm", queue)
		if x.Next != time.Date(2026, 3, 4, 13, 0, 0, 0, time.UTC).UnixMicro() {
			t.Errorf("next is %s", show(x.Next, time.UTC))
		}
		h.at("2026-03-04T12:59:59Z")
		h.wantJobs(x)
		for range 3 {
			h.at("2026-03-04T13:00:01Z")
		}
		h.at("2026-03-04T14:00:00Z")
		h.wantJobs(x, "fired 2026-03-04T14:00:00+01:00", "fired 2026-03-04T15:00:00+01:00")
		now := h.get("hourly")
		if now.FiredCount != 2 || now.MissedCount != 0 || now.Last.Outcome != Fired || now.Last.Run == "" || now.State != Active {
			t.Errorf("it stands at %+v", now)
		}
		started := h.started()
		if len(started) != 2 {
			t.Errorf("started %v", started)
		}
		j := h.payloads(x)[0]
		if j.JobID != x.ID || j.JobName != "hourly" || j.Payload.Prompt != "do hourly" || j.Owner != Operator || j.LateUS != 1e6 {
			t.Errorf("its event says %+v", j)
		}
		for event := range started {
			if e, err := h.log.ByID(t.Context(), event); err != nil || e.Kind != KindJob {
				t.Errorf("a run was caused by %q: %v", event, err)
			}
		}
	})
}

func TestTheRunOfAFiringStandsOrFallsWithIt(t *testing.T) {
	t.Parallel()
	each(t, "2026-03-04T12:00:00Z", func(t *testing.T, h *house) {
		x := h.add("hourly", "0 * * * *", "UTC")
		h.fired = func(*db.Tx, Firing) { panic("killed between fire and commit") }
		func() {
			defer func() {
				if recover() == nil {
					t.Error("it did not die")
				}
			}()
			h.at("2026-03-04T13:00:00Z")
		}()
		if n := len(h.started()); n != 0 || len(h.jobs(x)) != 0 {
			t.Errorf("it left %d runs and %v", n, h.jobs(x))
		}
		h.fired = nil
		h.boot()
		h.at("2026-03-04T13:00:10Z")
		h.wantJobs(x, "fired 2026-03-04T13:00:00Z")
		list, err := h.runs.List(t.Context(), run.Filter{Kind: workKind})
		if err != nil || len(list) != 1 || list[0].ID != h.get("hourly").Last.Run {
			t.Errorf("runs %v, %v", list, err)
		}
	})
}

func TestByHandStartsNowAndMovesNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t, dbtest.SQLite(t), "2026-03-04T12:00:00Z")
	x := h.add("hourly", "0 * * * *", "UTC", queue)
	got, err := h.s.Run(t.Context(), "hourly", Operator)
	if err != nil || got.Last.Run == "" || got.Next != x.Next {
		t.Fatalf("%+v, %v", got, err)
	}
	h.at("2026-03-04T13:00:00Z")
	h.wantJobs(x, "manual 2026-03-04T12:00:00Z", "fired 2026-03-04T13:00:00Z")
	h.fails = fault.New(fault.NotFound, "no target")
	h.add("bad", "0 * * * *", "UTC", func(s *Spec) { s.Starts.Say = "bad" })
	if _, err := h.s.Run(t.Context(), "bad", Operator); !fault.Is(err, fault.NotFound) {
		t.Errorf("by hand: %v", err)
	}
	if n := len(h.started()); n != 2 {
		t.Errorf("%d runs", n)
	}
}

func TestWhatIsStillAtWorkIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	each(t, "2026-03-04T12:00:00Z", func(t *testing.T, h *house) {
		x := h.add("slow", "* * * * *", "UTC")
		h.at("2026-03-04T12:01:00Z")
		h.at("2026-03-04T12:02:00Z")
		h.wantJobs(x, "fired 2026-03-04T12:01:00Z", "skipped 2026-03-04T12:02:00Z")
		if err := h.runs.Cancel(t.Context(), h.get("slow").Last.Run, "test", "enough"); err != nil {
			t.Fatal(err)
		}
		if err := h.runs.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := h.runs.Wait(t.Context(), h.get("slow").Last.Run); err != nil {
			t.Fatal(err)
		}
		if err := h.runs.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.at("2026-03-04T12:03:00Z")
		if got := h.jobs(x); got[2] != "fired 2026-03-04T12:03:00Z" {
			t.Errorf("%v", got)
		}
	})
}

func TestOneThatCannotStartKeepsNoOtherBack(t *testing.T) {
	t.Parallel()
	each(t, "2026-03-04T12:00:00Z", func(t *testing.T, h *house) {
		h.fails = fault.New(fault.NotFound, "no target: %w", errTest)
		bad := h.add("bad", "* * * * *", "UTC", func(s *Spec) { s.Starts.Say = "bad" })
		good := h.add("good", "* * * * *", "UTC", queue)
		broken := h.add("broken", "* * * * *", "UTC")
		lost := h.add("lost", "* * * * *", "UTC")
		err := h.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			// A row that cannot be opened, and one whose zone is gone.
			x := lost
			x.Zone = "Mars/Phobos"
			if err := h.s.save(ctx, tx, &x); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE schedules SET body = $1 WHERE id = $2", []byte("nonsense"), broken.ID)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		h.at("2026-03-04T12:01:00Z")
		h.at("2026-03-04T12:02:00Z")
		h.wantJobs(good, "fired 2026-03-04T12:01:00Z", "fired 2026-03-04T12:02:00Z")
		h.wantJobs(bad, "failed 2026-03-04T12:01:00Z", "failed 2026-03-04T12:02:00Z")
		h.wantJobs(broken, "failed 2026-03-04T12:01:00Z")
		h.wantJobs(lost, "failed 2026-03-04T12:01:00Z")
		if got := h.get("bad").Last; got.Outcome != WasFailed || !strings.Contains(got.Error, "no target") {
			t.Errorf("bad stands at %+v", got)
		}
		if len(h.told) != 3 {
			t.Errorf("the operator was told %q", h.told)
		}
		if got := h.get(broken.ID); got.Problem == nil || got.FireAt != h.s.now()+(unreadable-time.Minute).Microseconds() {
			t.Errorf("broken: %v, again at %s", got.Problem, show(got.FireAt, time.UTC))
		}
		if _, err := h.s.Remove(t.Context(), broken.ID, Operator); err != nil {
			t.Errorf("what cannot be read cannot be removed: %v", err)
		}
	})
}

func TestAThousandDueAtOnceKeepTheirOrderInFewCommits(t *testing.T) {
	t.Parallel()
	each(t, "2026-03-04T12:00:00Z", func(t *testing.T, h *house) {
		const n = 1000
		h.addMany(0, n, func(i int) string { return fmt.Sprintf("%d 13 * * *", i%2) })
		var order []string
		h.fired = func(tx *db.Tx, f Firing) {
			name := f.At.Format("04 ") + f.Schedule.Name
			tx.AfterCommit(func() { order = append(order, name) })
		}
		was := h.db.Stats().Batches
		h.at("2026-03-04T13:01:00Z")
		commits := h.db.Stats().Batches - was
		t.Logf("%d firings in %d commits", len(order), commits)
		if len(order) != n || commits > 60 {
			t.Errorf("%d firings in %d commits", len(order), commits)
		}
		for i, got := range order {
			want := fmt.Sprintf("00 n%d", 2*i)
			if i >= n/2 {
				want = fmt.Sprintf("01 n%d", 2*(i-n/2)+1)
			}
			if got != want {
				t.Fatalf("firing %d is %s, want %s", i, got, want)
			}
		}
	})
}

func TestJitterIsTheSameForTheSameInstant(t *testing.T) {
	t.Parallel()
	h := newHouse(t, dbtest.SQLite(t), "2026-03-04T12:00:00Z")
	x := h.add("spread", "0 * * * *", "UTC", queue, func(s *Spec) { s.Jitter = 10 * time.Minute })
	delay := time.Duration(x.FireAt-x.Next) * time.Microsecond
	if delay < 0 || delay >= 10*time.Minute || delay != time.Duration(x.due(x.Next)-x.Next)*time.Microsecond {
		t.Errorf("the delay is %s", delay)
	}
	seen := map[int64]bool{}
	for i := range int64(24) {
		at := x.Next + i*3600e6
		if d := x.due(at) - at; d < 0 || d >= 600e6 {
			t.Errorf("delay %d", d)
		} else {
			seen[d/60e6] = true
		}
	}
	if len(seen) < 5 {
		t.Errorf("the delays of a day are all alike: %v", seen)
	}
	h.clock.set(time.UnixMicro(x.FireAt - 1))
	h.look()
	h.wantJobs(x)
	h.clock.set(time.UnixMicro(x.FireAt))
	h.look()
	h.wantJobs(x, "fired 2026-03-04T13:00:00Z")
	if j := h.payloads(x)[0]; j.LateUS != 0 {
		t.Errorf("it was late by %d µs", j.LateUS)
	}
}
