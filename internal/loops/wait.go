package loops

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/trigger"
)

// longest is how far ahead a run can wait or arm a timer.
const longest = 100 * 366 * 24 * time.Hour

// Sleep waits, as a row: for a second or for years.
func (k *Kit) Sleep(ctx context.Context, step string, d time.Duration) error {
	if err := k.step(step); err != nil {
		return err
	}
	if d > longest {
		return fault.New(fault.Invalid, "a sleep of %s is longer than a hundred years", d)
	}
	return k.r.Sleep(ctx, step, d)
}

// WaitSignal waits for a signal to this run, sent by ombud runs signal or by another
// part, and returns its payload. A timeout of 0 waits for ever; one that is over is an
// error of class Timeout.
func (k *Kit) WaitSignal(ctx context.Context, step, name string, timeout time.Duration) (payload json.RawMessage, err error) {
	err = k.each(step, func(step string) error {
		payload, err = k.r.WaitSignal(ctx, step, name, timeout)
		return err
	})
	// Anybody who can reach the run may have sent it.
	k.saw(label.Of(label.Untrusted("signal:"+name), label.OperatorOnly), texts(payload)...)
	return payload, err
}

// After starts this loop again once d has passed, with a payload (an object). The same id
// again moves it. A d below a second is put off, for longer the longer runs of this loop
// start each other so, and two timers of a loop are a second apart.
func (k *Kit) After(ctx context.Context, step, id string, d time.Duration, payload json.RawMessage) error {
	if d > longest {
		return fault.New(fault.Invalid, "a timer in %s is further than a hundred years", d)
	}
	return k.rows(ctx, step, func(ctx context.Context, tx *db.Tx) error {
		return k.d.Triggers.ArmTx(ctx, tx, trigger.Wake{
			Target: k.who.Subject, ID: id, At: tx.Now() + d.Microseconds(), Payload: payload, Label: label.Join(k.Label(), own()), Hurry: k.tr.Hurry,
		})
	})
}

// CancelAfter takes a timer of After back, if it has not fired.
func (k *Kit) CancelAfter(ctx context.Context, step, id string) error {
	return k.rows(ctx, step, func(ctx context.Context, tx *db.Tx) error {
		_, err := k.d.Triggers.DisarmTx(ctx, tx, k.who.Subject, id)
		return err
	})
}

// Step does fn once and returns its recorded result from then on. A crash or a stop of the
// daemon during fn, which ends its context, lets it be done again: what it does may be done
// twice.
func (k *Kit) Step(ctx context.Context, step string, fn func(ctx context.Context) (json.RawMessage, error)) (result json.RawMessage, err error) {
	err = k.each(step, func(step string) error {
		result, err = k.r.Step(ctx, step, run.Policy{Kind: run.Repeatable}, fn)
		return err
	})
	return result, err
}

// Once does fn at most once. After a crash during fn the run is uncertain, and a person
// says what became of it.
func (k *Kit) Once(ctx context.Context, step string, fn func(ctx context.Context) error) error {
	return k.each(step, func(step string) error {
		_, err := k.r.Step(ctx, step, run.Policy{Kind: run.AtMostOnce}, func(ctx context.Context) (json.RawMessage, error) {
			return nil, fn(ctx)
		})
		return err
	})
}

// Progress tells how far the work is, for whoever watches. total is 0 if it is not known.
func (k *Kit) Progress(_ context.Context, text string, done, total int) {
	k.r.Progress(k.d.Hide.String(text), done, total)
}

// rows does a step whose work is rows of the store.
func (k *Kit) rows(ctx context.Context, step string, fn func(ctx context.Context, tx *db.Tx) error) error {
	_, err := k.rowsOf(ctx, step, func(ctx context.Context, tx *db.Tx) (string, error) { return "", fn(ctx, tx) })
	return err
}

// rowsOf is rows for work that has something to say.
func (k *Kit) rowsOf(ctx context.Context, step string, fn func(ctx context.Context, tx *db.Tx) (string, error)) (text string, err error) {
	err = k.value(step, &text, func(step string) (run.Outcome, error) {
		return k.r.DoTx(ctx, run.StepSpec{Name: step, Kind: "rows"}, func(ctx context.Context, tx *db.Tx) run.Outcome {
			return cameTo(fn(ctx, tx))
		})
	})
	return text, err
}

// value does a step that is recorded with a value, and reads that into into.
func (k *Kit) value(step string, into any, do func(step string) (run.Outcome, error)) error {
	return k.each(step, func(step string) error {
		out, err := do(step)
		if err == nil {
			err = out.Err
		}
		if err != nil {
			return err
		}
		return json.Unmarshal(out.Result, into)
	})
}

// cameTo is the outcome of a step that has come to a value.
func cameTo[T any](v T, err error) run.Outcome {
	if err != nil {
		return run.Fail(err)
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return run.Fail(err)
	}
	return run.Succeed(raw)
}
