package eventlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// Subscription is a named reader of the log with a position that survives.
//
// Handle's writes and the move of the position are one transaction, so an event
// is handled exactly once as far as rows go. It must keep to the rules of
// db.InTx: no I/O, no goroutine, and no harm in being run again after it was
// rolled back. It must not change e.Data, which others see too. It sees the events of one stream in order; between streams, a
// failing one stays behind.
type Subscription struct {
	Name   string
	Filter Filter
	// FilterNow is asked for the filter before every look, in the place of Filter, where
	// what is chosen changes while the subscription runs. It is asked again after the
	// look, which counts only if the answer is the same: so no event is left out that was
	// chosen by the time it was committed.
	FilterNow func(ctx context.Context) Filter
	Handle    func(ctx context.Context, tx *db.Tx, e Event) error
}

func (s *Subscription) filter(ctx context.Context) Filter {
	if s.FilterNow != nil {
		return s.FilterNow(ctx)
	}
	return s.Filter
}

// loops are the running subscriptions.
type loops struct {
	mu      sync.Mutex
	cancel  context.CancelFunc
	readers map[string]*reader
	done    sync.WaitGroup
}

// Start registers the subscriptions, new ones at the head of the log, and runs a
// loop for each until Stop. It returns when all are registered. Starting the same
// ones again does nothing; other ones while running are a Conflict.
func (l *Log) Start(ctx context.Context, subs ...Subscription) error {
	l.loops.mu.Lock()
	defer l.loops.mu.Unlock()
	if l.loops.cancel != nil {
		for _, s := range subs {
			if l.loops.readers[s.Name] == nil {
				return fault.New(fault.Conflict, "the log is running already, without subscription %q", s.Name)
			}
		}
		return nil
	}
	readers, err := l.register(ctx, subs)
	if err != nil {
		return err
	}
	ctx, l.loops.cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.loops.readers = readers
	for _, r := range readers {
		l.loops.done.Go(func() { r.loop(ctx) })
	}
	return nil
}

// Stop ends the loops and waits for them. What they were handling is either
// committed or will be handled after the next Start. It is safe to call twice.
func (l *Log) Stop() {
	l.loops.mu.Lock()
	defer l.loops.mu.Unlock()
	if l.loops.cancel == nil {
		return
	}
	l.loops.cancel()
	l.loops.done.Wait()
	l.loops.cancel, l.loops.readers = nil, nil
}

func (l *Log) running(name string) *reader {
	l.loops.mu.Lock()
	defer l.loops.mu.Unlock()
	return l.loops.readers[name]
}

func (l *Log) register(ctx context.Context, subs []Subscription) (map[string]*reader, error) {
	readers := map[string]*reader{}
	for _, s := range subs {
		if s.Name == "" || s.Handle == nil || readers[s.Name] != nil {
			return nil, fault.New(fault.Internal, "subscription %q: it has no name or handler, or the name twice", s.Name)
		}
		readers[s.Name] = &reader{log: l, sub: s}
	}
	if len(readers) == 0 {
		return readers, nil
	}
	positions := map[string]int64{}
	err := l.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		top, err := newest(ctx, tx)
		if err != nil {
			return err
		}
		for name := range readers {
			var at int64
			err := tx.QueryRow(ctx, `INSERT INTO subscriptions (name, position, started_at) VALUES ($1, $2, $3)
				ON CONFLICT (name) DO UPDATE SET started_at = excluded.started_at RETURNING position`, name, top, tx.Now()).Scan(&at)
			if err != nil {
				return fmt.Errorf("register subscription %q: %w", name, err)
			}
			positions[name] = at
		}
		return nil
	})
	for name, r := range readers {
		r.position, r.seen = positions[name], positions[name]
	}
	return readers, err
}

// newest is the head as this transaction sees it, with what neighbours in the
// batch have appended and not yet counted.
func newest(ctx context.Context, tx *db.Tx) (int64, error) {
	var last int64
	if err := tx.QueryRow(ctx, `SELECT COALESCE(max(position), 0) FROM events`).Scan(&last); err != nil {
		return 0, err
	}
	counted, err := head(ctx, tx)
	return max(last, counted), err
}

// loop runs until ctx ends. After an error it waits longer each time, up to half
// a minute, whatever hints arrive: a store that is down is not asked for ever.
func (r *reader) loop(ctx context.Context) {
	wake, unwatch := r.log.db.Watch(Topic)
	defer unwatch()
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for {
		more, err := r.runOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		hint := wake
		wait := r.untilRetry(r.log.poll)
		switch {
		case err != nil:
			wait = min(r.log.poll<<min(failures, 5), 30*time.Second)
			failures++
			hint = nil
			r.log.log.Warn("subscription cannot go on", "subscription", r.sub.Name, "error", err, "again_in", wait)
		case more:
			failures = 0
			continue
		default:
			failures = 0
		}
		timer.Reset(wait)
		select {
		case <-hint:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// Status is how a subscription stands.
type Status struct {
	Name        string
	Position    int64 // every chosen event up to here is handled, blocked or dead
	Head        int64
	StartedAt   int64 // when a process last began to read for it
	Blocked     int64 // streams waiting for a retry
	DeadLetters int64 // that wait
}

// Subscriptions returns every subscription the store knows, by name, also those
// no process reads for: what nobody reads for still keeps events from Prune.
func (l *Log) Subscriptions(ctx context.Context) ([]Status, error) {
	var out []Status
	err := l.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		top, err := head(ctx, q)
		if err != nil {
			return err
		}
		out, err = db.All(ctx, q, func(r *db.Rows) (Status, error) {
			s := Status{Head: top}
			err := r.Scan(&s.Name, &s.Position, &s.StartedAt, &s.Blocked, &s.DeadLetters)
			return s, err
		}, `SELECT name, position, started_at,
			(SELECT count(*) FROM blocked WHERE subscription = name),
			(SELECT count(*) FROM dead_letters WHERE source = 'subscription' AND dead_letters.name = subscriptions.name AND state = 'waiting')
			FROM subscriptions ORDER BY name`)
		return err
	})
	return out, err
}

// Detach forgets a subscription nobody needs any more, with its blocked streams
// and dead letters. One that runs here is a Conflict.
func (l *Log) Detach(ctx context.Context, name string) error {
	if l.running(name) != nil {
		return fault.New(fault.Conflict, "subscription %q is in use", name)
	}
	return l.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := tx.Exec(ctx, `DELETE FROM subscriptions WHERE name = $1`, name)
		if err == nil && n == 0 {
			err = fault.New(fault.NotFound, "no subscription %q", name)
		}
		for _, stmt := range []string{`DELETE FROM blocked WHERE subscription = $1`, `DELETE FROM dead_letters WHERE source = 'subscription' AND name = $1`} {
			if err == nil {
				_, err = tx.Exec(ctx, stmt, name)
			}
		}
		return err
	})
}

// reload takes the position from the store: another node has moved it.
func (r *reader) reload(ctx context.Context) error {
	return r.log.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		err := q.QueryRow(ctx, `SELECT position FROM subscriptions WHERE name = $1`, r.sub.Name).Scan(&r.position)
		if errors.Is(err, sql.ErrNoRows) {
			return fault.New(fault.NotFound, "subscription %q was detached", r.sub.Name)
		}
		r.seen = max(r.seen, r.position)
		return err
	})
}
