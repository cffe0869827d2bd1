package run

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
)

// bury makes a dead letter of a run that failed, unless somebody hears of it anyway.
func (e *Engine) bury(ctx context.Context, tx *db.Tx, kind Kind, rec Record) error {
	if kind.Heard {
		return nil
	}
	if rec.Parent != "" {
		var parent State
		err := tx.QueryRow(ctx, "SELECT state FROM runs WHERE id = $1", rec.Parent).Scan(&parent)
		if err == nil && !parent.Ended() {
			return nil
		}
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	_, err := e.log.BuryTx(ctx, tx, eventlog.DeadLetter{
		Source: eventlog.FromRun, Name: rec.Kind, Ref: rec.ID, Title: rec.Name, Cause: rec.Cause, Class: rec.ErrorClass, Error: rec.Error,
		Attempts: int64(rec.Attempt) + 1, First: max(rec.Started, rec.Created),
	})
	return err
}

// ReplayTx lets a failed run go on: its recorded steps stay, those that failed are begun
// again, and it has its attempts anew. letter names the dead letter it was. Errors:
// NotFound, Conflict if it is not failed, Invalid if its kind is not known here.
func (e *Engine) ReplayTx(ctx context.Context, tx *db.Tx, id, by, letter string) error {
	rec, err := e.load(ctx, tx, id)
	switch {
	case err != nil:
		return err
	case rec.State != Failed:
		return fault.New(fault.Conflict, "run %s is %s; only a failed run can go on", id, rec.State)
	}
	if _, known := e.kinds.get(rec.Kind); !known {
		return fault.New(fault.Invalid, "no run kind %q", rec.Kind)
	}
	failed, err := db.All(ctx, tx, db.Column[string], "SELECT name FROM steps WHERE run = $1 AND state = 'failed' ORDER BY seq", id)
	if err != nil {
		return err
	}
	failed = withWork(failed)
	_, err = e.advance(ctx, tx, id, noFence, change{
		kind: evReplayed, actor: by, data: replayedData{By: by, Letter: letter, Steps: failed}, nextAt: e.soon(tx),
	})
	for _, name := range failed {
		if err == nil {
			_, err = tx.Exec(ctx, "DELETE FROM steps WHERE run = $1 AND name = $2", id, name)
		}
	}
	return err
}

// AgainTx starts a run anew as newID, with the trigger, the input and the pinned
// definition of one that has ended and none of its steps. cause is the event that has
// it done.
func (e *Engine) AgainTx(ctx context.Context, tx *db.Tx, id, newID, by, cause string) error {
	rec, err := e.load(ctx, tx, id)
	switch {
	case err != nil:
		return err
	case !rec.State.Ended():
		return fault.New(fault.Conflict, "run %s is %s; only one that has ended is started again", id, rec.State)
	}
	_, err = e.StartTx(ctx, tx, Spec{
		ID: newID, Kind: rec.Kind, Name: rec.Name, Definition: rec.Definition, Key: rec.Key, Width: rec.Width, Cause: cause, Actor: by,
		Input: rec.Input,
	})
	return err
}

// BadEnd ends the name of a failed step that tells of the bad end of a run which the step
// NAME started and the step NAME/run waited for: all three are begun again together.
const BadEnd = "/end"

func withWork(failed []string) (all []string) {
	for _, name := range failed {
		all = append(all, name)
		if work, is := strings.CutSuffix(name, BadEnd); is {
			all = append(all, work, work+"/run")
		}
	}
	return all
}
