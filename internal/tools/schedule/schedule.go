// Package schedule is the tools schedule.add, schedule.list, schedule.pause and
// schedule.rm, by which an agent lets itself be told something at times.
//
// A schedule made here belongs to its agent and speaks to the conversation it was made
// in; no other is seen or changed. What it says keeps the label of the context it was made
// in: others' words come back as others' words, between marks, and never as an order.
// Setting one counts as what cannot be taken back, because it acts when nobody watches: so
// it asks, and it is refused in work that nobody waits for, which could otherwise keep
// itself alive. All are rows, changed in the commit of the call.
package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	store "github.com/ombud-run/ombud/internal/schedule"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

const (
	timeout   = 10 * time.Second
	maxOutput = 256 << 10
	maxMade   = 50 // by one agent
)

// Schedules is the part of the schedules the tools use.
type Schedules interface {
	AddTx(ctx context.Context, tx *db.Tx, spec store.Spec, by string) (store.Schedule, error)
	PauseTx(ctx context.Context, tx *db.Tx, name, by string) error
	RemoveTx(ctx context.Context, tx *db.Tx, name, by string) error
	ListIn(ctx context.Context, q db.Q, f store.Filter) ([]store.Schedule, error)
	List(ctx context.Context, f store.Filter) ([]store.Schedule, error)
}

var _ Schedules = (*store.Schedules)(nil)

// Tools is the four tools.
type Tools struct{ schedules func() Schedules }

// New returns the tools. schedules is asked when a call is made.
func New(schedules func() Schedules) *Tools { return &Tools{schedules: schedules} }

// Register makes the tools known to r.
func (t *Tools) Register(r *tool.Registry) error {
	return errors.Join(
		r.Add(addDefinition(), t.add),
		r.Add(listDefinition(), t.list),
		r.Add(changeDefinition("schedule.pause", "schedule.update", "Keep a schedule of this conversation from firing until the operator resumes it."), t.pause),
		r.Add(changeDefinition("schedule.rm", "schedule.delete", "Remove a schedule of this conversation."), t.remove),
	)
}

const addSchema = `{"type":"object","additionalProperties":false,"required":["name","when","say"],"properties":{
"name":{"type":"string","pattern":"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$","description":"a short name for it"},
"when":{"type":"string","minLength":1,"maxLength":200,"description":"minute hour day month weekday, or @every 90m, or @at 2026-05-01T09:00:00+02:00"},
"zone":{"type":"string","minLength":1,"maxLength":64,"description":"IANA zone such as Europe/Stockholm, default the operator's"},
"say":{"type":"string","minLength":1,"maxLength":4096,"description":"what you are told each time, in this conversation"},
"missed":{"type":"string","enum":["once","skip","all"],"description":"what becomes of instants that passed while nothing could fire, default once"}}}`

type addInput struct {
	Name   string `json:"name"`
	When   string `json:"when"`
	Zone   string `json:"zone"`
	Say    string `json:"say"`
	Missed string `json:"missed"`
}

func addDefinition() tool.Definition {
	return tool.Definition{
		Name:        "schedule.add",
		Description: "Let yourself be told something at times, in this conversation. Nobody waits for what you then do.",
		Input:       json.RawMessage(addSchema), Kind: tool.Local, Irreversible: true, Timeout: timeout, MaxOutput: maxOutput, Source: label.Own,
		Scopes: func(raw json.RawMessage) ([]scope.Scope, error) {
			in, err := tool.Decode[addInput](raw)
			if err != nil {
				return nil, err
			}
			return named("schedule.create", in.Name)
		},
		Destination: func(json.RawMessage) tool.Destination { return tool.Destination{Name: "this conversation", Here: true} },
		Summary: func(raw json.RawMessage) string {
			in, _ := tool.Decode[addInput](raw) // validated
			when := tool.Show(in.When)
			if in.Zone != "" {
				when += " in " + tool.Show(in.Zone)
			}
			return "schedule " + tool.Show(in.Name) + " at " + when + ": " + tool.Show(in.Say)
		},
	}
}

func named(base, name string) ([]scope.Scope, error) {
	need, err := scope.Of(base, name)
	return []scope.Scope{need}, err
}

