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

func policy(m Missed, grace time.Duration) func(*Spec) {
	return func(s *Spec) { s.Missed, s.Grace = m, grace }
}

func queue(s *Spec) { s.Overlap = OverlapQueue }

func TestAScheduleFiresOnceForEachInstant(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		h := newHouse(t, d, "2026-03-04T12:00:00Z")
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

// TestWhatPassesWhileTheDaemonIsDown: stopped 12:36, due 12:37, started 12:38, and so on.
func TestWhatPassesWhileTheDaemonIsDown(t *testing.T) {
	t.Parallel()
	h := newHouse(t, dbtest.SQLite(t), "2026-03-04T12:36:00Z")
	once := h.add("once", "37 12 * * *", "UTC")
	skip := h.add("skip", "37 12 * * *", "UTC", policy(Skip, 0))
	all := h.add("all", "*/10 * * * *", "UTC", policy(All, 0))
	short := h.add("short", "37 12 * * *", "UTC", policy(Once, 5*time.Minute))
	none := h.add("none", "37 12 * * *", "UTC", policy(Once, -1))
	h.boot()
	h.at("2026-03-04T12:38:00Z")
	h.wantJobs(once, "late 2026-03-04T12:37:00Z")
	h.wantJobs(skip, "missed 2026-03-04T12:37:00Z")
	h.wantJobs(short, "late 2026-03-04T12:37:00Z")
	h.wantJobs(none, "missed 2026-03-04T12:37:00Z")
	h.wantJobs(all)
	// Eleven hours late, on the next day.
	h.at("2026-03-05T23:37:00Z")
	h.wantJobs(once, "late 2026-03-04T12:37:00Z", "missed 2026-03-05T12:37:00Z")
	h.wantJobs(short, "late 2026-03-04T12:37:00Z", "missed 2026-03-05T12:37:00Z")
	got := h.jobs(all)
	passed := 35*6 - MaxMakeUp // of each ten minutes in 35 hours
	if len(got) != singly+1+MaxMakeUp || !strings.HasPrefix(got[singly], "missed ") || got[len(got)-1] != "late 2026-03-05T23:30:00Z" ||
		!strings.Contains(got[singly], fmt.Sprintf(" %d from ", passed-singly)) {
		t.Errorf("%d events, the row %q, the last %q", len(got), got[singly], got[len(got)-1])
	}
	if now := h.get("all"); now.FiredCount != MaxMakeUp || now.MissedCount != int64(passed) {
		t.Errorf("fired %d, missed %d of 210", now.FiredCount, now.MissedCount)
	}
	for _, name := range []string{"once", "skip", "all", "short", "none"} {
		if x := h.get(name); x.Next <= h.s.now() {
			t.Errorf("%s is still due at %s", name, show(x.Next, time.UTC))
		}
	}
}

func TestManyMissedInstantsShareAnEvent(t *testing.T) {
	t.Parallel()
	h := newHouse(t, dbtest.SQLite(t), "2026-01-01T00:00:00Z")
	second := h.add("second", "* * * * * *", "UTC")
	every := h.add("every", "@every 1s", "UTC", policy(Skip, 0))
	h.at("2027-01-01T00:00:00Z")
	for _, x := range []Schedule{second, every} {
		jobs := h.payloads(x)
		if len(jobs) > singly+2 {
			t.Fatalf("%s left %d events", x.Name, len(jobs))
		}
		row := jobs[singly]
		if row.Count != countAtMost+1 || !row.More || row.From != "2026-01-01T00:00:21Z" || row.At != "2026-12-31T23:59:59Z" {
			t.Errorf("%s: the row is %+v", x.Name, row)
		}
		if jobs[singly+1].Outcome != Fired {
			t.Errorf("%s: then it was %s", x.Name, jobs[singly+1].Outcome)
		}
	}
}

// TestAPastDueInstantFiresOrAdvances: a row whose next instant is an hour ago.
func TestAPastDueInstantFiresOrAdvances(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		h := newHouse(t, d, "2026-03-04T12:00:00Z")
		for _, m := range []Missed{Once, Skip, All} {
			h.add(string(m), "0 13 * * *", "UTC", policy(m, 30*time.Minute))
		}
		h.clock.pass(2*time.Hour, 2*time.Hour)
		h.boot()
		if err := h.s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer h.s.Stop()
		until(t, func() bool {
			for _, m := range []Missed{Once, Skip, All} {
				if h.get(string(m)).Next <= h.s.now() {
					return false
				}
			}
			return true
		})
		h.wantJobs(h.get("once"), "missed 2026-03-04T13:00:00Z")
		h.wantJobs(h.get("skip"), "missed 2026-03-04T13:00:00Z")
		h.wantJobs(h.get("all"), "late 2026-03-04T13:00:00Z")
	})
}

