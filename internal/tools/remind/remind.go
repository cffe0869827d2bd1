// Package remind is the tools remind.set, remind.list and remind.cancel, and what
// becomes of a reminder when its time has come.
//
// A reminder is a timer of kind "reminder" that belongs to a conversation. It is
// armed in the commit of the call that set it. When the timer fires, which it does
// once, its event is turned into a message to that conversation in one commit with
// the position of the subscription: so each reminder is told once, also if the
// process was down at its time; it then says how late it is.
package remind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // zones by name on machines that have no table of them

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// Kind is the kind of the timers.
const Kind = "reminder"

const (
	timeout   = 10 * time.Second
	maxOutput = 256 << 10
	maxText   = 4 << 10
	maxAhead  = 10 * 366 * 24 * time.Hour
	maxArmed  = 500 // in one conversation
)

// Timers is the part of the engine that keeps timers.
type Timers interface {
	ArmTx(ctx context.Context, tx *db.Tx, t run.Timer) error
	DisarmTx(ctx context.Context, tx *db.Tx, id string) (bool, error)
	Timers(ctx context.Context, owner string) ([]run.Timer, error)
	TimersIn(ctx context.Context, q db.Q, owner string) ([]run.Timer, error)
}

var _ Timers = (*run.Engine)(nil)

// payload is what a timer keeps of its reminder.
type payload struct {
	Text         string      `json:"text"`
	Conversation string      `json:"conversation"`
	Zone         string      `json:"zone"`
	Label        label.Label `json:"label"` // of the context it was set in
}

// Tools is the three tools.
type Tools struct {
	timers Timers
	zone   *time.Location
}

// New returns the tools. zone is the operator's.
func New(timers Timers, zone *time.Location) *Tools { return &Tools{timers: timers, zone: zone} }

// Register makes the tools known to r.
func (t *Tools) Register(r *tool.Registry) error {
	return errors.Join(
		r.Add(t.setDefinition(), t.set),
		r.Add(t.listDefinition(), t.list),
		r.Add(t.cancelDefinition(), t.cancel),
	)
}

const setSchema = `{"type":"object","additionalProperties":false,"required":["text"],"properties":{
"text":{"type":"string","minLength":1,"maxLength":4096,"description":"what to say when the time has come"},
"at":{"type":"string","minLength":1,"maxLength":40,"description":"when, as 2026-03-04T17:00:00+01:00, or without the offset in the zone"},
"in_seconds":{"type":"integer","minimum":1,"description":"or: how long from now"},
"zone":{"type":"string","maxLength":64,"description":"IANA zone such as Europe/Stockholm, default the operator's"}}}`

type setInput struct {
	Text      string `json:"text"`
	At        string `json:"at"`
	InSeconds int64  `json:"in_seconds"`
	Zone      string `json:"zone"`
}

func (t *Tools) setDefinition() tool.Definition {
	return tool.Definition{
		Name:        "remind.set",
		Description: "Set a reminder: its text is sent to this conversation at the given time. Give either at or in_seconds.",
		Input:       json.RawMessage(setSchema), Kind: tool.Local, Timeout: timeout, MaxOutput: maxOutput, Source: label.Own,
		Scopes: func(raw json.RawMessage) ([]scope.Scope, error) {
			in, err := tool.Decode[setInput](raw)
			if err == nil && (in.At == "") == (in.InSeconds == 0) {
				err = fault.New(fault.Invalid, "give either at or in_seconds")
			}
			return []scope.Scope{scope.Must("remind.write")}, err
		},
		Destination: func(json.RawMessage) tool.Destination { return tool.Destination{Name: "this conversation", Here: true} },
		Summary: func(raw json.RawMessage) string {
			in, _ := tool.Decode[setInput](raw) // validated
			when := "at " + tool.Show(in.At)
			if in.InSeconds > 0 {
				when = fmt.Sprintf("in %d s", in.InSeconds)
			}
			return "remind " + when + " of " + tool.Show(in.Text)
		},
	}
}

