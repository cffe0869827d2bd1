package run

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// topicTimers is notified when a timer is armed.
const topicTimers = "timers"

// Timer fires once per (ID, At): it appends an event timer.fired. Arming the same
// ID again moves it.
type Timer struct {
	ID      string          `json:"timer_id"`
	Kind    string          `json:"kind"`  // what it is for; subscriptions look at it
	Owner   string          `json:"owner"` // the conversation, run or loop it belongs to
	At      int64           `json:"fire_at"`
	Payload json.RawMessage `json:"payload,omitempty"`

	// Most bounds how many timers of the owner are armed and how many runs that it is the
	// key of have not ended, together; 0 for no bound. Arming more is Invalid, and an ID that
	// is armed already can always be moved.
	Most int `json:"-"`
}

// TimerFired is the kind of event a timer leaves; its data is the Timer.
const TimerFired = "timer.fired"

// ArmTx arms a timer in the caller's transaction.
func (e *Engine) ArmTx(ctx context.Context, tx *db.Tx, t Timer) error {
	if t.ID == "" || t.Kind == "" || t.At <= 0 {
		return fault.New(fault.Invalid, "a timer needs an id, a kind and a time")
	}
	if t.Most > 0 {
		if err := roomTx(ctx, tx, t); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, `INSERT INTO timers (id, kind, owner, nominal, fire_at, state, payload) VALUES ($1, $2, $3, $4, $4, 'armed', $5)
		ON CONFLICT (id) DO UPDATE SET kind = excluded.kind, owner = excluded.owner, nominal = excluded.nominal,
			fire_at = excluded.fire_at, state = 'armed', payload = excluded.payload`,
		t.ID, t.Kind, t.Owner, t.At, e.vault.Seal(vault.TimerPayload, t.ID, t.Payload))
	tx.Notify(topicTimers)
	return err
}

// roomTx refuses a timer of an owner that has too much ahead.
func roomTx(ctx context.Context, tx *db.Tx, t Timer) error {
	var armed, ahead int
	err := tx.QueryRow(ctx, `SELECT (SELECT count(*) FROM timers WHERE id = $1 AND state = 'armed'),
		(SELECT count(*) FROM timers WHERE owner = $2 AND state = 'armed') + (SELECT count(*) FROM runs WHERE key = $2 AND key <> '' AND ended = 0)`,
		t.ID, t.Owner).Scan(&armed, &ahead)
	if err == nil && armed == 0 && ahead >= t.Most {
		err = fault.New(fault.Invalid, "%s has %d timers and runs ahead of it, and can have no more", t.Owner, ahead)
	}
	return err
}

// FreeTx returns the first instant, at or after one, from which every other armed timer of
// an owner is so far apart (both in µs).
func (e *Engine) FreeTx(ctx context.Context, tx *db.Tx, owner, id string, at, apart int64) (int64, error) {
	ahead, err := db.All(ctx, tx, db.Column[int64], timesOfOwner, owner, id, at-apart)
	for _, t := range ahead {
		if t >= at+apart {
			break
		}
		if t > at-apart {
			at = t + apart
		}
	}
	return at, err
}

// DisarmTx cancels a timer; it reports whether one was armed.
func (e *Engine) DisarmTx(ctx context.Context, tx *db.Tx, id string) (bool, error) {
	n, err := tx.Exec(ctx, "DELETE FROM timers WHERE id = $1 AND state = 'armed'", id)
	return n > 0, err
}

// SkipOverdue disarms the timers that should have fired by now, and returns how many.
func (e *Engine) SkipOverdue(ctx context.Context) (n int, err error) {
	err = e.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		gone, err := tx.Exec(ctx, "DELETE FROM timers WHERE state = 'armed' AND fire_at <= $1", tx.Now())
		n = int(gone)
		return err
	})
	return n, err
}

func (e *Engine) scanTimer(r *db.Rows) (t Timer, err error) {
	var payload []byte
	if err := r.Scan(&t.ID, &t.Kind, &t.Owner, &t.At, &payload); err != nil {
		return t, err
	}
	t.Payload, err = e.vault.Open(vault.TimerPayload, t.ID, payload)
	return t, err
}

// Timers lists the armed timers of an owner, or of all, the next first; at most
// 1,000 of them.
func (e *Engine) Timers(ctx context.Context, owner string) (out []Timer, err error) {
	err = e.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = e.TimersIn(ctx, q, owner)
		return err
	})
	return out, err
}

const (
	armedTimers   = "SELECT id, kind, owner, nominal, payload FROM timers WHERE state = 'armed'"
	timersOfAll   = armedTimers + " ORDER BY fire_at, id LIMIT 1000"
	timersOfOwner = armedTimers + " AND owner = $1 ORDER BY fire_at, id LIMIT 1000"
	timesOfOwner  = "SELECT fire_at FROM timers WHERE owner = $1 AND state = 'armed' AND id <> $2 AND fire_at > $3 ORDER BY fire_at"
)

// TimersIn is Timers inside a transaction or snapshot of the caller.
func (e *Engine) TimersIn(ctx context.Context, q db.Q, owner string) ([]Timer, error) {
	if owner == "" {
		return db.All(ctx, q, e.scanTimer, timersOfAll)
	}
	return db.All(ctx, q, e.scanTimer, timersOfOwner, owner)
}

// fireOnce fires the timers that are due. The wall clock is compared, so that a
// machine that slept catches up at the next look, at most Options.Poll away.
func (e *Engine) fireOnce(ctx context.Context) error {
	const due = "SELECT id, kind, owner, nominal, payload FROM timers WHERE state = 'armed' AND fire_at <= $1 ORDER BY fire_at, id LIMIT 64"
	for !e.opt.Held() {
		var found []Timer
		err := e.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
			found, err = db.All(ctx, q, e.scanTimer, due, e.db.Time())
			return err
		})
		if err != nil || len(found) == 0 {
			return err
		}
		for _, t := range found {
			if err := e.fire(ctx, t); err != nil {
				return fmt.Errorf("timer %s: %w", t.ID, err)
			}
		}
	}
	return nil
}

// fire leaves the event and takes the timer out in one commit. The event's id names the
// instant, so that no crash can leave two; it holds all that the row did, so that rows are
// of armed timers only.
func (e *Engine) fire(ctx context.Context, t Timer) error {
	return e.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		n, err := tx.Exec(ctx, "DELETE FROM timers WHERE id = $1 AND nominal = $2 AND state = 'armed'", t.ID, t.At)
		if err != nil || n == 0 {
			return err // somebody else fired, moved or disarmed it
		}
		_, err = e.log.AppendTx(ctx, tx, eventlog.New{
			ID: fmt.Sprintf("timer:%s:%d", t.ID, t.At), Stream: "timer:" + t.ID, Kind: TimerFired, Actor: "ombud",
			Data: t, Expect: eventlog.Any,
		})
		return err
	})
}