func until(t testing.TB, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); {
		if time.Now().After(deadline) {
			t.Fatal("it does not come")
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestASuspendedMachineFiresAtItsFirstLook(t *testing.T) {
	t.Parallel()
	h := newHouse(t, dbtest.SQLite(t), "2026-03-04T00:00:00Z")
	x := h.add("morning", "30 7 * * *", "UTC")
	if err := h.s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer h.s.Stop()
	<-h.clock.asleep
	h.clock.pass(8*time.Hour, 0) // suspended: only the wall clock went on
	h.clock.pass(look, look)     // one sleep, and not the seven hours there were to wait
	until(t, func() bool { return len(h.jobs(x)) > 0 })
	h.wantJobs(x, "late 2026-03-04T07:30:00Z")
}

func TestAClockThatIsSetBackFiresNothingTwice(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		h := newHouse(t, d, "2026-03-04T12:59:50Z")
		hour := h.add("hour", "0 * * * *", "UTC", queue)
		minute := h.add("minute", "* * * * *", "UTC", queue)
		h.at("2026-03-04T13:00:01Z")
		want := "fired 2026-03-04T13:00:00Z"
		h.wantJobs(hour, want)
		for _, back := range []time.Duration{8 * time.Second, 8 * time.Second, 10 * time.Minute} {
			h.clock.pass(-back, time.Second)
			h.look()
			h.boot() // and once more, after a start
			h.review()
			h.look()
			for range 3 { // the same instants come again
				h.clock.pass(back/2, back/2)
				h.look()
			}
			h.wantJobs(hour, want)
		}
		seen := map[string]bool{}
		for _, line := range h.jobs(minute) {
			if seen[line] {
				t.Errorf("%s came twice", line)
			}
			seen[line] = true
		}
		h.at("2026-03-04T14:00:00Z")
		h.wantJobs(hour, want, "fired 2026-03-04T14:00:00Z")
	})
}

// TestATimeThatWasWrongEndsWhenTheClockIsRight: for a while it was 2030.
func TestATimeThatWasWrongEndsWhenTheClockIsRight(t *testing.T) {
	t.Parallel()
	h := newHouse(t, dbtest.SQLite(t), "2026-03-04T07:00:00Z")
	daily := h.add("daily", "0 8 * * *", "UTC")
	single := h.add("single", "@at 2026-03-04T09:00:00Z", "UTC")
	h.at("2030-06-01T10:00:00Z")
	if x := h.get("daily"); x.Next < time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro() {
		t.Fatalf("the next is %s", show(x.Next, time.UTC))
	}
	if x := h.get("single"); x.State != Done {
		t.Fatalf("single is %s", x.State)
	}
	h.clock.set(time.Date(2026, 3, 4, 7, 1, 0, 0, time.UTC))
	h.look()
	h.at("2026-03-04T08:00:00Z")
	h.at("2026-03-04T09:00:00Z")
	if got := h.jobs(daily); got[len(got)-1] != "fired 2026-03-04T08:00:00Z" {
		t.Errorf("daily: %v", got)
	}
	if got := h.jobs(single); got[len(got)-1] != "fired 2026-03-04T09:00:00Z" || h.get("single").State != Done {
		t.Errorf("single: %v", got)
	}
}

func TestAStepForwardFollowsThePolicy(t *testing.T) {
	t.Parallel()
	h := newHouse(t, dbtest.SQLite(t), "2026-03-04T12:00:00Z")
	once := h.add("once", "0 * * * *", "UTC")
	skip := h.add("skip", "0 * * * *", "UTC", policy(Skip, 0))
	h.clock.pass(3*time.Hour+20*time.Minute, time.Second)
	h.look()
	h.wantJobs(once, "missed 2026-03-04T13:00:00Z", "missed 2026-03-04T14:00:00Z", "late 2026-03-04T15:00:00Z")
	h.wantJobs(skip, "missed 2026-03-04T13:00:00Z", "missed 2026-03-04T14:00:00Z", "missed 2026-03-04T15:00:00Z")
}

