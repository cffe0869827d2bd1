package run

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
)

// Park lets the run wait as a row: nothing of it stays in memory. The handler
// returns the error it gets, and is called again from its beginning when the run
// is woken or until has come. ready is asked in the same transaction and prevents
// the wait if what is waited for is there already; Park then returns nil. In a branch
// of Parallel it is the branch that waits.
func (r *Run) Park(ctx context.Context, what Wait, ref string, until int64, ready func(ctx context.Context, tx *db.Tx) (bool, error)) error {
	return r.parkFor(ctx, wait{what, ref, until, ready})
}

func (r *Run) parkFor(ctx context.Context, w wait) error {
	if s := strandOf(ctx); s != nil {
		return r.rest(ctx, s, w)
	}
	err := r.leave(errParked, func() error {
		if err := r.mayBegin(ctx); err != nil {
			return err
		}
		return r.insist(ctx, func() error {
			return r.commit(change{kind: evWaiting, data: waitingData{For: w.what, Ref: w.ref, Until: w.until, Asked: r.asked()}, nextAt: w.until}, w.check)
		})
	})
	if errors.Is(err, errReady) {
		return nil
	}
	return err
}

// errReady rolls back a park that is not needed.
var errReady = errors.New("what the run would wait for is there")

// Sleep parks the run until d has passed since the step was first met.
func (r *Run) Sleep(ctx context.Context, name string, d time.Duration) error {
	at, err := r.instant(ctx, name, d)
	if err != nil || r.e.db.Time() >= at {
		return err
	}
	return r.Park(ctx, ForTimer, name, at, nil)
}

// WakeTx makes a waiting run due now, in the transaction of what woke it. A run
// that does not wait, or waits for something else, is left alone.
func (e *Engine) WakeTx(ctx context.Context, tx *db.Tx, id string, what Wait, ref string) error {
	_, err := tx.Exec(ctx, `UPDATE runs SET next_at = $1 WHERE id = $2 AND state = 'waiting'
		AND (wait = $3 AND wait_ref = $4 OR wait = 'several')`, e.soon(tx), id, what, ref)
	tx.Notify(topic)
	tx.Notify(topicOf(id)) // one of its branches may wait while others work
	return err
}

