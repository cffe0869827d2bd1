package schedule

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db/dbtest"
)

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
	each(t, "2026-03-04T12:59:50Z", func(t *testing.T, h *house) {
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
	for from := 0; from < 10_000; from += 500 {
		h.addMany(from, 500, func(i int) string { return fmt.Sprintf("%d 11 * * *", i%60) })
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