func (t *Tools) set(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[setInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	text := strings.TrimSpace(guard.CleanText(in.Text))
	switch {
	case inv.Conversation == "":
		return tool.Output{}, fault.New(fault.Invalid, "this call belongs to no conversation, so there is nobody to remind")
	case text == "" || len(text) > maxText:
		return tool.Output{}, fault.New(fault.Invalid, "a reminder has 1 to %d bytes of text", maxText)
	}
	zone, err := t.zoneOf(in.Zone)
	if err != nil {
		return tool.Output{}, err
	}
	now := time.UnixMicro(inv.Tx.Now())
	at, err := instant(in, now, zone)
	if err != nil {
		return tool.Output{}, err
	}
	armed, err := t.timers.TimersIn(ctx, inv.Tx, inv.Conversation)
	if err != nil {
		return tool.Output{}, err
	}
	if len(armed) >= maxArmed {
		return tool.Output{}, fault.New(fault.Invalid, "this conversation has %d reminders, the most it can have: cancel some", len(armed))
	}
	raw, err := json.Marshal(payload{Text: text, Conversation: inv.Conversation, Zone: zone.String(), Label: inv.Label})
	if err != nil {
		return tool.Output{}, err
	}
	timer := run.Timer{ID: id.New("rem"), Kind: Kind, Owner: inv.Conversation, At: at.UnixMicro(), Payload: raw}
	if err := t.timers.ArmTx(ctx, inv.Tx, timer); err != nil {
		return tool.Output{}, err
	}
	return tool.Output{Text: fmt.Sprintf("Reminder set for %s (%s).", show(at, zone), timer.ID)}, nil
}

const listSchema = `{"type":"object","additionalProperties":false,"properties":{}}`

func (t *Tools) listDefinition() tool.Definition {
	need := []scope.Scope{scope.Must("remind.read")}
	return tool.Definition{
		Name:        "remind.list",
		Description: "List the reminders of this conversation that are still to come, the next first.",
		Input:       json.RawMessage(listSchema), Kind: tool.Effect, ReadOnly: true, Repeat: tool.Repeatable,
		Timeout: timeout, MaxOutput: 16 * maxOutput, Source: label.Own,
		Scopes:  func(json.RawMessage) ([]scope.Scope, error) { return need, nil },
		Summary: func(json.RawMessage) string { return "list reminders" },
	}
}

func (t *Tools) list(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	timers, err := t.timers.Timers(ctx, owner(inv))
	if err != nil {
		return tool.Output{}, err
	}
	found := reminders(timers)
	if len(found) == 0 {
		return tool.Output{Text: "There are no reminders."}, nil
	}
	return tool.Output{Text: lines(found), Label: joined(found)}, nil
}

const cancelSchema = `{"type":"object","additionalProperties":false,"minProperties":1,"maxProperties":1,"properties":{
"id":{"type":"string","minLength":1,"maxLength":64,"description":"a reminder's id"},
"query":{"type":"string","minLength":1,"maxLength":4096,"description":"words that only the text of the one to cancel has all of"}}}`

type cancelInput struct {
	ID    string `json:"id"`
	Query string `json:"query"`
}

func (t *Tools) cancelDefinition() tool.Definition {
	need := []scope.Scope{scope.Must("remind.write")}
	return tool.Definition{
		Name:        "remind.cancel",
		Description: "Cancel a reminder of this conversation, by id or by words of its text. If several fit none is cancelled and they are listed.",
		Input:       json.RawMessage(cancelSchema), Kind: tool.Local, Timeout: timeout, MaxOutput: maxOutput, Source: label.Own,
		Scopes: func(json.RawMessage) ([]scope.Scope, error) { return need, nil },
		Summary: func(raw json.RawMessage) string {
			in, _ := tool.Decode[cancelInput](raw) // validated
			if in.ID != "" {
				return "cancel the reminder " + tool.Show(in.ID)
			}
			return "cancel the reminder about " + tool.Show(in.Query)
		},
	}
}

func (t *Tools) cancel(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[cancelInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	timers, err := t.timers.TimersIn(ctx, inv.Tx, owner(inv))
	if err != nil {
		return tool.Output{}, err
	}
	fit := matching(reminders(timers), in)
	switch len(fit) {
	case 0:
		return tool.Output{}, fault.New(fault.NotFound, "no reminder of this conversation fits %s", tool.Show(in.ID+in.Query))
	case 1:
		ok, err := t.timers.DisarmTx(ctx, inv.Tx, fit[0].id)
		if err == nil && !ok {
			err = fault.New(fault.Conflict, "the reminder %s is no longer there to be cancelled", fit[0].id)
		}
		if err != nil {
			return tool.Output{}, err
		}
		return tool.Output{Text: "Cancelled: " + lines(fit), Label: joined(fit)}, nil
	}
	fit = fit[:min(len(fit), 5)]
	text := "Nothing was cancelled, because more than one reminder fits. Say which one, by its id or more of its words:\n" + lines(fit)
	return tool.Output{Text: text, Label: joined(fit)}, nil
}

// owner is whose timers a call may see. The empty owner would be everybody.
func owner(inv tool.Invocation) string {
	if inv.Conversation == "" {
		return "-"
	}
	return inv.Conversation
}

// reminder is a timer that was read.
type reminder struct {
	id string
	at time.Time
	payload
}

// reminders picks them out of timers of all kinds. One whose payload cannot be
// read is shown without text, so that it can be cancelled.
func reminders(timers []run.Timer) []reminder {
	var out []reminder
	for _, t := range timers {
		if t.Kind != Kind {
			continue
		}
		r := reminder{id: t.ID, at: time.UnixMicro(t.At)}
		if json.Unmarshal(t.Payload, &r.payload) != nil {
			r.payload = payload{Text: "(unreadable)"}
		}
		out = append(out, r)
	}
	return out
}

func matching(all []reminder, in cancelInput) []reminder {
	words := strings.Fields(strings.ToLower(in.Query))
	var out []reminder
	for _, r := range all {
		text := strings.ToLower(r.Text)
		fits := in.ID == r.id || in.ID == "" && len(words) > 0
		for _, w := range words {
			fits = fits && strings.Contains(text, w)
		}
		if fits {
			out = append(out, r)
		}
	}
	return out
}

func lines(list []reminder) string {
	out := make([]string, len(list))
	for i, r := range list {
		out[i] = fmt.Sprintf("%s: %s (%s)", show(r.at, zoneNamed(r.Zone)), r.Text, r.id)
	}
	return strings.Join(out, "\n")
}

func joined(list []reminder) *label.Label {
	out := label.Of(label.Own, label.OperatorOnly)
	for _, r := range list {
		out = label.Join(out, r.Label)
	}
	return &out
}
