package loops

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/trigger"
)

// The tools behind the verbs that are no tools of their own. They are for kits only: what
// a verb does passes the one door to all effects, and no model can reach it.
const (
	toolAsk     = "kit.ask"
	toolModel   = "kit.model"
	toolHarness = "kit.harness"
	toolSend    = "kit.send"
	toolRun     = "kit.run"
	toolPropose = "kit.propose"
)

// KindSend is the kind of the runs that send something.
const KindSend = "send"

// HarnessScope is what a loop needs to give a task to a coding agent.
const HarnessScope = "harness:default"

type askInput struct {
	Prompt  string        `json:"prompt"`
	Agent   string        `json:"agent"`
	Observe bool          `json:"observe,omitempty"`
	First   bool          `json:"first,omitempty"` // of the run: its conversation begins anew
	Bounds  []agent.Bound `json:"bounds,omitempty"`
	Lends   []string      `json:"lends,omitempty"` // tools of the loop's own
}

type modelInput struct {
	Role string `json:"role"`
}

type taskInput struct {
	Prompt string `json:"prompt"`
}

// Task is what a coding agent is to do.
type Task struct {
	Prompt       string      `json:"prompt"`
	Subject      string      `json:"subject"` // who gives it
	Conversation string      `json:"conversation"`
	Label        label.Label `json:"label"` // of what the prompt was made from
}

// Report is the beginning of the result of the run in which it did.
type Report struct {
	Text  string      `json:"text"`
	Label label.Label `json:"label,omitzero"`
}

// SendInput is what a message is sent with.
type SendInput struct {
	To   string `json:"to"`
	Text string `json:"text"`
}

// Sending is the input of a run of KindSend.
type Sending struct {
	SendInput
	Subject string      `json:"subject"` // who sends
	Label   label.Label `json:"label"`   // of what the text was made from
}

type runInput struct {
	Name string `json:"name"`
}

type proposal struct {
	Title   string `json:"title"`
	Summary string `json:"summary,omitempty"`
	Action  string `json:"action"`
	Agent   string `json:"agent"`
}

const object = `{"type":"object","additionalProperties":true,"required":[%]}`

func schemaOf(required ...string) json.RawMessage {
	return json.RawMessage(strings.Replace(object, "%", `"`+strings.Join(required, `","`)+`"`, 1))
}

// Tools registers the tools behind the verbs.
type Tools struct{ d *Deps }

// NewTools returns them. d is filled in before the first is called.
func NewTools(d *Deps) Tools { return Tools{d} }

// Register makes the tools known to r.
func (t Tools) Register(r *tool.Registry) error {
	base := tool.Definition{
		Kind: tool.Local, Within: true, Timeout: 10 * time.Second, MaxOutput: 1 << 10, Source: label.Own,
		Destination: func(json.RawMessage) tool.Destination {
			return tool.Destination{Readers: label.OperatorOnly, Name: "the operator"}
		},
	}
	ask, model, harness, send, start, propose := base, base, base, base, base, base

	ask.Name, ask.Description, ask.Input = toolAsk, "Say something to an agent, as a turn of its own.", schemaOf("prompt", "agent")
	ask.Scopes = fixed("tool:agent.ask")
	ask.Summary = summary(func(in askInput) string { return "ask " + in.Agent + ": " + tool.Show(in.Prompt) })

	model.Name, model.Description, model.Input = toolModel, "Ask a model once, without tools.", schemaOf("role")
	model.Kind, model.ReadOnly, model.Repeat = tool.Effect, true, tool.Repeatable
	model.Scopes = of(func(in modelInput) (scope.Scope, error) { return scope.Of("llm.call", in.Role) })
	model.Summary = summary(func(in modelInput) string { return "ask the model " + in.Role })

	harness.Name, harness.Description, harness.Input = toolHarness, "Give a task to a coding agent.", schemaOf("prompt")
	harness.Destination = nil // it can tell anybody anything
	harness.Kind = tool.Local
	harness.Scopes = fixed(HarnessScope)
	harness.Summary = summary(func(in taskInput) string { return "give a coding agent the task: " + tool.Show(in.Prompt) })

	send.Name, send.Description, send.Input = toolSend, "Send a message.", schemaOf("to", "text")
	send.Scopes = of(func(in SendInput) (scope.Scope, error) { return scope.Of("channel.send", in.To) })
	send.Destination = func(raw json.RawMessage) tool.Destination {
		in, _ := tool.Decode[SendInput](raw) // validated
		return tool.Destination{Readers: agent.ReadersOf(in.To), Name: in.To}
	}
	send.Summary = summary(func(in SendInput) string { return "send to " + tool.Show(in.To) + ": " + tool.Show(in.Text) })

	start.Name, start.Description, start.Input = toolRun, "Run a loop or a recipe.", schemaOf("name")
	start.Scopes = of(func(in runInput) (scope.Scope, error) { return scope.Of("loop", strings.TrimPrefix(in.Name, "loop:")) })
	start.Summary = summary(func(in runInput) string { return "run " + in.Name })

	propose.Name, propose.Description, propose.Input = toolPropose, "Propose an action to the operator.", schemaOf("title", "action", "agent")
	propose.Scopes = fixed("tool:propose")
	propose.Summary = summary(func(in proposal) string {
		text := "proposal: " + tool.Show(in.Title)
		if in.Summary != "" {
			text += " (" + tool.Show(in.Summary) + ")"
		}
		return text + "; if you accept, " + in.Agent + " is told: " + tool.Show(in.Action)
	})

	note, notes := t.noteTools(base)

	return errors.Join(
		r.Add(note, t.note), r.Add(notes, t.notes),
		r.Add(ask, t.ask), r.Add(model, nothing), r.Add(harness, t.harness),
		r.Add(send, t.send), r.Add(start, t.start), r.Add(propose, t.propose),
	)
}

