package run

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
)

// TestNoLookScansWhatOthersHave: what is asked inside the transactions that set a timer,
// begin a run or end one is found by an index, however much there is and was.
func TestNoLookScansWhatOthersHave(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	for query, index := range map[string]string{
		timersOfOwner: "timers_owner (owner=?)", timesOfOwner: "timers_owner (owner=? AND fire_at>?)", slotsOfKey: "runs_slot (key=?", nextOfKey: "runs_keyed (key=?", joinable: "runs_keyed (key=?",
		beginning: "sqlite_autoindex_runs_1 (id>? AND id<?)",
		"SELECT id FROM runs WHERE seq < 5 AND cause = $1 AND cause <> '' ORDER BY seq DESC LIMIT $2": "runs_cause (cause=?)",
	} {
		var plan []string
		err := d.Read(t.Context(), func(ctx context.Context, q db.Q) (err error) {
			args := []any{"somebody", int64(1), int64(1)}
			plan, err = db.All(ctx, q, func(r *db.Rows) (line string, err error) {
				var id, parent, unused int64
				err = r.Scan(&id, &parent, &unused, &line)
				return line, err
			}, "EXPLAIN QUERY PLAN "+query, args[:strings.Count(query, "$")]...)
			return err
		})
		if err != nil || len(plan) == 0 || !strings.Contains(plan[0], index) {
			t.Errorf("%s\nis answered by %q, %v", query, plan, err)
		}
	}
}

func TestTimersAreListedByOwnerTheNextFirst(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		b := setup(t, d)
		later := d.Time() + 1_000_000_000
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			for i := range 6 {
				timer := Timer{ID: fmt.Sprint("t", i), Kind: "k", Owner: fmt.Sprint("o", i%2), At: later - int64(i)}
				if err := b.ArmTx(ctx, tx, timer); err != nil {
					return err
				}
			}
			_, err := b.DisarmTx(ctx, tx, "t3")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for owner, want := range map[string][]string{"": {"t5", "t4", "t2", "t1", "t0"}, "o0": {"t4", "t2", "t0"}, "o1": {"t5", "t1"}, "o2": nil} {
			list, err := b.Timers(t.Context(), owner)
			var got []string
			for _, timer := range list {
				got = append(got, timer.ID)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("of %q: %q, want %q, %v", owner, got, want, err)
			}
		}
	})
}

// TestATimerThatIsOverLeavesNoRow: what fired is in the log, and the table holds what is armed.
func TestATimerThatIsOverLeavesNoRow(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		b := setup(t, d)
		arm := func(id string, at int64) {
			t.Helper()
			err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				return b.ArmTx(ctx, tx, Timer{ID: id, Kind: "k", Owner: "o", At: at, Payload: []byte(`{"n":1}`)})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		rows := func() (ids []string) {
			t.Helper()
			err := d.Read(t.Context(), func(ctx context.Context, q db.Q) (err error) {
				ids, err = db.All(ctx, q, db.Column[string], "SELECT id FROM timers ORDER BY id")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return ids
		}
		past, later := d.Time()-2, d.Time()+1_000_000_000
		arm("fires", past)
		arm("stays", later)
		arm("taken back", later)
		if err := b.fireOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			was, err := b.DisarmTx(ctx, tx, "taken back")
			if again, _ := b.DisarmTx(ctx, tx, "taken back"); !was || again {
				t.Errorf("armed %v, then %v", was, again)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := rows(); !slices.Equal(got, []string{"stays"}) {
			t.Errorf("rows of %q are left", got)
		}
		arm("fires", past+1) // the same id again, another instant
		arm("fires", past+1)
		if err := b.fireOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		fired, err := b.log.Read(t.Context(), 0, 100, eventlog.Filter{Kinds: []string{TimerFired}})
		if err != nil || len(fired) != 2 {
			t.Errorf("%d firings, %v", len(fired), err)
		}
		arm("overdue", past)
		if n, err := b.SkipOverdue(t.Context()); n != 1 || err != nil {
			t.Errorf("%d skipped, %v", n, err)
		}
		if got := rows(); !slices.Equal(got, []string{"stays"}) {
			t.Errorf("rows of %q are left", got)
		}
	})
}
