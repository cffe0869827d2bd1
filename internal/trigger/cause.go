package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
)

// origin is where a start comes from.
type origin struct {
	event  eventlog.Event // the event, with its trace and cause
	run    string         // or the run
	replay bool           // a person, a clock or a timer: it begins a chain of its own
	refuse bool           // a chain that is too long is the caller's error
}

// maxHops bounds the way back from an event to the run that caused it.
const maxHops = 64

// place finds how far a start is from its first cause, and refuses one that is too far,
// or one too many of one cause: Conflict.
func (t *Triggers) place(ctx context.Context, tx *db.Tx, tr *Trigger, from origin) error {
	if tr.Root == "" {
		tr.Root = tr.Event
	}
	if from.replay {
		return nil
	}
	up, err := t.causing(ctx, tx, from)
	if err != nil || up == nil {
		return err
	}
	tr.Depth, tr.Root = up.Depth+1, up.Root
	if tr.Depth > MaxDepth {
		return fault.New(fault.Conflict, "%w: it would be the run number %d in a chain that began with %s", errStorm, tr.Depth+1, tr.Root)
	}
	var n int64
	err = tx.QueryRow(ctx, `INSERT INTO cascades (root, runs, refused, at) VALUES ($1, 1, 0, $2)
		ON CONFLICT (root) DO UPDATE SET runs = cascades.runs + 1, at = excluded.at RETURNING runs`, tr.Root, tx.Now()).Scan(&n)
	if err == nil && n > MaxFamily {
		err = fault.New(fault.Conflict, "%w: %d runs were started, one by another, from %s", errStorm, n-1, tr.Root)
	}
	return err
}

// errStorm says that runs start each other without an end.
var errStorm = fmt.Errorf("runs start each other")

// causing is the trigger of the run that caused a start, nil if none did.
func (t *Triggers) causing(ctx context.Context, tx *db.Tx, from origin) (*Trigger, error) {
	e, runID := from.event, from.run
	for range maxHops {
		if runID == "" {
			runID = runOf(e)
		}
		if runID == "" {
			if e.Cause == "" {
				return nil, nil
			}
			up, err := t.log.HeaderIn(ctx, tx, e.Cause)
			if fault.Is(err, fault.NotFound) {
				return nil, nil // it is so old that it was pruned
			}
			if err != nil {
				return nil, err
			}
			e = up
			continue
		}
		rec, err := t.runs.RecordIn(ctx, tx, runID)
		if fault.Is(err, fault.NotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		var tr Trigger
		if rec.Key == rec.Name && json.Unmarshal(rec.Input, &tr) == nil && tr.Target == rec.Name && tr.Target != "" {
			if tr.Root == "" {
				tr.Root = rec.ID
			}
			return &tr, nil
		}
		runID, e = rec.Parent, eventlog.Event{Cause: rec.Cause}
	}
	return nil, nil
}

// runOf is the run an event belongs to, "" if none.
func runOf(e eventlog.Event) string {
	for _, text := range []string{e.Trace, strings.TrimPrefix(e.Stream, "run:"), e.Cause} {
		if isRun(text) {
			return text
		}
	}
	return ""
}

// refused is why a storm does not get a start, once for each first cause; the rest is
// counted. Replaying the event is a person's decision, and a new cause.
func (t *Triggers) refused(ctx context.Context, tx *db.Tx, tr Trigger, from origin, why error) error {
	if !errors.Is(why, errStorm) || from.refuse {
		return why
	}
	var n int64
	err := tx.QueryRow(ctx, `INSERT INTO cascades (root, runs, refused, at) VALUES ($1, 0, 1, $2)
		ON CONFLICT (root) DO UPDATE SET refused = cascades.refused + 1, at = excluded.at RETURNING refused`, tr.Root, tx.Now()).Scan(&n)
	if err != nil || n > 1 {
		return err
	}
	return why
}
