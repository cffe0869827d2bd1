package run

import (
	"context"
	"slices"
	"strings"
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
	lastLook := time.Now()
	var dropped []lostRun
	for {
		if err := e.fireOnce(ctx); err != nil && ctx.Err() == nil {
			e.slog.Warn("fire timers", "error", err)
		}
		if err := e.hearCancels(ctx); err != nil && ctx.Err() == nil {
			e.slog.Warn("look for cancelled runs", "error", err)
		}
		if err := e.saveProgress(ctx); err != nil && ctx.Err() == nil {
			e.slog.Warn("store how far runs are", "error", err)
		}
		if time.Since(lastLook) > e.opt.LeaseTTL/3 {
			lastLook = time.Now()
			dropped = e.look(ctx, dropped)
		}
		select {
		case <-woken:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// look is what upkeep does a few times in a lease.
func (e *Engine) look(ctx context.Context, before []lostRun) []lostRun {
	dropped, err := e.dropped(ctx, before)
	if err == nil && e.db.Postgres() {
		err = e.renew(ctx, 0)
	}
	if err == nil && e.db.Postgres() {
		err = e.recoverOnce(ctx, false)
	}
	if err != nil && ctx.Err() == nil {
		e.slog.Warn("keep the lease and take over from dead nodes", "error", err)
	}
	return dropped
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

// lostRun is a run whose owner seems to be gone.
type lostRun struct {
	id, owner string
	fence     int64
}

func scanLost(r *db.Rows) (l lostRun, err error) {
	err = r.Scan(&l.id, &l.owner, &l.fence)
	return l, err
}

// recoverOnce takes back the runs of nodes that are gone. On SQLite the lock file
// proves that every other node is dead, without looking at a clock.
func (e *Engine) recoverOnce(ctx context.Context, othersDead bool) error {
	lost, err := e.lostRuns(ctx, othersDead)
	if err != nil {
		return err
	}
	for _, l := range lost {
		err := e.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			if !othersDead && !e.predecessor(l.owner) {
				if alive, err := e.alive(ctx, tx, l.id, l.owner); err != nil || alive {
					return err
				}
			}
			return e.takeBack(ctx, tx, l, "its node is gone", true)
		})
		if err != nil && !fault.Is(err, fault.Conflict) {
			return err
		}
	}
	return e.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM nodes WHERE id <> $1 AND ($2 = 1 OR id LIKE $3)", e.node, flag(othersDead), e.sameHome())
		return err
	})
}

// ForgetNodesTx forgets every node that was alive in a store: it was restored from a
// backup, so none of them writes to this one.
func ForgetNodesTx(ctx context.Context, tx *db.Tx) error {
	_, err := tx.Exec(ctx, "DELETE FROM nodes")
	return err
}

func (e *Engine) lostRuns(ctx context.Context, othersDead bool) (lost []lostRun, err error) {
	query := "SELECT id, owner, fence FROM runs WHERE state IN ('running', 'cancelling') AND owner <> $1"
	if !othersDead {
		query += ` AND (owner LIKE $2 OR NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.id = runs.owner
			AND nodes.expires > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)`
		if e.opt.Sole {
			query += " OR NOT EXISTS (SELECT 1 FROM steps WHERE steps.run = runs.id AND " + underWay + ")"
		}
		query += ")"
	}
	err = e.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		args := []any{e.node}
		if !othersDead {
			args = append(args, e.sameHome())
		}
		lost, err = db.All(ctx, q, scanLost, query+" ORDER BY seq", args...)
		return err
	})
	return lost, err
}

// predecessor reports whether a node is an earlier one of this home.
func (e *Engine) predecessor(node string) bool {
	return e.opt.Home != "" && node != e.node && strings.HasPrefix(node, e.opt.Home+"/")
}

// underWay chooses the steps of a run whose effect may be under way. Others have none,
// or one that may be repeated.
const underWay = "state = 'open' AND policy IN ('at_most_once', 'probed')"

// alive reports whether a run's node has a lease that has not ended and that is to be
// waited for.
func (e *Engine) alive(ctx context.Context, tx *db.Tx, run, node string) (bool, error) {
	now, err := tx.Clock(ctx)
	if err != nil {
		return false, err
	}
	var n int
	err = tx.QueryRow(ctx, "SELECT count(*) FROM nodes WHERE id = $1 AND expires > $2", node, now).Scan(&n)
	if err != nil || n == 0 || !e.opt.Sole {
		return n > 0, err
	}
	err = tx.QueryRow(ctx, "SELECT count(*) FROM steps WHERE run = $1 AND "+underWay, run).Scan(&n)
	return n > 0, err
}

