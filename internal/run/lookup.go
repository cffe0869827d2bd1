package run

import (
	"context"

	"github.com/ombud-run/ombud/internal/db"
)

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
