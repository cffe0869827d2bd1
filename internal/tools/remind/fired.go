package remind

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
)

// lateness is from when on a reminder says that it is late.
const lateness = time.Minute

// Deliver puts a message into the outbox of a conversation, as part of tx. cause
// is the id of the event that led to it; from is the label of the context the
// reminder was set in, which its words keep.
type Deliver func(ctx context.Context, tx *db.Tx, conversation, cause, text string, from label.Label) error

// OnFired returns the subscription that tells reminders whose time has come. What
// cannot be delivered is retried and then a dead letter, like any event.
func OnFired(deliver Deliver) eventlog.Subscription {
	return eventlog.Subscription{
		Name:   "reminders",
		Filter: eventlog.Filter{Kinds: []string{run.TimerFired}},
		Handle: func(ctx context.Context, tx *db.Tx, e eventlog.Event) error {
			var t run.Timer
			if err := json.Unmarshal(e.Data, &t); err != nil {
				return fault.New(fault.Verification, "read the timer of event %s: %w", e.ID, err)
			}
			if t.Kind != Kind {
				return nil
			}
			var p payload
			if err := json.Unmarshal(t.Payload, &p); err != nil {
				return fault.New(fault.Verification, "read the reminder %s: %w", t.ID, err)
			}
			return deliver(ctx, tx, p.Conversation, e.ID, message(t, p, time.UnixMicro(e.At)), p.from())
		},
	}
}

// from is the label of a reminder's words. One that was kept without any was set
// by nobody we know.
func (p payload) from() label.Label {
	if len(p.Label.Sources) == 0 || len(p.Label.Audiences) == 0 {
		return label.Join(p.Label, label.Of(label.Untrusted("reminder"), label.OperatorOnly))
	}
	return p.Label
}

func message(t run.Timer, p payload, fired time.Time) string {
	text := "⏰ Reminder: " + p.Text
	due := time.UnixMicro(t.At)
	if fired.Sub(due) < lateness {
		return text
	}
	return text + fmt.Sprintf("\n(It was due on %s.)", show(due, zoneNamed(p.Zone)))
}
