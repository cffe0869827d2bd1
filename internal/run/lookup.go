package run

import (
	"context"
	"strings"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
)

// Get returns a run and its steps in order.
func (e *Engine) Get(ctx context.Context, id string) (rec Record, steps []*Step, err error) {
	err = e.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		if rec, err = e.load(ctx, q, id); err != nil {
			return err
		}
		steps, err = e.loadSteps(ctx, q, id)
		return err
	})
	return rec, steps, err
}

// Filter narrows List. Zero fields do not narrow.
type Filter struct {
	State  State
	Live   bool // every state that can still change
	Kind   string
	Key    string
	Parent string
	Cause  string
	Before int64 // Seq, exclusive; 0 for the newest
	Limit  int   // default 50, at most 1000
}

// List returns runs, the newest first.
func (e *Engine) List(ctx context.Context, f Filter) (out []Record, err error) {
	where, args := []string{"seq < $1"}, []any{int64(never)}
	if f.Before > 0 {
		args[0] = f.Before
	}
	for column, value := range map[string]string{"state": string(f.State), "kind": f.Kind, "key": f.Key, "parent": f.Parent, "cause": f.Cause} {
		if value != "" {
			args = append(args, value)
			where = append(where, column+" = $"+itoa(len(args))+" AND "+column+" <> ''")
		}
	}
	if f.Live {
		where = append(where, "ended = 0")
	}
	limit := f.Limit
	if limit <= 0 {
		limit = 50
	}
	args = append(args, min(limit, 1000))
	query := "SELECT " + runColumns + " FROM runs WHERE " + strings.Join(where, " AND ") + " ORDER BY seq DESC LIMIT $" + itoa(len(args))
	err = e.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = db.All(ctx, q, func(r *db.Rows) (Record, error) { return e.scanRun(r.Scan) }, query, args...)
		return err
	})
	return out, err
}

// beginning finds runs by the beginning of their id.
const beginning = "SELECT id FROM runs WHERE id >= $1 AND id < $2 ORDER BY id LIMIT 2"

// Find returns the id of the one run whose id begins with prefix. Errors: NotFound,
// Invalid if several do.
func (e *Engine) Find(ctx context.Context, prefix string) (string, error) {
	var ids []string
	err := e.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		ids, err = db.All(ctx, q, db.Column[string], beginning, prefix, id.Behind(prefix))
		return err
	})
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0 || prefix == "":
		return "", fault.New(fault.NotFound, "no run %q", prefix)
	case len(ids) > 1:
		return "", fault.New(fault.Invalid, "several runs begin with %q", prefix).WithHint("give more of the id")
	}
	return ids[0], nil
}

// CausedIn reports whether an event has started a run of a name, other than as the child
// of another.
func (e *Engine) CausedIn(ctx context.Context, q db.Q, name, cause string) (bool, error) {
	var n int64
	err := q.QueryRow(ctx, "SELECT count(*) FROM runs WHERE cause = $1 AND cause <> '' AND name = $2 AND parent = ''", cause, name).Scan(&n)
	return n > 0, err
}

// Counts is how many runs are in each live state.
func (e *Engine) Counts(ctx context.Context) (map[State]int64, error) {
	out := map[State]int64{}
	err := e.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		rows, err := q.Query(ctx, "SELECT state, count(*) FROM runs WHERE ended = 0 GROUP BY state")
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }() // Err below tells what went wrong
		for rows.Next() {
			var s State
			var n int64
			if err := rows.Scan(&s, &n); err != nil {
				return err
			}
			out[s] = n
		}
		return rows.Err()
	})
	return out, err
}

// StepCounts is how many steps each of some runs has recorded.
func (e *Engine) StepCounts(ctx context.Context, runs []Record) (map[string]int, error) {
	out := map[string]int{}
	if len(runs) == 0 {
		return out, nil
	}
	var marks []string
	var args []any
	for i, r := range runs {
		marks, args = append(marks, "$"+itoa(i+1)), append(args, r.ID)
	}
	err := e.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		rows, err := q.Query(ctx, "SELECT run, count(*) FROM steps WHERE run IN ("+strings.Join(marks, ", ")+") GROUP BY run", args...)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }() // Err below tells what went wrong
		for rows.Next() {
			var id string
			var n int
			if err := rows.Scan(&id, &n); err != nil {
				return err
			}
			out[id] = n
		}
		return rows.Err()
	})
	return out, err
}

// RecordIn returns a run as the caller's transaction or snapshot sees it.
func (e *Engine) RecordIn(ctx context.Context, q db.Q, id string) (Record, error) {
	return e.load(ctx, q, id)
}

// WorkedOn reports whether a run is still in the execution that has this fence:
// since it was claimed it has not ended, waited, been stopped or been taken back.
func (e *Engine) WorkedOn(ctx context.Context, q db.Q, id string, fence int64) (Record, bool, error) {
	cur, err := e.load(ctx, q, id)
	return cur, err == nil && cur.State == Running && cur.Fence == fence, err
}

// Knows reports whether runs of a kind can be started here.
func (e *Engine) Knows(kind string) bool {
	_, ok := e.kinds.get(kind)
	return ok
}
