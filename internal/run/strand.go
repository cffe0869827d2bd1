package run

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/ombud-run/ombud/internal/db"
)

// errJoined unwinds a branch whose join was decided without it.
var errJoined = errors.New("the join was decided without this branch")

// strand is a branch of Parallel in one execution. It is found by the context its
// branch works with.
type strand struct {
	branch   Branch
	settling bool // only what a crash left open is closed; nothing begins

	// The coordinator's own.
	working bool
	rests   []wait // of its last pass; empty if it did not park
	out     *Outcome

	mu    sync.Mutex
	waits []wait // of the pass under way
}

// wait is one thing a run or a branch waits for.
type wait struct {
	what  Wait
	ref   string
	until int64
	ready func(ctx context.Context, tx *db.Tx) (bool, error) // may be nil
}

type strandKey struct{}

func strandOf(ctx context.Context) *strand {
	s, _ := ctx.Value(strandKey{}).(*strand)
	return s
}

// settles reports whether the branch of ctx may only close what is open.
func settles(ctx context.Context) bool {
	s := strandOf(ctx)
	return s != nil && s.settling
}

// resting reports whether the pass under way has come to a wait.
func (s *strand) resting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waits) > 0
}

// rest lets a branch wait while others may still work. ready is asked in a commit of
// its own, so that what it writes, such as a question, is there at once.
func (r *Run) rest(ctx context.Context, s *strand, w wait) error {
	if s.settling {
		return errJoined
	}
	if err := r.enter(ctx); err != nil {
		return err
	}
	defer r.exit()
	err := r.insist(ctx, func() error {
		return r.commitAll(nil, func(ctx context.Context, tx *db.Tx, _ []change) error { return w.check(ctx, tx) })
	})
	if errors.Is(err, errReady) {
		return nil
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = append(s.waits, w)
	return errParked
}

// check is errReady if what is waited for is there already.
func (w wait) check(ctx context.Context, tx *db.Tx) error {
	if w.ready == nil {
		return nil
	}
	there, err := w.ready(ctx, tx)
	if err == nil && there {
		err = errReady
	}
	return err
}

// several is the wait for the first of some.
func several(step string, waits []wait) wait {
	if len(waits) == 1 {
		return waits[0]
	}
	all := wait{what: ForSeveral, ref: step, until: never}
	for _, w := range waits {
		all.until = min(all.until, w.until)
	}
	all.ready = func(ctx context.Context, tx *db.Tx) (bool, error) {
		for _, w := range waits {
			err := w.check(ctx, tx)
			if errors.Is(err, errReady) {
				return true, nil
			}
			if err != nil {
				return false, err
			}
		}
		return false, nil
	}
	return all
}

// pass is what became of one call of a branch.
type pass struct {
	s        *strand
	result   json.RawMessage
	err      error
	panicked any
}

// begin calls the branch on a goroutine of its own; the coordinator waits for it.
func (s *strand) begin(ctx context.Context, done chan<- pass) {
	s.working, s.rests, s.waits = true, nil, nil
	go func() {
		p := pass{s: s}
		defer func() {
			p.panicked = recover()
			done <- p
		}()
		p.result, p.err = s.branch.Do(ctx)
	}()
}
