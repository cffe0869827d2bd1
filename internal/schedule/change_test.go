package schedule

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// TestAnEditedScheduleInheritsNothing: hourly, then every three hours.
func TestAnEditedScheduleInheritsNothing(t *testing.T) {
	t.Parallel()
	each(t, "2026-03-04T14:59:00Z", func(t *testing.T, h *house) {
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

func TestTheSchedulesOfAnOwnerAreReplaced(t *testing.T) {
	t.Parallel()
	each(t, "2026-03-04T12:00:00Z", func(t *testing.T, h *house) {
		spec := func(name, when string) Spec {
			return Spec{Owner: "recipe:daily", Name: name, When: when, Zone: "UTC", Starts: Starts{Say: "x"}}
		}
		replace := func(specs ...Spec) error {
			return h.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
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
