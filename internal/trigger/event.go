package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

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

// isRun reports whether a text is the id of a run.
func isRun(text string) bool { return id.Valid("run", text) }
