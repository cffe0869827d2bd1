package job

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
)

// TestJobsAreForgottenLongAfterTheirEndUnlessSomethingOfThemIsOpen: the keys go with the
// job, what the calls were stays, and the record verifies as before.
func TestJobsAreForgottenLongAfterTheirEndUnlessSomethingOfThemIsOpen(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d, func(o *approval.Options) { o.Hold = time.Millisecond })
		r := b.work("x")
		old, oldToken := b.issue(r)
		asks, asksToken := b.issue(r)
		fresh, freshToken := b.issue(r)
		open, _ := b.issue(r)
		b.got(act.OK, oldToken, "note", "a", "")
		b.got(act.OK, freshToken, "note", "a", "")
		question := b.left(asksToken, "a")
		if _, err := b.Runs.Wait(t.Context(), question.Run); err != nil {
			t.Fatal(err)
		}
		for _, x := range []Job{old, asks, fresh} {
			if err := b.End(t.Context(), x.ID, "its process is gone"); err != nil {
				t.Fatal(err)
			}
		}
		long := kept.Microseconds() + 1e6
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE jobs SET ended = ended - $1, created = created - $1 WHERE id <> $2 AND id <> $3", long, fresh.ID, open.ID)
			if err == nil {
				_, err = tx.Exec(ctx, "UPDATE jobs SET created = created - $1 WHERE id = $2", long, open.ID)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		runsBefore := b.column("SELECT id FROM runs ORDER BY id")
		left := func(jobs ...Job) {
			t.Helper()
			if err := b.Forget(t.Context()); err != nil {
				t.Fatal(err)
			}
			var want, calls []string
			for _, x := range jobs {
				want = append(want, x.ID)
				if x.ID != open.ID {
					calls = append(calls, x.ID)
				}
			}
			slices.Sort(want)
			slices.Sort(calls)
			if got := b.column("SELECT id FROM jobs ORDER BY id"); !slices.Equal(got, want) {
				t.Errorf("jobs %q are left, want %q", got, want)
			}
			if got := b.column("SELECT job FROM job_calls ORDER BY job"); !slices.Equal(got, calls) {
				t.Errorf("calls of %q are left, want %q", got, calls)
			}
		}
		left(asks, fresh, open)
		if _, err := b.approvals.Resolve(t.Context(), question.ID, approval.Reply{Decision: approval.Deny}, "operator"); err != nil {
			t.Fatal(err)
		}
		left(fresh, open)
		if got := b.column("SELECT id FROM runs ORDER BY id"); !slices.Equal(got, runsBefore) {
			t.Errorf("runs %q, before %q", got, runsBefore)
		}
		if _, err := b.Runs.Verify(t.Context()); err != nil {
			t.Errorf("the runs do not verify: %v", err)
		}
		if _, err := audit.Verify(t.Context(), d, b.vault.Keys()); err != nil {
			t.Errorf("the audit chain does not verify: %v", err)
		}
		b.let(r)
	})
}

func (b *bench) column(query string) (out []string) {
	b.t.Helper()
	err := b.db.Read(b.t.Context(), func(ctx context.Context, q db.Q) (err error) {
		out, err = db.All(ctx, q, db.Column[string], query)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}
