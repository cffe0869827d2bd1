package run

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// lazyStep is an outcome that rides with the next commit.
type lazyStep struct {
	spec StepSpec
	seq  int64
	out  Outcome
}

// commit appends one event to the run, with what extra writes, as its owner.
func (r *Run) commit(c change, extra func(ctx context.Context, tx *db.Tx) error) error {
	return r.commitAll([]change{c}, func(ctx context.Context, tx *db.Tx, _ []change) error {
		if extra == nil {
			return nil
		}
		return extra(ctx, tx)
	})
}

// commitAll appends events to the run as its owner, the waiting lazy outcomes
// first. extra runs before them in the same transaction and may fill them in.
func (r *Run) commitAll(changes []change, extra func(ctx context.Context, tx *db.Tx, c []change) error) error {
	r.mu.Lock()
	lazy := r.pending // taken out, so that a parallel commit does not write them too
	r.pending = nil
	r.mu.Unlock()
	var outs []Outcome
	var event string // the last one, to find out what became of a commit in doubt
	look, relied := false, false
	fn := func(ctx context.Context, tx *db.Tx) error {
		if look {
			r.known = nil
		}
		relied = r.known != nil
		var all []change
		outs = outs[:0]
		for _, l := range lazy {
			out := l.out
			c := r.closing(l.spec, l.seq, &out)
			if err := r.onClose(ctx, tx, l.spec, &out, &c); err != nil {
				return err
			}
			all, outs = append(all, c), append(outs, out)
		}
		mine := append([]change(nil), changes...)
		if err := extra(ctx, tx, mine); err != nil {
			return err
		}
		event = ""
		all = append(all, mine...)
		for i, c := range all {
			if c.actor == "" {
				all[i].actor = r.rec.Actor
			}
		}
		rec, err := r.advance(ctx, tx, all)
		if err == nil {
			event = rec.lastEvent
		}
		return err
	}
	err := r.e.db.InTx(context.WithoutCancel(r.ctx), fn)
	if relied && (errors.Is(err, errMoved) || fault.Is(err, fault.Conflict)) { // what it knew of its rows is forgotten
		look = true
		err = r.e.db.InTx(context.WithoutCancel(r.ctx), fn)
	}
	if event != "" && fault.Is(err, fault.Unknown) {
		err = r.whatBecame(event, err)
	}
	if errors.Is(err, errLost) {
		r.cancel(errLost)
	}
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.pending = append(lazy, r.pending...)
		return err
	}
	for i, l := range lazy {
		r.remember(l.spec, l.seq, outs[i])
	}
	return nil
}

// known is what the owner of a run knows of its rows without looking. A commit that
// was rolled back, or somebody else, may have made it wrong: then the head in the
// row is another and the commit that relied on it is refused.
type known struct {
	rec   Record
	steps map[string]*Step
}

// advance is the engine's, from what is known if that is possible.
func (r *Run) advance(ctx context.Context, tx *db.Tx, changes []change) (Record, error) {
	k := r.known
	if k == nil {
		return r.e.advance(ctx, tx, r.rec.ID, r.rec.Fence, changes...)
	}
	v := view{Record: k.rec, steps: map[string]*Step{}}
	err := r.e.apply(ctx, tx, &v, changes, func(name string) (*Step, error) {
		s, ok := k.steps[name]
		if !ok {
			return nil, nil
		}
		own := *s
		return &own, nil
	})
	if err != nil {
		return v.Record, err
	}
	k.rec = v.Record
	maps.Copy(k.steps, v.steps)
	return v.Record, nil
}

// flush records the lazy outcomes that no other commit took along.
func (r *Run) flush() error {
	r.mu.Lock()
	none := len(r.pending) == 0
	r.mu.Unlock()
	if none {
		return nil
	}
	return r.insist(context.WithoutCancel(r.ctx), func() error {
		return r.commitAll(nil, func(context.Context, *db.Tx, []change) error { return nil })
	})
}

// whatBecame finds out whether a commit that the store did not confirm is there:
// nil if it is, class Unavailable if it is not and may be tried again.
func (r *Run) whatBecame(event string, cause error) error {
	err := r.insist(context.WithoutCancel(r.ctx), func() error {
		_, err := r.e.log.ByID(context.WithoutCancel(r.ctx), event)
		return err
	})
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.Unavailable, "it is not there: %w", cause)
	}
	return err
}

// insist repeats a commit while the store is unavailable, until ctx ends, the run
// was taken over or the daemon's grace is over.
func (r *Run) insist(ctx context.Context, commit func() error) error {
	pause := 100 * time.Millisecond
	for {
		err := commit()
		if !fault.Is(err, fault.Unavailable) {
			return err
		}
		if errors.Is(context.Cause(r.ctx), errLost) || errors.Is(err, db.ErrReplaced) {
			return errors.Join(errLost, err)
		}
		r.e.slog.Warn("a run waits for the store", "run", r.rec.ID, "error", err)
		select {
		case <-time.After(pause):
			pause = min(2*pause, 5*time.Second)
		case <-r.e.graceOver:
			return errors.Join(errStopping, err)
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}
