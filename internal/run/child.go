package run

import (
	"context"
	"encoding/json"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// WaitRun starts another run in the commit that records the step, parks until that
// has ended, and returns it. A run that start makes with this one as its Parent is
// cancelled if this one ends before it; one that was there already, or that others
// wait for too, is not. If start fails the step has failed.
func (r *Run) WaitRun(ctx context.Context, step string, start func(ctx context.Context, tx *db.Tx) (id string, err error)) (Record, error) {
	out, err := r.DoTx(ctx, StepSpec{Name: step, Kind: "run"}, func(ctx context.Context, tx *db.Tx) Outcome {
		id, err := start(ctx, tx)
		if err == nil && id == "" {
			err = fault.New(fault.Conflict, "%s: the run was not started: one of its key is under way", step)
		}
		if err != nil {
			return Fail(err)
		}
		if err := await(ctx, tx, id, r.ID()); err != nil {
			return Fail(err)
		}
		text, err := json.Marshal(id)
		if err != nil {
			return Fail(err)
		}
		return Succeed(text)
	})
	if err != nil || out.Err != nil {
		return Record{}, firstOf(err, out.Err)
	}
	var id string
	if err := json.Unmarshal(out.Result, &id); err != nil {
		return Record{}, fault.New(fault.Verification, "step %s: %w", step, err)
	}
	if settles(ctx) {
		return Record{}, firstOf(r.dropChild(ctx, id), errJoined)
	}
	var rec Record
	ended := func(ctx context.Context, tx *db.Tx) (_ bool, err error) {
		if rec, err = r.e.load(ctx, tx, id); err != nil || rec.State.Ended() {
			return true, err
		}
		return false, await(ctx, tx, id, r.ID()) // a run that was let go on forgot whom it waits for
	}
	// Met again after the child's end it would be a commit for nothing: a look first.
	err = r.e.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) { rec, err = r.e.load(ctx, q, id); return err })
	if err != nil || rec.State.Ended() {
		return rec, err
	}
	return rec, r.Park(ctx, ForRun, id, never, ended)
}

// BehindTx reports whether a run can end only after another has: it is that one, stands in
// line behind it, or has begun or waits for one of which that is so. Whoever the other is,
// it would wait for itself if it waited for the run.
func (e *Engine) BehindTx(ctx context.Context, tx *db.Tx, id, other string) (bool, error) {
	seen := map[string]bool{id: true}
	for todo := []string{id}; len(todo) > 0; todo = todo[1:] {
		if todo[0] == other {
			return true, nil
		}
		before, err := db.All(ctx, tx, db.Column[string], `SELECT child FROM waiters WHERE parent = $1
			UNION SELECT id FROM runs WHERE parent = $1 AND parent <> '' AND ended = 0
			UNION SELECT ahead.id FROM runs JOIN runs AS ahead ON ahead.key = runs.key AND ahead.key <> '' AND ahead.ended = 0 AND ahead.seq < runs.seq
				WHERE runs.id = $1 AND runs.state = 'queued' AND runs.next_at = $2 AND ahead.state IN ('running', 'waiting', 'cancelling')`, todo[0], never)
		if err != nil {
			return false, err
		}
		for _, next := range before {
			if !seen[next] {
				seen[next] = true
				todo = append(todo, next)
			}
		}
	}
	return false, nil
}

// await notes that a run waits for the end of another.
func await(ctx context.Context, tx *db.Tx, child, parent string) error {
	_, err := tx.Exec(ctx, "INSERT INTO waiters (child, parent) VALUES ($1, $2) ON CONFLICT (child, parent) DO NOTHING", child, parent)
	return err
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// dropChild cancels a run that is not waited for any more.
func (r *Run) dropChild(ctx context.Context, id string) error {
	return r.e.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.Exec(ctx, "DELETE FROM waiters WHERE child = $1 AND parent = $2", id, r.ID()); err != nil {
			return err
		}
		return r.e.cancelChild(ctx, tx, r.ID(), id)
	})
}

// cancelChild cancels a run that its parent alone started and waited for, whatever it
// waits for itself.
func (e *Engine) cancelChild(ctx context.Context, tx *db.Tx, parent, child string) error {
	rec, err := e.load(ctx, tx, child)
	if err != nil || rec.State.Ended() || rec.Parent != parent {
		return err
	}
	return e.CancelTx(ctx, tx, child, "ombud", "run "+parent+" does not wait for it any more")
}

// letGo ends what depends on a run that ends: those who wait for it are woken, the
// runs it still waits for are cancelled, signals it did not take are forgotten.
func (e *Engine) letGo(ctx context.Context, tx *db.Tx, id string) error {
	type bond struct{ child, parent string }
	bonds, err := db.All(ctx, tx, func(r *db.Rows) (b bond, err error) { err = r.Scan(&b.child, &b.parent); return b, err },
		`SELECT child, parent FROM waiters WHERE child = $1 UNION ALL SELECT child, parent FROM waiters WHERE parent = $1
			UNION ALL SELECT '', '' FROM signals WHERE run = $1`, id)
	if err != nil || len(bonds) == 0 {
		return err
	}
	for _, b := range bonds {
		switch {
		case b.child == id:
			err = e.WakeTx(ctx, tx, b.parent, ForRun, id)
		case b.parent == id:
			err = e.cancelChild(ctx, tx, id, b.child)
		}
		if err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, "DELETE FROM waiters WHERE parent = $1 OR child = $1", id); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "DELETE FROM signals WHERE run = $1", id)
	return err
}