// Finish records the run's last step and its end in one commit, with the rows fn
// writes. The handler returns nil after it.
func (r *Run) Finish(ctx context.Context, spec StepSpec, result json.RawMessage, fn func(ctx context.Context, tx *db.Tx) error) error {
	kind, _ := r.e.kinds.get(r.rec.Kind)
	spec.Policy = Policy{Kind: Repeatable}
	out := Succeed(result)
	changes := []change{r.closing(spec, r.nextSeq(), &out), {kind: evCompleted, data: endedData{ResultMAC: r.e.contentMAC(r.rec.ID, "", result)}, result: result}}
	left := r.Any(func(s Step) bool { return s.State == Open })
	err := r.leave(errEnded, func() error {
		if err := r.mayBegin(ctx); err != nil {
			return err
		}
		return r.insist(ctx, func() error {
			return r.commitAll(changes, func(ctx context.Context, tx *db.Tx, c []change) error {
				if err := fn(ctx, tx); err != nil {
					return err
				}
				if left { // begun before a crash, and given up
					if _, err := r.e.closeOpen(ctx, tx, r.rec, r.rec.Fence); err != nil {
						return err
					}
				}
				if err := r.onClose(ctx, tx, spec, &out, &c[0]); err != nil {
					return err
				}
				return r.e.ended(ctx, tx, kind, r.rec, Completed)
			})
		})
	})
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// end records the end of a run as its owner. A run that somebody asked to stop
// ends as cancelled, whatever it came to.
func (r *Run) end(kind Kind, event string, d endedData, result json.RawMessage) error {
	return r.insist(context.WithoutCancel(r.ctx), func() error {
		return r.e.db.InTx(context.WithoutCancel(r.ctx), func(ctx context.Context, tx *db.Tx) error {
			cur, err := r.e.load(ctx, tx, r.rec.ID)
			switch {
			case err != nil:
				return err
			case cur.State == Cancelling:
				return r.e.endCancelled(ctx, tx, kind, cur, r.rec.Fence)
			case event == evCancelled:
				if cur, err = r.e.advance(ctx, tx, r.rec.ID, r.rec.Fence, change{kind: evCancelling, data: endedData{By: "ombud"}}); err != nil {
					return err
				}
				return r.e.endCancelled(ctx, tx, kind, cur, r.rec.Fence)
			}
			if _, err := r.e.closeOpen(ctx, tx, cur, r.rec.Fence); err != nil {
				return err
			}
			return r.e.endTx(ctx, tx, kind, r.rec.ID, r.rec.Fence, change{kind: event, actor: r.rec.Actor, data: d, result: result})
		})
	})
}

// endTx ends a run and lets its kind tell of it, in one transaction.
func (e *Engine) endTx(ctx context.Context, tx *db.Tx, kind Kind, id string, fence int64, c change) error {
	rec, err := e.advance(ctx, tx, id, fence, c)
	if err != nil {
		return err
	}
	return e.ended(ctx, tx, kind, rec, rec.State)
}

// ended lets a kind tell of its run's end. If it cannot, the run ends all the same
// and that is told instead: a run that never ends would hold its key for ever.
func (e *Engine) ended(ctx context.Context, tx *db.Tx, kind Kind, rec Record, state State) error {
	tx.Notify(topic)
	if err := e.letGo(ctx, tx, rec.ID); err != nil {
		return err
	}
	if state == Failed {
		if err := e.bury(ctx, tx, kind, rec); err != nil {
			return err
		}
	}
	if kind.Ended == nil {
		return nil
	}
	rec.State = state
	err := tx.Savepoint(ctx, func(ctx context.Context, tx *db.Tx) error { return kind.Ended(ctx, tx, rec) })
	if err == nil || fault.Is(err, fault.Unavailable) {
		return err
	}
	e.slog.Error("tell of the end of a run", "run", rec.ID, "error", err)
	_, err = e.log.AppendTx(ctx, tx, eventlog.New{
		Stream: "critical:run", Kind: eventlog.KindCritical, Actor: "ombud", Cause: rec.ID, Trace: rec.ID, Expect: eventlog.Any,
		Data: criticalData{Error: err.Error(), Source: "run", Run: rec.ID},
	})
	return err
}

// criticalData is the payload of the event that tells of an end nobody was told of.
type criticalData struct {
	Error  string `json:"error"`
	Source string `json:"source"`
	Run    string `json:"run"`
}

// Cancel asks a run to stop. What is under way comes to its end or its timeout;
// nothing new is begun. Cancelling a run that has ended is a Conflict.
func (e *Engine) Cancel(ctx context.Context, id, by, why string) error {
	return e.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return e.CancelTx(ctx, tx, id, by, why) })
}

// CancelTx is Cancel in the caller's transaction.
func (e *Engine) CancelTx(ctx context.Context, tx *db.Tx, id, by, why string) error {
	rec, err := e.load(ctx, tx, id)
	if err != nil {
		return err
	}
	if rec.State == Cancelling {
		return nil
	}
	rec, err = e.advance(ctx, tx, id, noFence, change{kind: evCancelling, actor: by, data: endedData{By: by, Error: why}})
	if err != nil {
		return err
	}
	if rec.Owner == "" {
		kind, _ := e.kinds.get(rec.Kind)
		return e.endCancelled(ctx, tx, kind, rec, noFence)
	}
	tx.AfterCommit(func() { e.cancelLocal(id) })
	return nil
}

// Decision is what a person says of a step in doubt.
type Decision string

// The decisions.
const (
	Retry      Decision = "retry"  // begin the step again
	MarkDone   Decision = "done"   // it happened
	MarkFailed Decision = "failed" // it did not
	GiveUp     Decision = "cancel" // cancel the run
)

// Check refuses what is none of the decisions.
func (d Decision) Check() error {
	if !slices.Contains([]Decision{Retry, MarkDone, MarkFailed, GiveUp}, d) {
		return fault.New(fault.Invalid, "decision %q is none of retry, done, failed, cancel", d)
	}
	return nil
}

