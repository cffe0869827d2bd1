package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
)

// TimerKind is the kind of the timers that start a target, which is their owner.
const TimerKind = "trigger"

// subscription is the name of the one reader of the log for all targets.
const subscription = "triggers"

// Subscription is that reader.
func (t *Triggers) Subscription() eventlog.Subscription {
	return eventlog.Subscription{Name: subscription, FilterNow: t.filterNow, Handle: t.handle}
}

// filterNow is what somebody listens to, and the timers; everything while that is not
// known. A commit that changes it makes it unknown before the next commit, so an event
// that comes after is looked for with the right filter.
func (t *Triggers) filterNow(ctx context.Context) eventlog.Filter {
	t.mu.Lock()
	wanted, changes := t.wanted, t.changes
	t.mu.Unlock()
	if wanted != nil {
		return *wanted
	}
	f := eventlog.Filter{Kinds: []string{run.TimerFired}}
	err := t.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		all, err := db.All(ctx, q, db.Column[string], "SELECT DISTINCT kind FROM listeners ORDER BY kind")
		f.Kinds = append(f.Kinds[:1], all...)
		return err
	})
	if err != nil || slices.ContainsFunc(f.Kinds, func(kind string) bool { return strings.HasSuffix(kind, "*") }) {
		f = eventlog.Filter{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && t.changes == changes {
		t.wanted = &f
	}
	return f
}

// stale says that what is listened to has changed.
func (t *Triggers) stale() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted = nil
	t.changes++
}

// handle starts what an event starts. A target that cannot be started for a reason of its
// own keeps none of the others back: the event is a dead letter that names it.
func (t *Triggers) handle(ctx context.Context, tx *db.Tx, e eventlog.Event) error {
	if strings.HasPrefix(e.Kind, kindPrefix) {
		return nil
	}
	h := hearing{t: t, event: e}
	if e.Kind == run.TimerFired {
		if err := h.timerFired(ctx, tx); err != nil {
			return err
		}
	}
	names, err := t.listening(ctx, tx, e)
	if err != nil {
		return err
	}
	payload := objectOf(e.Data)
	payload["event_kind"] = json.RawMessage(strconv.Quote(e.Kind))
	raw, err := json.Marshal(payload)
	if err != nil {
		return fault.New(fault.Verification, "payload of event %s: %w", e.ID, err)
	}
	for _, name := range names {
		s, err := t.GetIn(ctx, tx, name)
		if err != nil {
			return err
		}
		chosen := slices.ContainsFunc(s.On, func(on On) bool { return on.Event != nil && on.Event.matches(e.Kind, payload) })
		if !chosen && s.Problem == nil {
			continue
		}
		// Also what ombud writes itself may hold others' words: the text of a reminder, an error.
		words := label.Of(label.Untrusted("event:"+e.Kind), label.OperatorOnly)
		tr := Trigger{Kind: ByEvent, At: e.At, Event: e.ID, EventKind: e.Kind, Payload: raw, Label: words}
		if err := h.start(ctx, tx, s, tr, origin{event: e, replay: e.OutOfOrder}); err != nil {
			return err
		}
	}
	return h.end(ctx, tx)
}

// hearing is an event that is handed to what it starts.
type hearing struct {
	t       *Triggers
	event   eventlog.Event
	started bool
	refused []string // of the targets that were not started, why
	class   fault.Class
}

// start starts a target, unless the event has started it before: a dead letter hands an
// event to all that listen, also to those that were never the trouble.
func (h *hearing) start(ctx context.Context, tx *db.Tx, s Standing, tr Trigger, from origin) error {
	before, err := h.t.runs.CausedIn(ctx, tx, s.Name, h.event.ID)
	if err != nil || before {
		return err
	}
	id, err := h.t.start(ctx, tx, s, tr, from)
	if err != nil && (s.Problem != nil || fault.Is(err, fault.Invalid) || errors.Is(err, errStorm)) {
		if h.class == "" {
			h.class = fault.ClassOf(err)
		}
		h.refused = append(h.refused, s.Name+" was not started: "+err.Error())
		return nil
	}
	h.started = h.started || id != ""
	return err
}

// end makes a dead letter of the event if something was not started. A replay that
// started nothing has failed.
func (h *hearing) end(ctx context.Context, tx *db.Tx) error {
	if len(h.refused) == 0 {
		return nil
	}
	why, e := strings.Join(h.refused, "; "), h.event
	if e.OutOfOrder && !h.started {
		return fault.New(h.class, "%s", why)
	}
	_, err := h.t.log.BuryTx(ctx, tx, eventlog.DeadLetter{
		Source: eventlog.FromSubscription, Name: subscription, Ref: e.ID, Title: e.Kind, Position: e.Position, Stream: e.Stream,
		Cause: e.Cause, Class: h.class, Error: why, Attempts: 1,
	})
	return err
}

// listening are the targets that may want an event, by name.
func (t *Triggers) listening(ctx context.Context, tx *db.Tx, e eventlog.Event) ([]string, error) {
	all := patterns(e.Kind)
	marks, args := make([]string, len(all)), []any{e.Position}
	for i, p := range all {
		args = append(args, p)
		marks[i] = "$" + strconv.Itoa(i+2)
	}
	return db.All(ctx, tx, db.Column[string], `SELECT DISTINCT target FROM listeners WHERE since < $1 AND kind IN (`+
		strings.Join(marks, ", ")+`) ORDER BY target`, args...)
}

// objectOf is a payload as an object; what is none becomes its value.
func objectOf(data json.RawMessage) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if json.Unmarshal(data, &out) != nil || out == nil {
		out = map[string]json.RawMessage{}
		if len(data) > 0 {
			out["value"] = data
		}
	}
	return out
}

// armed is what a timer of a target keeps.
type armed struct {
	ID      string          `json:"id"`
	Payload json.RawMessage `json:"payload,omitempty"`
	Label   label.Label     `json:"label"`
}

// MaxAhead is how many timers of a target may be armed, together with its runs that have not
// ended: a run that arms two for at once would otherwise fill the store with runs in line.
const MaxAhead = 1000

// maxTimerName is how many bytes the name of a timer has at most.
const maxTimerName = 200

// ArmTx starts target once more at a time, with a payload (an object) whose words have
// label l. Arming the same id of a target again moves it. Errors: Invalid if the id is too
// long or no text, or if the target has MaxAhead ahead.
func (t *Triggers) ArmTx(ctx context.Context, tx *db.Tx, target, timer string, at int64, payload json.RawMessage, l label.Label) error {
	if len(timer) > maxTimerName || strings.ContainsFunc(timer, unicode.IsControl) {
		return fault.New(fault.Invalid, "the timer %.40q: a name has at most %d bytes and no control characters", timer, maxTimerName)
	}
	raw, err := json.Marshal(armed{ID: timer, Payload: payload, Label: l})
	if err != nil {
		return fault.New(fault.Invalid, "payload of timer %q: %w", timer, err)
	}
	return t.runs.ArmTx(ctx, tx, run.Timer{ID: timerID(target, timer), Kind: TimerKind, Owner: target, At: at, Payload: raw, Most: MaxAhead})
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
		Kind: ByTimer, Name: a.ID, At: timer.At, Event: e.ID, EventKind: e.Kind, Payload: raw, Label: a.Label,
	}, origin{replay: true})
}

// isRun reports whether a text is the id of a run.
func isRun(text string) bool { return id.Valid("run", text) }
