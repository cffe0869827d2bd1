package trigger

import (
	"context"
	"encoding/json"
	"strings"
	"time"
	"unicode"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
)

// armed is what a timer of a target keeps.
type armed struct {
	ID      string          `json:"id"`
	Payload json.RawMessage `json:"payload,omitempty"`
	Label   label.Label     `json:"label"`
	Hurry   int             `json:"hurry,omitempty"`
}

// Wake is when a target starts itself once more, and with what.
type Wake struct {
	Target, ID string
	At         int64           // Unix µs; it is put off to keep the pace
	Payload    json.RawMessage // an object, whose words have Label
	Label      label.Label
	Hurry      int // the Hurry of the trigger of the run that asks for it
}

// MaxAhead is how many timers of a target may be armed, together with its runs that have not
// ended: a run that arms two for at once would otherwise fill the store with runs in line.
const MaxAhead = 1000

// maxTimerName is how many bytes the name of a timer has at most.
const maxTimerName = 200

// apart is the least time between two timers of a target, and between a run and the next one
// that it starts itself: a run that starts another at once, and that the next, would else keep
// the machine busy for nothing.
const apart = time.Second

// Runs that start each other at once, one after the other, wait longer the longer it goes
// on: a second more after each minute's worth of them, and never more than a minute.
const (
	slower  = 60 // of them
	slowest = time.Minute
)

// pause is how long the next of so many runs in a row waits at least.
func pause(hurry int) time.Duration {
	return min(apart+time.Duration(min(hurry, 1<<20)/slower)*time.Second, slowest)
}

// ArmTx starts a target once more at a time. Arming the same id of a target again moves it.
// What is asked for within a second is put off to the next pause, and two timers of a target
// are a second apart. Errors: Invalid if the id is too long or no text, or if the target has
// MaxAhead ahead.
func (t *Triggers) ArmTx(ctx context.Context, tx *db.Tx, w Wake) error {
	if len(w.ID) > maxTimerName || strings.ContainsFunc(w.ID, unicode.IsControl) {
		return fault.New(fault.Invalid, "the timer %.40q: a name has at most %d bytes and no control characters", w.ID, maxTimerName)
	}
	a := armed{ID: w.ID, Payload: w.Payload, Label: w.Label}
	if w.At < tx.Now()+apart.Microseconds() {
		w.At = tx.Now() + pause(w.Hurry).Microseconds()
		a.Hurry = w.Hurry + 1
	}
	at, err := t.runs.FreeTx(ctx, tx, w.Target, timerID(w.Target, w.ID), w.At, apart.Microseconds())
	if err != nil {
		return err
	}
	raw, err := json.Marshal(a)
	if err != nil {
		return fault.New(fault.Invalid, "payload of timer %q: %w", w.ID, err)
	}
	return t.runs.ArmTx(ctx, tx, run.Timer{ID: timerID(w.Target, w.ID), Kind: TimerKind, Owner: w.Target, At: at, Payload: raw, Most: MaxAhead})
}

// DisarmTx cancels a timer of a target; it reports whether one was armed.
func (t *Triggers) DisarmTx(ctx context.Context, tx *db.Tx, target, timer string) (bool, error) {
	return t.runs.DisarmTx(ctx, tx, timerID(target, timer))
}

func timerID(target, timer string) string { return target + ":" + timer }

// timerFired starts the target of a timer, if it is still there.
func (h *hearing) timerFired(ctx context.Context, tx *db.Tx) error {
	t, e := h.t, h.event
	var timer run.Timer
	if err := json.Unmarshal(e.Data, &timer); err != nil {
		return fault.New(fault.Verification, "read the timer of event %s: %w", e.ID, err)
	}
	if timer.Kind != TimerKind {
		return nil
	}
	var a armed
	if err := json.Unmarshal(timer.Payload, &a); err != nil {
		return fault.New(fault.Verification, "read the timer %s: %w", timer.ID, err)
	}
	s, err := t.GetIn(ctx, tx, timer.Owner)
	if fault.Is(err, fault.NotFound) {
		_, err := t.tell(ctx, tx, "dropped", actor, timer.Owner, e.ID, withheld{Kind: ByTimer, Name: a.ID, Why: "its target is gone"})
		return err
	}
	if err != nil {
		return err
	}
	payload := objectOf(a.Payload)
	for key, value := range map[string]string{"timer_id": a.ID, "fire_at": time.UnixMicro(timer.At).UTC().Format(time.RFC3339)} {
		quoted, err := json.Marshal(value) // a loop names its timers as it likes
		if err != nil {
			return fault.New(fault.Internal, "payload of timer %s: %w", timer.ID, err)
		}
		payload[key] = quoted
	}
	raw, err := json.Marshal(payload)
	if err != nil {
		return fault.New(fault.Verification, "payload of timer %s: %w", timer.ID, err)
	}
	return h.start(ctx, tx, s, Trigger{
		Kind: ByTimer, Name: a.ID, At: timer.At, Event: e.ID, EventKind: e.Kind, Payload: raw, Label: a.Label, Hurry: a.Hurry,
	}, origin{replay: true})
}