func fixed(need string) func(json.RawMessage) ([]scope.Scope, error) {
	s := scope.Must(need)
	return func(json.RawMessage) ([]scope.Scope, error) { return []scope.Scope{s}, nil }
}

func of[T any](need func(T) (scope.Scope, error)) func(json.RawMessage) ([]scope.Scope, error) {
	return func(raw json.RawMessage) ([]scope.Scope, error) {
		in, err := tool.Decode[T](raw)
		if err != nil {
			return nil, err
		}
		s, err := need(in)
		return []scope.Scope{s}, err
	}
}

func summary[T any](text func(T) string) func(json.RawMessage) string {
	return func(raw json.RawMessage) string {
		in, _ := tool.Decode[T](raw) // validated
		return text(in)
	}
}

func nothing(context.Context, tool.Invocation) (tool.Output, error) { return tool.Output{}, nil }

// said says something to an agent in the conversation of a subject.
func (t Tools) said(ctx context.Context, inv tool.Invocation, who, text string, attended bool, w agent.Within) (tool.Output, error) {
	rec, err := t.d.Runs.RecordIn(ctx, inv.Tx, inv.Run)
	if err != nil {
		return tool.Output{}, err
	}
	cause := rec.Cause
	if cause == "" {
		cause = inv.Run
	}
	w.Label = label.Join(w.Label, inv.Label)
	got, err := t.d.Agents.IntakeTx(ctx, inv.Tx, agent.Inbound{
		Address: agent.Local(inv.Subject), Title: inv.Subject, Agent: who, Sender: inv.Subject, SenderName: inv.Subject, Text: text,
		Source: label.Own, Audience: label.OperatorOnly, Tier: policy.Trusted, Unattended: !attended, Cause: cause, Within: w,
	})
	return tool.Output{Text: got.Run}, err
}

func (t Tools) ask(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[askInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	if in.First {
		if err := t.d.Agents.ResetTx(ctx, inv.Tx, inv.Conversation); err != nil {
			return tool.Output{}, err
		}
	}
	return t.said(ctx, inv, in.Agent, in.Prompt, false, agent.Within{Parent: inv.Run, Bounds: in.Bounds, Lends: in.Lends, Observe: in.Observe})
}

// propose is called when the operator has accepted: the action is an instruction now.
func (t Tools) propose(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[proposal](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	return t.said(ctx, inv, in.Agent, "The operator accepted this proposal: "+in.Title+"\n\nDo it now: "+in.Action, true, agent.Within{})
}

func (t Tools) harness(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[taskInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	if t.d.Delegate == nil {
		return tool.Output{}, fault.New(fault.Unavailable, "no coding agent is connected").WithHint("use ask, which an agent of ombud answers")
	}
	id, err := t.d.Delegate(ctx, inv.Tx, inv.Run, Task{Prompt: in.Prompt, Subject: inv.Subject, Conversation: inv.Conversation, Label: inv.Label})
	return tool.Output{Text: id}, err
}

func (t Tools) send(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[SendInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	id, err := t.d.Runs.StartTx(ctx, inv.Tx, run.Spec{
		Kind: KindSend, Name: inv.Subject, Parent: inv.Run, Actor: inv.Subject,
		Input: Sending{SendInput: in, Subject: inv.Subject, Label: label.Join(inv.Label, own())},
	})
	return tool.Output{Text: id}, err
}

func (t Tools) start(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[runInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	id, err := t.d.Triggers.StartTx(ctx, inv.Tx, in.Name, trigger.Trigger{
		Kind: trigger.ByRun, Name: inv.Subject, Parent: inv.Run, Label: label.Join(inv.Label, own()),
	})
	if err == nil && id == "" {
		err = fault.New(fault.Conflict, "%s is disabled", in.Name)
	}
	if err != nil {
		return tool.Output{}, err
	}
	crosswise, err := t.d.Runs.BehindTx(ctx, inv.Tx, id, inv.Run)
	if err == nil && crosswise {
		err = fault.New(fault.Conflict, "%s is under way and waits for this run to end: neither would go on", in.Name)
	}
	return tool.Output{Text: id}, err
}

// targetOf is the name of a target by the name of a loop.
func targetOf(name string) string {
	if strings.Contains(name, ":") {
		return name
	}
	return "loop:" + name
}
