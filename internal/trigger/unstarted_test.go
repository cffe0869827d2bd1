package trigger

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
)

// damage makes the row of a target one that cannot be read.
func (h *house) damage(target string) {
	h.exec("UPDATE targets SET body = $1 WHERE name = $2", []byte("damaged"), target)
}

func (h *house) exec(query string, args ...any) {
	h.t.Helper()
	err := h.db.InTx(h.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, query, args...)
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// again hands the event of a dead letter to the targets once more.
func (h *house) again(d eventlog.DeadLetter) error {
	return h.db.InTx(h.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if err := h.log.SettleLetterTx(ctx, tx, d.ID, eventlog.LetterReplayed, "somebody", ""); err != nil {
			return err
		}
		return h.log.HandAgainTx(ctx, tx, d)
	})
}

// started are the targets of all runs, sorted.
func (h *house) started() (names []string) {
	for _, tr := range h.works() {
		names = append(names, tr.Target)
	}
	slices.Sort(names)
	return names
}

func TestATargetThatCannotBeReadKeepsNoOtherBack(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		all := []Target{on("a", events("job.came")), on("bad", events("job.came")), on("bad2", events("job.*")), on("c", events("job.came"))}
		h.replace(all...)
		h.damage("loop:bad")
		h.damage("loop:bad2")
		h.live()
		h.emit("job", "job.came", nil)
		h.until(func() bool { return len(h.works()) == 2 })
		h.settled()
		if got := h.started(); !slices.Equal(got, []string{"loop:a", "loop:c"}) {
			t.Fatalf("started %q", got)
		}
		dead := h.letters()
		if len(dead) != 1 || !strings.Contains(dead[0].Error, "loop:bad was not started") || !strings.Contains(dead[0].Error, "loop:bad2 was not started") ||
			dead[0].Class != fault.Verification {
			t.Fatalf("dead letters: %+v", dead)
		}
		// A replay that starts nothing has failed, and says why.
		if err := h.again(dead[0]); !fault.Is(err, fault.Verification) || !strings.Contains(err.Error(), "loop:bad") {
			t.Errorf("replayed while it is damaged: %v", err)
		}
		// What a replay starts is kept, and the rest waits on.
		h.replace(all[0], all[1], all[3])
		h.replace(all...)
		h.damage("loop:bad2")
		h.exec("UPDATE listeners SET since = 0")
		if err := h.again(dead[0]); err != nil {
			t.Fatal(err)
		}
		h.until(func() bool { return len(h.works()) == 3 })
		if left := h.letters(); len(left) != 1 || left[0].State != eventlog.LetterWaiting || strings.Contains(left[0].Error, "loop:bad was") {
			t.Fatalf("dead letters: %+v", left)
		}
		h.replace(all...)
		if err := h.again(dead[0]); err != nil {
			t.Fatal(err)
		}
		h.until(func() bool { return len(h.works()) == 4 })
		h.settled()
		if got := h.started(); !slices.Equal(got, []string{"loop:a", "loop:bad", "loop:bad2", "loop:c"}) {
			t.Errorf("started after all replays: %q", got)
		}
	})
}

func TestAReplayOfAStormsEventStartsOnlyWhatItDidNot(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, h *house) {
		h.work = func(ctx context.Context, r *run.Run, tr Trigger) error {
			if tr.Target != "loop:first" {
				return nil
			}
			h.exec("INSERT INTO cascades (root, runs, refused, at) VALUES ($1, $2, 0, 1)", tr.Root, int64(MaxFamily-1)) // one more is taken
			_, err := h.log.Append(ctx, eventlog.New{Stream: "tool", Kind: "tool.called", Actor: "test", Trace: r.ID(), Expect: eventlog.Any})
			return err
		}
		h.replace(on("first", On{Manual: true}), on("a", events("tool.called")), on("b", events("tool.called")))
		h.live()
		if _, err := h.Manual(t.Context(), "loop:first", nil, "somebody"); err != nil {
			t.Fatal(err)
		}
		h.until(func() bool { return len(h.letters()) == 1 })
		h.settled()
		want := []string{"loop:a", "loop:first"}
		if got := h.started(); !slices.Equal(got, want) {
			t.Fatalf("started %q", got)
		}
		for range 2 { // a letter that comes back changes nothing
			if err := h.again(h.letters()[0]); err != nil {
				t.Fatal(err)
			}
			h.until(func() bool { return len(h.works()) == 3 })
			h.settled()
			if got := h.started(); !slices.Equal(got, []string{"loop:a", "loop:b", "loop:first"}) {
				t.Fatalf("started after the replay: %q", got)
			}
			h.exec("UPDATE dead_letters SET state = 'waiting'")
		}
	})
}