// dropped takes back the runs of this node on which it does not work: a claim or an
// end whose commit was not confirmed, or an end that could not be recorded. before
// is what the last look found; only what is found twice was not merely in between.
func (e *Engine) dropped(ctx context.Context, before []lostRun) (now []lostRun, err error) {
	err = e.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		now, err = db.All(ctx, q, scanLost, "SELECT id, owner, fence FROM runs WHERE state IN ('running', 'cancelling') AND owner = $1", e.node)
		return err
	})
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	now = slices.DeleteFunc(now, func(l lostRun) bool { return e.live[l.id] != nil })
	e.mu.Unlock()
	for _, l := range now {
		if !slices.Contains(before, l) {
			continue
		}
		e.slog.Warn("a run was dropped; it is taken back", "run", l.id)
		err := e.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return e.takeBack(ctx, tx, l, "it was dropped", false) })
		if err != nil {
			return now, err
		}
	}
	return now, nil
}

// takeBack queues a run that its owner lost, or ends it if it was being cancelled
// or has taken too many nodes down. lost is the run as it was found: if somebody
// has moved it meanwhile, or its owner is heard of again, it is left alone.
func (e *Engine) takeBack(ctx context.Context, tx *db.Tx, lost lostRun, why string, crash bool) error {
	rec, err := e.load(ctx, tx, lost.id)
	if err != nil || rec.Owner != lost.owner || rec.Fence != lost.fence {
		return err
	}
	kind, known := e.kinds.get(rec.Kind)
	switch {
	case rec.State == Cancelling:
		return e.endCancelled(ctx, tx, kind, rec, noFence)
	case rec.State != Running:
		return nil
	case crash && rec.Crashes+1 >= maxCrashes && known:
		if _, err := e.closeOpen(ctx, tx, rec, noFence); err != nil {
			return err
		}
		return e.endTx(ctx, tx, kind, rec.ID, noFence, change{kind: evFailed, actor: "ombud", data: endedData{
			Class: fault.Internal, Error: "the daemon died " + itoa(rec.Crashes+1) + " times while doing this, so it was given up",
		}})
	}
	_, err = e.advance(ctx, tx, rec.ID, noFence, change{
		kind: evRequeued, actor: "ombud", data: requeuedData{Why: why, Crash: crash}, nextAt: e.soon(tx),
	})
	return err
}

// endCancelled ends a run that is being cancelled and on which nobody works any
// more. If a step may have happened it is for a person to look, unless the kind
// tells of such steps itself.
func (e *Engine) endCancelled(ctx context.Context, tx *db.Tx, kind Kind, rec Record, fence int64) error {
	doubt, err := e.closeOpen(ctx, tx, rec, fence)
	if err != nil {
		return err
	}
	if doubt && !kind.TellUnknown {
		_, err := e.advance(ctx, tx, rec.ID, fence, change{kind: evUncertain, actor: "ombud", data: endedData{
			Class: fault.Unknown, Error: "cancelled while a step was under way",
		}})
		return err
	}
	return e.endTx(ctx, tx, kind, rec.ID, fence, change{kind: evCancelled, actor: "ombud", data: endedData{Class: fault.Cancelled, Error: "cancelled"}})
}

// closeOpen closes the steps of a run that will not be resumed. It reports whether
// one of them may have happened.
func (e *Engine) closeOpen(ctx context.Context, tx *db.Tx, rec Record, fence int64) (doubt bool, err error) {
	open, err := db.All(ctx, tx, func(r *db.Rows) (*Step, error) { return e.scanStep(rec.ID, r.Scan) },
		"SELECT "+stepColumns+" FROM steps WHERE run = $1 AND state = 'open' ORDER BY seq", rec.ID)
	if err != nil {
		return false, err
	}
	for _, s := range open {
		d := stepData{Name: s.Name, State: Errored, Class: fault.Cancelled, Error: "it was interrupted", CostKnown: s.Policy != Noted}
		if s.Policy == AtMostOnce || s.Policy == Probed {
			d.State, d.Class, doubt = Unknown, fault.Unknown, true
			d.Error = "it was interrupted: it may or may not have happened"
		}
		if _, err := e.advance(ctx, tx, rec.ID, fence, change{kind: evStepClosed, actor: "ombud", step: s.Name, data: d}); err != nil {
			return doubt, err
		}
	}
	return doubt, nil
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
