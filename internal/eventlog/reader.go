package eventlog

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// lazyMove is how many events nobody chose may pass before the position is
// written for their sake alone.
const lazyMove = 1024

// reader is one subscription being read. Only its loop, or a test, uses it.
type reader struct {
	log      *Log
	sub      Subscription
	position int64 // as stored
	seen     int64 // looked up to here; nothing was chosen after position
	retryAt  int64 // when the first blocked stream is due, 0: none is blocked
	loaded   bool  // retryAt was read from the store
}

// item is an event to handle, or one that cannot be opened, which is handled like
// one whose handler fails.
type item struct {
	Event
	err error
}

// How to run the handlers of several events in one transaction.
type mode bool

const (
	together mode = false // the first failure undoes all
	singly   mode = true  // a savepoint each, a failure blocks its stream
)

// errStale says that another node moved what we were about to move.
var errStale = errors.New("somebody else moved the position")

// handlerError is a failure of the subscription's own function.
type handlerError struct{ err error }

func (e *handlerError) Error() string { return e.err.Error() }
func (e *handlerError) Unwrap() error { return e.err }

// runOnce retries what is due and handles the next batch. It reports whether
// there is more to do at once.
func (r *reader) runOnce(ctx context.Context) (more bool, err error) {
	if err := r.retry(ctx); err != nil {
		return false, err
	}
	filter := r.sub.filter(ctx)
	items, upTo, top, err := r.log.next(ctx, r.seen, filter)
	if err != nil {
		return false, err
	}
	if !filter.same(r.sub.filter(ctx)) {
		return true, nil
	}
	if len(items) > 0 || upTo-r.position >= lazyMove {
		err = r.try(ctx, func(m mode) error { return r.advance(ctx, items, upTo, m) })
		if err != nil {
			return false, err
		}
		r.position = upTo
	}
	r.seen = upTo
	return upTo < top, nil
}

// try runs a step with all events together and, if a handler failed, once more
// with each by itself. Failures of the store are returned and count against no
// event.
func (r *reader) try(ctx context.Context, step func(mode) error) error {
	err := step(together)
	if err == nil || ctx.Err() != nil {
		return err
	}
	_, ours := errors.AsType[*handlerError](err)
	if ours || !fault.Is(err, fault.Unavailable) && !fault.Is(err, fault.Unknown) && !errors.Is(err, errStale) {
		err = step(singly) // a handler that swallowed a statement's error ends here too
	}
	if errors.Is(err, errStale) || fault.Is(err, fault.Unknown) {
		return errors.Join(err, r.reload(ctx))
	}
	return err
}

// next returns a page of events after a position, from memory if they are there.
func (l *Log) next(ctx context.Context, after int64, f Filter) (items []item, upTo, top int64, err error) {
	if items, upTo, top, ok := l.recent.after(after, page, f); ok {
		return items, upTo, top, nil
	}
	rows, upTo, top, err := l.readPage(ctx, after, page, f)
	return l.items(rows), upTo, top, err
}

func (l *Log) items(rows []row) []item {
	out := make([]item, len(rows))
	for i, raw := range rows {
		e, err := l.open(raw)
		if err != nil {
			e = raw.Event
		}
		out[i] = item{e, err}
	}
	return out
}

// advance moves the position and handles the events up to it, in one transaction.
func (r *reader) advance(ctx context.Context, items []item, to int64, m mode) error {
	retryAt := r.retryAt
	err := r.log.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		retryAt = r.retryAt
		n, err := tx.Exec(ctx, `UPDATE subscriptions SET position = $2 WHERE name = $1 AND position = $3 AND position <= $2`,
			r.sub.Name, to, r.position)
		if err != nil || n == 0 {
			return errors.Join(err, staleIf(n == 0 && err == nil))
		}
		blocked, err := r.blockedStreams(ctx, tx)
		if err != nil {
			return err
		}
		for _, it := range items {
			if blocked[it.Stream] {
				continue
			}
			err := r.handle(ctx, tx, it, m)
			if failure, ok := errors.AsType[*handlerError](err); ok && m == singly {
				next, err := r.failed(ctx, tx, it.Event, 1, tx.Now(), failure)
				if err != nil {
					return err
				}
				if next > 0 {
					blocked[it.Stream] = true
					retryAt = earliest(retryAt, next)
				}
				continue
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		r.retryAt = retryAt
	}
	return err
}

func staleIf(stale bool) error {
	if stale {
		return errStale
	}
	return nil
}

func earliest(a, b int64) int64 {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// handle runs the handler. Singly, it is undone by itself if it fails.
func (r *reader) handle(ctx context.Context, tx *db.Tx, it item, m mode) error {
	if m == together {
		return r.call(ctx, tx, it)
	}
	err := tx.Savepoint(ctx, func(ctx context.Context, tx *db.Tx) error { return r.call(ctx, tx, it) })
	if err == nil {
		return nil
	}
	if failure, ok := errors.AsType[*handlerError](err); ok {
		return failure
	}
	return &handlerError{err}
}

func (r *reader) call(ctx context.Context, tx *db.Tx, it item) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.log.log.Error("handler panicked", "subscription", r.sub.Name, "event", it.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = &handlerError{fault.New(fault.Internal, "the handler panicked: %v", p)}
		}
	}()
	if it.err != nil {
		return &handlerError{it.err}
	}
	if err := r.sub.Handle(ctx, tx, it.Event); err != nil {
		return &handlerError{err}
	}
	return nil
}

func (r *reader) blockedStreams(ctx context.Context, q db.Q) (map[string]bool, error) {
	streams, err := db.All(ctx, q, db.Column[string], `SELECT stream FROM blocked WHERE subscription = $1`, r.sub.Name)
	if err != nil {
		return nil, err
	}
	out := make(map[string]bool, len(streams))
	for _, s := range streams {
		out[s] = true
	}
	return out, nil
}

// untilRetry is how long the loop may wait: until the next retry, at most limit.
func (r *reader) untilRetry(limit time.Duration) time.Duration {
	if r.retryAt == 0 {
		return limit
	}
	due := time.Duration(r.retryAt-r.log.now().UnixMicro()) * time.Microsecond
	return min(max(due, 0), limit)
}
