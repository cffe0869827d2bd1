package agent

import (
	"context"

	"github.com/ombud-run/ombud/internal/run"
)

// Watch returns the notes of a turn from now on. stop must be called.
func (a *Agents) Watch(run string) (notes <-chan Note, stop func()) { return a.live.Watch(run) }

// Over reports whether nothing more of a turn is to be seen for now: it has ended, waits, or
// cannot be found.
func (a *Agents) Over(ctx context.Context, id string) bool {
	rec, _, err := a.Runs.Get(ctx, id)
	return err != nil || rec.State.Ended() || rec.State == run.Waiting
}