func TestFarInstantsKeepTheSleepShort(t *testing.T) {
	t.Parallel()
	h := newHouse(t, dbtest.SQLite(t), "2026-03-04T12:00:00Z")
	far := h.add("far", "@every 60d", "UTC")
	end := h.add("end", "@at 9999-12-31T23:59:59Z", "UTC")
	for range 3 {
		if wait := h.look(); wait != look {
			t.Errorf("sleeps %s", wait)
		}
	}
	h.at("2026-05-03T12:00:00Z")
	h.wantJobs(far, "fired 2026-05-03T12:00:00Z")
	h.at("2026-05-03T12:00:05Z")
	if x := h.get("far"); show(x.Next, time.UTC) != "2026-07-02T12:00:00Z" {
		t.Errorf("then %s", show(x.Next, time.UTC))
	}
	h.at("9999-12-31T23:59:59Z")
	h.wantJobs(end, "fired 9999-12-31T23:59:59Z")
	if x := h.get("end"); x.State != Done || x.Next != Never {
		t.Errorf("it stands at %+v", x)
	}
	if wait := h.look(); wait != look {
		t.Errorf("with nothing left it sleeps %s", wait)
	}
}

// TestAnEditedScheduleInheritsNothing: hourly, then every three hours.
func TestAnEditedScheduleInheritsNothing(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		h := newHouse(t, d, "2026-03-04T14:59:00Z")
		x := h.add("job", "0 * * * *", "UTC")
		h.at("2026-03-04T15:00:00Z")
		h.at("2026-03-04T16:00:00Z")
		h.at("2026-03-04T16:00:30Z")
		if now := h.get("job"); now.FiredCount != 1 || now.MissedCount != 1 { // the first is still at work
			t.Errorf("before: %+v", now)
		}
		edited := h.add("job", "0 */3 * * *", "UTC")
		if edited.ID != x.ID || edited.Last != (Last{}) || edited.FiredCount != 0 || show(edited.Next, time.UTC) != "2026-03-04T18:00:00Z" {
			t.Errorf("edited: %+v", edited)
		}
		h.at("2026-03-04T17:00:00Z")
		h.at("2026-03-04T18:00:00Z")
		got := h.jobs(x)
		if len(got) != 3 || got[2] != "fired 2026-03-04T18:00:00Z" {
			t.Errorf("%v", got)
		}
		// The zone is a part of the rule, what it says is not.
		h.add("job", "0 */3 * * *", "UTC", func(s *Spec) { s.Starts.Say = "something else" })
		if now := h.get("job"); now.FiredCount != 1 || now.Starts.Say != "something else" {
			t.Errorf("with another text: %+v", now)
		}
		if now := h.add("job", "0 */3 * * *", "Asia/Kathmandu"); now.FiredCount != 0 || show(now.Next, time.UTC) != "2026-03-04T18:15:00Z" {
			t.Errorf("in another zone: %+v, next %s", now, show(now.Next, time.UTC))
		}
	})
}

func TestWhatIsStillAtWorkIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		h := newHouse(t, d, "2026-03-04T12:00:00Z")
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
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		h := newHouse(t, d, "2026-03-04T12:00:00Z")
		h.fails = fault.New(fault.NotFound, "no target: %w", errTest)
		bad := h.add("bad", "* * * * *", "UTC", func(s *Spec) { s.Starts.Say = "bad" })
		good := h.add("good", "* * * * *", "UTC", queue)
		broken := h.add("broken", "* * * * *", "UTC")
		lost := h.add("lost", "* * * * *", "UTC")
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
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
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		h := newHouse(t, d, "2026-03-04T12:00:00Z")
		const n = 1000
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			for i := range n {
				spec := Spec{Owner: "loop:many", Name: fmt.Sprint("n", i), When: fmt.Sprintf("%d 13 * * *", i%2), Zone: "UTC", Starts: Starts{Say: "x"}}
				if _, err := h.s.AddTx(ctx, tx, spec, Operator); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		h.fired = func(tx *db.Tx, f Firing) {
			name := f.At.Format("04 ") + f.Schedule.Name
			tx.AfterCommit(func() { order = append(order, name) })
		}
		was := d.Stats().Batches
		h.at("2026-03-04T13:01:00Z")
		commits := d.Stats().Batches - was
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

func TestAHeldInstanceFiresNothing(t *testing.T) {
	t.Parallel()
	h := newHouse(t, dbtest.SQLite(t), "2026-03-04T12:00:00Z")
	x := h.add("hourly", "0 * * * *", "UTC")
	y := h.add("daily", "0 14 * * *", "UTC")
	h.held = fault.New(fault.Waiting, "held")
	h.at("2026-03-04T14:10:00Z")
	h.wantJobs(x)
	if _, err := h.s.Run(t.Context(), "hourly", Operator); !fault.Is(err, fault.Waiting) {
		t.Errorf("by hand: %v", err)
	}
	if due, err := h.s.Overdue(t.Context(), 10); err != nil || len(due) != 2 || due[0].ID != x.ID {
		t.Errorf("overdue: %v, %v", due, err)
	}
	if n, err := h.s.SkipOverdue(t.Context(), "skipped"); err != nil || n != 2 {
		t.Errorf("skipped %d, %v", n, err)
	}
	h.held = nil
	h.look()
	h.wantJobs(x, "missed 2026-03-04T13:00:00Z", "missed 2026-03-04T14:00:00Z")
	h.wantJobs(y, "missed 2026-03-04T14:00:00Z")
}

func TestPausedInstantsAreNotMissed(t *testing.T) {
	t.Parallel()
	h := newHouse(t, dbtest.SQLite(t), "2026-03-04T12:00:00Z")
	x := h.add("hourly", "0 * * * *", "UTC")
	for range 2 {
		if got, err := h.s.Pause(t.Context(), "hourly", Operator); err != nil || got.State != Paused {
			t.Fatalf("%s, %v", got.State, err)
		}
	}
	h.at("2026-03-04T15:30:00Z")
	if got, err := h.s.Resume(t.Context(), "hourly", Operator); err != nil || show(got.Next, time.UTC) != "2026-03-04T16:00:00Z" {
		t.Fatalf("next %s, %v", show(got.Next, time.UTC), err)
	}
	h.look()
	h.at("2026-03-04T16:00:00Z")
	h.wantJobs(x, "fired 2026-03-04T16:00:00Z")
	single := h.add("single", "@at 2026-03-04T17:00:00Z", "UTC")
	if _, err := h.s.Pause(t.Context(), "single", Operator); err != nil {
		t.Fatal(err)
	}
	h.at("2026-03-04T18:00:00Z")
	if _, err := h.s.Resume(t.Context(), "single", Operator); !fault.Is(err, fault.Conflict) {
		t.Errorf("resumed: %v", err)
	}
	h.wantJobs(single)
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

func TestTheSchedulesOfAnOwnerAreReplaced(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		h := newHouse(t, d, "2026-03-04T12:00:00Z")
		spec := func(name, when string) Spec {
			return Spec{Owner: "recipe:daily", Name: name, When: when, Zone: "UTC", Starts: Starts{Say: "x"}}
		}
		replace := func(specs ...Spec) error {
			return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				return h.s.ReplaceTx(ctx, tx, "recipe:daily", specs, "recipe:daily")
			})
		}
		h.add("mine", "0 * * * *", "UTC")
		if err := replace(spec("a", "0 * * * *"), spec("b", "0 * * * *"), spec("c", "0 * * * *")); err != nil {
			t.Fatal(err)
		}
		if _, err := h.s.Pause(t.Context(), "recipe:daily/b", Operator); err != nil {
			t.Fatal(err)
		}
		h.at("2026-03-04T13:00:00Z")
		was := h.get("recipe:daily/a")
		if err := replace(spec("a", "0 * * * *"), spec("b", "0 9 * * *"), spec("d", "0 * * * *")); err != nil {
			t.Fatal(err)
		}
		if now := h.get("recipe:daily/a"); now.version != was.version || now.FiredCount != 1 {
			t.Errorf("what is the same was touched: %+v", now)
		}
		if now := h.get("recipe:daily/b"); now.State != Paused || now.When != "0 9 * * *" {
			t.Errorf("what was paused: %+v", now)
		}
		list, err := h.s.List(t.Context(), Filter{Owner: "recipe:daily"})
		if err != nil || len(list) != 3 || list[2].Name != "d" {
			t.Errorf("%v, %v", list, err)
		}
		if err := replace(spec("a", "0 0 31 2 *")); !fault.Is(err, fault.Invalid) {
			t.Errorf("a rule that never fires: %v", err)
		}
		if err := replace(spec("a", "0 * * * *"), spec("a", "0 * * * *")); !fault.Is(err, fault.Invalid) {
			t.Errorf("twice the same name: %v", err)
		}
		if err := replace(); err != nil {
			t.Error(err)
		}
		if all, active, err := h.s.Counts(t.Context()); err != nil || all != 1 || active != 1 {
			t.Errorf("%d, %d, %v", all, active, err)
		}
	})
}

func TestWhatCannotBeDoneIsRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t, dbtest.SQLite(t), "2026-03-04T12:00:00Z")
	h.add("there", "0 * * * *", "UTC")
	for want, change := range map[string]func(*Spec){
		"minute, column 1":     func(s *Spec) { s.When = "61 * * * *" },
		"no time zone":         func(s *Spec) { s.Zone = "Europe/Stokholm" },
		"would never fire":     func(s *Spec) { s.When = "@at 2026-03-04T11:00:00Z" },
		"never fire":           func(s *Spec) { s.When = "0 0 31 2 *" },
		"already":              func(s *Spec) { s.Name = "there" },
		"is no name":           func(s *Spec) { s.Name = "a/b" },
		"as an id does":        func(s *Spec) { s.Name = "sch_1" },
		"cannot own":           func(s *Spec) { s.Owner = "stranger" },
		"once, skip or all":    func(s *Spec) { s.Missed = "some" },
		"skip or queue":        func(s *Spec) { s.Overlap = "some" },
		"overtake":             func(s *Spec) { s.When, s.Jitter = "@every 1m", time.Minute },
		"jitter is from":       func(s *Spec) { s.Jitter = 25 * time.Hour },
		"grace is at most":     func(s *Spec) { s.Grace = 9000 * time.Hour },
		"has no text":          func(s *Spec) { s.Starts.Say = " \n " },
		"at most 16384":        func(s *Spec) { s.Starts.Say = strings.Repeat("x", maxSay+1) },
		"it is empty":          func(s *Spec) { s.When = "" },
		"there is no @reboot":  func(s *Spec) { s.When = "@reboot" },
		"no number of whole s": func(s *Spec) { s.When = "@every 10ms" },
	} {
		spec := Spec{Owner: Operator, Name: "new", When: "0 * * * *", Zone: "UTC", Starts: Starts{Say: "x"}}
		change(&spec)
		x, err := h.s.Add(t.Context(), spec, Operator)
		if class := fault.ClassOf(err); err == nil || !strings.Contains(err.Error(), want) || class != fault.Invalid && class != fault.Conflict {
			t.Errorf("%s: %+v, %v (%s)", want, x, err, class)
		}
	}
	for _, name := range []string{"nobody", "sch_", "sch_ffffffffffffffffffffffffffffffff", "loop:x/there", ""} {
		if _, err := h.s.Get(t.Context(), name); !fault.Is(err, fault.NotFound) {
			t.Errorf("%q: %v", name, err)
		}
	}
	x := h.get("there")
	if got := h.get(x.ID[:len(x.ID)-4]); got.ID != x.ID {
		t.Errorf("by the beginning of its id: %+v", got)
	}
}

func TestTheRunOfAFiringStandsOrFallsWithIt(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		h := newHouse(t, d, "2026-03-04T12:00:00Z")
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

func TestStartAndStopUnderChange(t *testing.T) {
	t.Parallel()
	h := newHouse(t, dbtest.SQLite(t), "2026-03-04T12:00:00Z")
	done := make(chan error, 1)
	go func() {
		for i := range 30 {
			spec := Spec{Owner: Operator, Name: fmt.Sprint("s", i%3), When: fmt.Sprintf("%d * * * *", i), Zone: "UTC", Starts: Starts{Say: "x"}}
			if _, err := h.s.Put(context.Background(), spec, Operator); err != nil {
				done <- err
				return
			}
			h.clock.pass(time.Minute, time.Minute)
		}
		done <- nil
	}()
	for range 20 {
		if err := h.s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := h.s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.s.Stop()
		h.s.Stop()
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestAnIdleLoopSleeps: with ten thousand schedules and nothing due, a look is one
// question to an index.
func TestAnIdleLoopSleeps(t *testing.T) {
	t.Parallel()
	h := newHouse(t, dbtest.SQLite(t), "2026-03-04T12:00:00Z")
	for part := range 20 {
		err := h.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			for i := range 500 {
				spec := Spec{Owner: "loop:many", Name: fmt.Sprintf("n%d-%d", part, i), When: fmt.Sprintf("%d 11 * * *", i%60), Zone: "UTC", Starts: Starts{Say: "x"}}
				if _, err := h.s.AddTx(ctx, tx, spec, Operator); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	if err := h.s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("started with 10,000 in %s", time.Since(begun))
	defer h.s.Stop()
	<-h.clock.asleep
	was := h.db.Stats().Batches
	begun = time.Now()
	for range 100 {
		h.clock.pass(look, look)
		<-h.clock.asleep
	}
	t.Logf("100 looks in %s", time.Since(begun))
	if n := h.db.Stats().Batches - was; n != 0 {
		t.Errorf("idle looks made %d commits", n)
	}
}
