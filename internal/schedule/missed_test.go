package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

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
	each(t, "2026-03-04T12:00:00Z", func(t *testing.T, h *house) {
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
