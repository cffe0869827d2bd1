package run

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// Signalled is the kind of event a signal leaves, beside the stream of its run.
const Signalled = "run.signalled"

// Limits of a signal.
const (
	maxSignalName = 200
	maxSignal     = 256 << 10
)

type signalData struct {
	Run  string `json:"run"`
	Name string `json:"name"`
}

// Signal is SignalTx in a transaction of its own, sent by somebody.
func (e *Engine) Signal(ctx context.Context, run, name string, payload json.RawMessage, by string) error {
	return e.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return e.signal(ctx, tx, run, name, payload, by) })
}

// SignalTx sends a run a signal, in the caller's transaction. It is kept until the
// run waits for that name, in order of arrival, and is taken by one wait. A run that
// has ended is a Conflict.
func (e *Engine) SignalTx(ctx context.Context, tx *db.Tx, run, name string, payload json.RawMessage) error {
	return e.signal(ctx, tx, run, name, payload, "ombud")
}

func (e *Engine) signal(ctx context.Context, tx *db.Tx, run, name string, payload json.RawMessage, by string) error {
	if payload == nil {
		payload = json.RawMessage("null")
	}
	switch {
	case name == "" || len(name) > maxSignalName:
		return fault.New(fault.Invalid, "a signal needs a name of at most %d bytes", maxSignalName)
	case len(payload) > maxSignal:
		return fault.New(fault.Invalid, "signal %q has %d bytes, the limit is %d", name, len(payload), maxSignal)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, payload); err != nil {
		return fault.New(fault.Invalid, "signal %q: its payload is not JSON: %w", name, err)
	}
	rec, err := e.load(ctx, tx, run)
	if err != nil {
		return err
	}
	if rec.State.Ended() {
		return fault.New(fault.Conflict, "run %s is %s: it takes no signals any more", run, rec.State)
	}
	evs, err := e.log.AppendTx(ctx, tx, eventlog.New{
		Stream: "signals:" + run, Kind: Signalled, Actor: by, Cause: rec.Cause, Trace: run, Data: signalData{run, name}, Expect: eventlog.Any,
	})
	if err != nil {
		return err
	}
	seq := evs[0].Position
	if _, err := tx.Exec(ctx, "INSERT INTO signals (seq, run, name, payload) VALUES ($1, $2, $3, $4)",
		seq, run, name, e.vault.Seal(vault.SignalPayload, signalRow(seq), compact.Bytes())); err != nil {
		return err
	}
	return e.WakeTx(ctx, tx, run, ForSignal, name)
}

func signalRow(seq int64) string { return itoa(int(seq)) }

// WaitSignal takes the next signal of that name, in the commit that records the step,
// and returns its payload. Until there is one the run is parked; after timeout, if
// that is over 0, the step fails with class Timeout.
func (r *Run) WaitSignal(ctx context.Context, step, name string, timeout time.Duration) (json.RawMessage, error) {
	if s, ok := r.Recorded(step); ok && s.State != Open {
		return s.Result, s.outcome().Err
	}
	until := int64(never)
	if timeout > 0 {
		var err error
		if until, err = r.instant(ctx, step+"/until", timeout); err != nil {
			return nil, err
		}
	}
	for {
		out, err := r.DoTx(ctx, StepSpec{Name: step, Kind: "signal"}, func(ctx context.Context, tx *db.Tx) Outcome {
			return r.takeSignal(ctx, tx, name, tx.Now() >= until)
		})
		if !errors.Is(err, errNotYet) {
			return out.Result, errors.Join(err, out.Err)
		}
		if err := r.Park(ctx, ForSignal, name, until, func(ctx context.Context, tx *db.Tx) (bool, error) {
			n := 0
			err := tx.QueryRow(ctx, "SELECT count(*) FROM signals WHERE run = $1 AND name = $2", r.ID(), name).Scan(&n)
			return n > 0 || tx.Now() >= until, err
		}); err != nil {
			return nil, err
		}
	}
}

// errNotYet ends a commit of DoTx that has nothing to record yet.
var errNotYet = errors.New("it is not there yet")

func (r *Run) takeSignal(ctx context.Context, tx *db.Tx, name string, late bool) Outcome {
	var seq int64
	var sealed []byte
	err := tx.QueryRow(ctx, "SELECT seq, payload FROM signals WHERE run = $1 AND name = $2 ORDER BY seq LIMIT 1", r.ID(), name).Scan(&seq, &sealed)
	switch {
	case errors.Is(err, sql.ErrNoRows) && late:
		return Fail(fault.New(fault.Timeout, "no signal %q came in time", name))
	case errors.Is(err, sql.ErrNoRows):
		return Fail(errNotYet)
	case err != nil:
		return Fail(err)
	}
	payload, err := r.e.vault.Open(vault.SignalPayload, signalRow(seq), sealed)
	if err == nil {
		_, err = tx.Exec(ctx, "DELETE FROM signals WHERE seq = $1", seq)
	}
	if err != nil {
		return Fail(err)
	}
	return Succeed(payload)
}

// instant is a time so long after the step was first met, recorded under its name.
func (r *Run) instant(ctx context.Context, step string, d time.Duration) (at int64, err error) {
	text, err := r.Step(ctx, step, Policy{Kind: Repeatable}, func(context.Context) (json.RawMessage, error) {
		return json.Marshal(r.e.db.Time() + d.Microseconds())
	})
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(text, &at); err != nil {
		return 0, fault.New(fault.Verification, "step %s: %w", step, err)
	}
	return at, nil
}
