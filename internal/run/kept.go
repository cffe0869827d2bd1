package run

import (
	"context"
	"fmt"
	"time"

	"github.com/ombud-run/ombud/internal/db"
)

// lookForDefinition is how often a run is looked at whose definition is missing.
const lookForDefinition = 5 * time.Second

// missing names what this node lacks to work on a run, "" if nothing.
func (e *Engine) missing(ctx context.Context, q db.Q, rec Record) (string, error) {
	kind, known := e.kinds.get(rec.Kind)
	if !known {
		return fmt.Sprintf("the kind %q, which this ombud does not have", rec.Kind), nil
	}
	if kind.Knows == nil {
		return "", nil
	}
	there, err := kind.Knows(ctx, q, rec)
	if err != nil || there {
		return "", err
	}
	return "its definition " + rec.Name + "@" + rec.Definition, nil
}

// keepBack leaves a run that is due and cannot be worked on here for a later look. It
// stays what it is and keeps its place under its key.
func (e *Engine) keepBack(ctx context.Context, tx *db.Tx, rec Record, missing string) error {
	e.mu.Lock()
	_, told := e.kept[rec.ID]
	e.kept[rec.ID] = time.Now()
	e.mu.Unlock()
	if !told {
		e.slog.Warn("a run is kept back", "run", rec.ID, "waits_for", missing)
	}
	_, err := tx.Exec(ctx, "UPDATE runs SET next_at = $1 WHERE id = $2", tx.Now()+lookForDefinition.Microseconds(), rec.ID)
	return err
}

// KeptBack is how many runs this node cannot work on because their kind or their
// pinned definition is missing here.
func (e *Engine) KeptBack(ctx context.Context) (n int, err error) {
	err = e.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT count(*) FROM runs WHERE ended = 0 AND state IN ('queued', 'waiting') AND kind NOT IN ("+e.kinds.known()+")").Scan(&n)
	})
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, seen := range e.kept {
		if now.Sub(seen) > 3*lookForDefinition { // it was cancelled
			delete(e.kept, id)
		}
	}
	return n + len(e.kept), err
}

// maxChain bounds how far WaitsFor follows runs that wait for runs.
const maxChain = 4

// WaitsFor says for a person what a run waits for, "" if it does not wait, and whether
// it is kept back because its kind or definition is missing here.
func (e *Engine) WaitsFor(ctx context.Context, rec Record) (text string, kept bool, err error) {
	if rec.State.Ended() || rec.State == Running {
		return "", false, nil
	}
	err = e.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		missing, err := e.missing(ctx, q, rec)
		if err != nil {
			return err
		}
		kept = missing != "" && (rec.State == Queued || rec.State == Waiting)
		text, err = e.waitsFor(ctx, q, rec, maxChain)
		return err
	})
	return text, kept, err
}

func (e *Engine) waitsFor(ctx context.Context, q db.Q, rec Record, depth int) (string, error) {
	switch rec.State {
	case Uncertain:
		return "a decision on a step that may or may not have happened", nil
	case Queued, Waiting:
	default:
		return "", nil
	}
	if text, err := e.missing(ctx, q, rec); err != nil || text != "" {
		return text, err
	}
	switch rec.Wait {
	case ForSignal:
		return "the signal " + rec.WaitRef, nil
	case ForApproval:
		return "an answer to " + rec.WaitRef, nil
	case ForTimer:
		return "its time", nil
	case ForRetry:
		return "another attempt", nil
	case ForSeveral:
		return "the first of what the branches of " + rec.WaitRef + " wait for", nil
	case ForRun:
		return e.waitsForRun(ctx, q, rec.WaitRef, depth)
	}
	if rec.NextAt == never {
		return "its turn: others of its key are before it", nil
	}
	return "", nil
}

func (e *Engine) waitsForRun(ctx context.Context, q db.Q, id string, depth int) (string, error) {
	text := "run " + id
	if depth == 0 {
		return text, nil
	}
	rec, err := e.load(ctx, q, id)
	if err != nil {
		return text, err
	}
	text += ", which is " + string(rec.State)
	more, err := e.waitsFor(ctx, q, rec, depth-1)
	if more != "" {
		text += " and waits for " + more
	}
	return text, err
}