func (t *Tools) add(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[addInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	if err := attended(inv); err != nil {
		return tool.Output{}, err
	}
	made, err := t.made(ctx, inv)
	if err != nil {
		return tool.Output{}, err
	}
	if len(made) >= maxMade {
		return tool.Output{}, fault.New(fault.Invalid, "there are %d schedules of %s, the most there can be: remove some", len(made), inv.Subject)
	}
	from := inv.Label
	if len(from.Sources) == 0 { // set by nobody we know
		from = label.Of(label.Untrusted("schedule"), label.OperatorOnly)
	}
	x, err := t.schedules().AddTx(ctx, inv.Tx, store.Spec{
		Owner: inv.Subject, Name: in.Name, When: in.When, Zone: in.Zone, Missed: store.Missed(in.Missed),
		Starts: store.Starts{Say: in.Say, Agent: strings.TrimPrefix(inv.Subject, "agent:"), Conversation: inv.Conversation, Label: from},
	}, inv.Subject)
	if err != nil {
		return tool.Output{}, err
	}
	return tool.Output{Text: fmt.Sprintf("Schedule %s is set: %s in %s, next at %s.", x.Name, x.When, x.Zone, x.Show(x.Next))}, nil
}

// attended refuses to change schedules where nobody waits: work that starts by itself
// would decide for how long it goes on.
func attended(inv tool.Invocation) error {
	switch {
	case inv.Conversation == "":
		return fault.New(fault.Invalid, "this call belongs to no conversation, so there is nobody to tell")
	case inv.Unattended:
		return fault.New(fault.Denied, "schedules are not changed by work that nobody waits for").
			WithHint("the operator can do it: ombud schedule")
	}
	return nil
}

// made are the schedules a call may see.
func (t *Tools) made(ctx context.Context, inv tool.Invocation) ([]store.Schedule, error) {
	f := store.Filter{Owner: inv.Subject}
	if inv.Tx != nil {
		return t.schedules().ListIn(ctx, inv.Tx, f)
	}
	return t.schedules().List(ctx, f)
}

// here are those of them that speak to the conversation of the call.
func (t *Tools) here(ctx context.Context, inv tool.Invocation) ([]store.Schedule, error) {
	list, err := t.made(ctx, inv)
	var out []store.Schedule
	for _, x := range list {
		if x.Starts.Conversation == inv.Conversation && inv.Conversation != "" {
			out = append(out, x)
		}
	}
	return out, err
}

const listSchema = `{"type":"object","additionalProperties":false,"properties":{}}`

func listDefinition() tool.Definition {
	need := []scope.Scope{scope.Must("schedule.list")}
	return tool.Definition{
		Name:        "schedule.list",
		Description: "List the schedules you made in this conversation.",
		Input:       json.RawMessage(listSchema), Kind: tool.Effect, ReadOnly: true, Repeat: tool.Repeatable,
		Timeout: timeout, MaxOutput: maxOutput, Source: label.Own,
		Scopes:  func(json.RawMessage) ([]scope.Scope, error) { return need, nil },
		Summary: func(json.RawMessage) string { return "list schedules" },
	}
}

func (t *Tools) list(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	list, err := t.here(ctx, inv)
	if err != nil {
		return tool.Output{}, err
	}
	if len(list) == 0 {
		return tool.Output{Text: "There are no schedules."}, nil
	}
	l := label.Of(label.Own, label.OperatorOnly)
	lines := make([]string, 0, len(list))
	for _, x := range list {
		next := string(x.State)
		if x.State == store.Active {
			next = "next at " + x.Show(x.Next)
		}
		lines = append(lines, fmt.Sprintf("%s: %s in %s, %s: %s", x.Name, x.When, x.Zone, next, x.Starts.Say))
		l = label.Join(l, x.Starts.Label)
	}
	return tool.Output{Text: strings.Join(lines, "\n"), Label: &l}, nil
}

const changeSchema = `{"type":"object","additionalProperties":false,"required":["name"],"properties":{
"name":{"type":"string","pattern":"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$","description":"its name"}}}`

type changeInput struct {
	Name string `json:"name"`
}

func changeDefinition(name, base, doc string) tool.Definition {
	verb := strings.TrimPrefix(name, "schedule.")
	if verb == "rm" {
		verb = "remove"
	}
	return tool.Definition{
		Name: name, Description: doc, Input: json.RawMessage(changeSchema), Kind: tool.Local, Irreversible: verb == "remove",
		Timeout: timeout, MaxOutput: maxOutput, Source: label.Own,
		Scopes: func(raw json.RawMessage) ([]scope.Scope, error) {
			in, err := tool.Decode[changeInput](raw)
			if err != nil {
				return nil, err
			}
			return named(base, in.Name)
		},
		Summary: func(raw json.RawMessage) string {
			in, _ := tool.Decode[changeInput](raw) // validated
			return verb + " the schedule " + tool.Show(in.Name)
		},
	}
}

func (t *Tools) pause(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	x, err := t.find(ctx, inv)
	if err != nil {
		return tool.Output{}, err
	}
	if err := t.schedules().PauseTx(ctx, inv.Tx, x.ID, inv.Subject); err != nil {
		return tool.Output{}, err
	}
	return tool.Output{Text: "Schedule " + x.Name + " is paused."}, nil
}

func (t *Tools) remove(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	x, err := t.find(ctx, inv)
	if err != nil {
		return tool.Output{}, err
	}
	if err := t.schedules().RemoveTx(ctx, inv.Tx, x.ID, inv.Subject); err != nil {
		return tool.Output{}, err
	}
	return tool.Output{Text: "Schedule " + x.Name + " is removed."}, nil
}

func (t *Tools) find(ctx context.Context, inv tool.Invocation) (x store.Schedule, err error) {
	in, err := tool.Decode[changeInput](inv.Input)
	if err != nil {
		return x, err
	}
	if err := attended(inv); err != nil {
		return x, err
	}
	list, err := t.here(ctx, inv)
	if err != nil {
		return x, err
	}
	for _, x := range list {
		if x.Name == in.Name {
			return x, nil
		}
	}
	return x, fault.New(fault.NotFound, "no schedule of this conversation is called %s", tool.Show(in.Name)).
		WithHint("schedule.list shows them")
}