// Resolve decides an uncertain run: the step in doubt is settled and the run goes
// on, or it is cancelled.
func (e *Engine) Resolve(ctx context.Context, id string, d Decision, by, note string) error {
	if err := d.Check(); err != nil {
		return err
	}
	return e.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		rec, err := e.load(ctx, tx, id)
		if err != nil {
			return err
		}
		if rec.State != Uncertain {
			return fault.New(fault.Conflict, "run %s is %s; only an uncertain run can be resolved", id, rec.State)
		}
		if d == GiveUp {
			rec, err := e.advance(ctx, tx, id, noFence, change{kind: evCancelling, actor: by, data: endedData{By: by, Error: note}})
			if err != nil {
				return err
			}
			if _, err := e.closeOpen(ctx, tx, rec, noFence); err != nil { // a parallel one that a crash left
				return err
			}
			kind, _ := e.kinds.get(rec.Kind)
			return e.endTx(ctx, tx, kind, id, noFence, change{kind: evCancelled, actor: by, data: endedData{Class: fault.Cancelled, Error: "given up: " + note, By: by}})
		}
		steps, err := e.loadSteps(ctx, tx, id)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(steps, func(s *Step) bool { return s.State == Unknown })
		if i < 0 {
			return fault.New(fault.Conflict, "run %s has no step in doubt", id)
		}
		_, err = e.advance(ctx, tx, id, noFence, change{kind: evResolved, actor: by, step: steps[i].Name, nextAt: e.soon(tx),
			data: resolvedData{Step: steps[i].Name, Decision: d, By: by, Note: note}})
		return err
	})
}

// Wait returns the run once it has ended. If ctx ends first the record holds no
// more than the id and the state. Every waiter is woken whenever some run moves, so
// only the state is looked at until then.
func (e *Engine) Wait(ctx context.Context, id string) (Record, error) {
	woken, stop := e.db.Watch(topic)
	defer stop()
	tick := time.NewTicker(e.opt.Poll)
	defer tick.Stop()
	for {
		var rec Record
		err := e.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
			rec = Record{ID: id}
			err = q.QueryRow(ctx, "SELECT state FROM runs WHERE id = $1", id).Scan(&rec.State)
			if errors.Is(err, sql.ErrNoRows) {
				return fault.New(fault.NotFound, "no run %s", id)
			}
			if err == nil && rec.State.Ended() {
				rec, err = e.load(ctx, q, id)
			}
			return err
		})
		if err != nil || rec.State.Ended() {
			return rec, err
		}
		select {
		case <-woken:
		case <-tick.C:
		case <-ctx.Done():
			return rec, ctx.Err()
		}
	}
}

// WaitOrAsked waits until a run has ended, or until it has waited for a person longer than
// patience; its record says which.
func (e *Engine) WaitOrAsked(ctx context.Context, id string, patience time.Duration) (Record, error) {
	woken, stop := e.Watch()
	defer stop()
	tick := time.NewTicker(e.opt.Poll)
	defer tick.Stop()
	over := time.NewTimer(max(0, patience))
	defer over.Stop()
	patient := patience > 0
	for {
		var rec Record
		err := e.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) { rec, err = e.load(ctx, q, id); return err })
		if err != nil || rec.State.Ended() || rec.State == Waiting && rec.Wait == ForApproval && !patient {
			return rec, err
		}
		select {
		case <-woken:
		case <-tick.C:
		case <-over.C:
			patient = false
		case <-ctx.Done():
			return rec, context.Cause(ctx)
		}
	}
}

// WatchRun returns a channel that receives when something came that a run may wait
// for, or when it told how far it is: a hint for whoever also looks.
func (e *Engine) WatchRun(id string) (<-chan struct{}, func()) { return e.db.Watch(topicOf(id)) }

// Watch returns a channel that receives when some run may have moved: a hint for
// whoever also looks.
func (e *Engine) Watch() (<-chan struct{}, func()) { return e.db.Watch(topic) }
