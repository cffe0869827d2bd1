package run

import (
	"context"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// upkeepLoop keeps this node's lease, fires timers, takes over from dead nodes
// and looks for cancellations that were asked for elsewhere.
func (e *Engine) upkeepLoop(ctx context.Context) {
	woken, stop := e.db.Watch(topicTimers)
	defer stop()
	tick := time.NewTicker(e.opt.Poll)
	defer tick.Stop()
	lastLease := time.Now()
	for {
		if err := e.fireOnce(ctx); err != nil && ctx.Err() == nil {
			e.slog.Warn("fire timers", "error", err)
		}
		if err := e.hearCancels(ctx); err != nil && ctx.Err() == nil {
			e.slog.Warn("look for cancelled runs", "error", err)
		}
		if e.db.Postgres() && time.Since(lastLease) > e.opt.LeaseTTL/3 {
			lastLease = time.Now()
			if err := e.renew(ctx, 0); err != nil && ctx.Err() == nil {
				e.slog.Warn("renew the node's lease", "error", err)
			}
			if err := e.recoverOnce(ctx, false); err != nil && ctx.Err() == nil {
				e.slog.Warn("take over from dead nodes", "error", err)
			}
		}
		select {
		case <-woken:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// renew extends this node's lease so that it covers need beyond its usual length.
func (e *Engine) renew(ctx context.Context, need time.Duration) error {
	ttl := e.opt.LeaseTTL + need
	begun := time.Now()
	err := e.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO nodes (id, expires) VALUES ($1, $2)
			ON CONFLICT (id) DO UPDATE SET expires = CASE WHEN nodes.expires > excluded.expires THEN nodes.expires ELSE excluded.expires END`,
			e.node, now+ttl.Microseconds())
		return err
	})
	if err == nil {
		e.leaseUntil(begun.Add(ttl))
	}
	return err
}

func (e *Engine) leaseUntil(t time.Time) {
	e.leaseMu.Lock()
	defer e.leaseMu.Unlock()
	if t.After(e.lease) {
		e.lease = t
	}
}

// coverEffect makes sure that the node's lease outlives an effect of that length,
// so that no other node can take the run over while it is under way. On SQLite
// there is no other node.
func (e *Engine) coverEffect(ctx context.Context, timeout time.Duration) error {
	if !e.db.Postgres() {
		return nil
	}
	e.leaseMu.Lock()
	left := time.Until(e.lease)
	e.leaseMu.Unlock()
	if left > timeout+e.opt.LeaseTTL/3 {
		return nil
	}
	return e.renew(ctx, timeout)
}

// recoverOnce takes back the runs of nodes that are gone. On SQLite the lock file
// proves that every other node is dead, without looking at a clock.
func (e *Engine) recoverOnce(ctx context.Context, othersDead bool) error {
	var lost []string
	err := e.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		if othersDead {
			lost, err = db.All(ctx, q, db.Column[string],
				"SELECT id FROM runs WHERE state IN ('running', 'cancelling') AND owner <> $1 ORDER BY seq", e.node)
			return err
		}
		lost, err = db.All(ctx, q, db.Column[string], `SELECT id FROM runs WHERE state IN ('running', 'cancelling') AND owner <> $1
			AND NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.id = runs.owner AND nodes.expires > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
			ORDER BY seq`, e.node)
		return err
	})
	if err != nil {
		return err
	}
	for _, id := range lost {
		err := e.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return e.takeBack(ctx, tx, id) })
		if err != nil && !fault.Is(err, fault.Conflict) {
			return err
		}
	}
	return e.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if othersDead {
			_, err := tx.Exec(ctx, "DELETE FROM nodes WHERE id <> $1", e.node)
			return err
		}
		return nil
	})
}

// takeBack queues a dead node's run again, or ends it if it was being cancelled
// or has taken too many nodes down.
func (e *Engine) takeBack(ctx context.Context, tx *db.Tx, id string) error {
	rec, err := e.load(ctx, tx, id)
	if err != nil || rec.Owner == e.node {
		return err
	}
	kind, known := e.kinds.get(rec.Kind)
	switch {
	case rec.State == Cancelling:
		return e.endCancelled(ctx, tx, kind, rec)
	case rec.State != Running:
		return nil
	case rec.Crashes+1 >= maxCrashes && known:
		return e.endTx(ctx, tx, kind, id, noFence, change{kind: evFailed, actor: "ombud", data: endedData{
			Class: fault.Internal, Error: "the daemon died " + itoa(rec.Crashes+1) + " times while doing this, so it was given up",
		}})
	}
	_, err = e.advance(ctx, tx, id, noFence, change{
		kind: evRequeued, actor: "ombud", data: requeuedData{Why: "its node is gone", Crash: true}, nextAt: tx.Now(),
	})
	return err
}

// endCancelled ends a run nobody works on. Steps left open may have happened.
func (e *Engine) endCancelled(ctx context.Context, tx *db.Tx, kind Kind, rec Record) error {
	steps, err := e.loadSteps(ctx, tx, rec.ID)
	if err != nil {
		return err
	}
	doubt := false
	for _, s := range steps {
		if s.State != Open {
			continue
		}
		state, class := Errored, fault.Cancelled
		if s.Policy == AtMostOnce || s.Policy == Probed {
			state, class, doubt = Unknown, fault.Unknown, true
		}
		if _, err := e.advance(ctx, tx, rec.ID, noFence, change{kind: evStepClosed, actor: "ombud", step: s.Name, data: stepData{
			Name: s.Name, State: state, Class: class, Error: "it was under way when its node died", CostKnown: s.Policy != Noted,
		}}); err != nil {
			return err
		}
	}
	if doubt && !kind.TellUnknown {
		_, err := e.advance(ctx, tx, rec.ID, noFence, change{kind: evUncertain, actor: "ombud", data: endedData{
			Class: fault.Unknown, Error: "cancelled while a step was under way",
		}})
		return err
	}
	return e.endTx(ctx, tx, kind, rec.ID, noFence, change{kind: evCancelled, actor: "ombud", data: endedData{Class: fault.Cancelled, Error: "cancelled"}})
}

// hearCancels cancels the runs of this node that somebody asked to stop.
func (e *Engine) hearCancels(ctx context.Context) error {
	e.mu.Lock()
	idle := len(e.live) == 0
	e.mu.Unlock()
	if idle {
		return nil
	}
	var ids []string
	err := e.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		ids, err = db.All(ctx, q, db.Column[string], "SELECT id FROM runs WHERE state = 'cancelling' AND owner = $1", e.node)
		return err
	})
	for _, id := range ids {
		e.cancelLocal(id)
	}
	return err
}

func (e *Engine) cancelLocal(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r, ok := e.live[id]; ok {
		r.cancel(errCancelled)
	}
}
