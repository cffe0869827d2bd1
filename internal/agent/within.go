package agent

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// Within is what a message adds that a loop or a recipe sends to an agent.
type Within struct {
	Parent string      `json:"parent,omitempty"` // the run that waits for the answer
	Label  label.Label `json:"label,omitzero"`   // of what the text was made from, beside its Source
	Bounds []Bound     `json:"bounds,omitempty"` // what the turn can hold at most
	// Observe lets the turn read and remember and nothing else, whatever its agent may do.
	Observe bool `json:"observe,omitempty"`
	// Lends are the tools that a loop provides and lends to this turn alone.
	Lends []string `json:"lends,omitempty"`
}

// Bound is a layer of rules as it is kept.
type Bound struct {
	Name  string        `json:"name"`
	Rules []policy.Rule `json:"rules"`
}

// layers are the bounds of the turn.
func (w Within) layers() (out []*policy.Layer) {
	for _, b := range w.Bounds {
		out = append(out, policy.NewLayer(b.Name, b.Rules))
	}
	if w.Observe {
		out = append(out, observing)
	}
	return out
}

// label is that of the message.
func (in TurnInput) label() label.Label {
	return label.Join(label.Of(in.Source, in.Audience), in.Within.Label)
}

// outward are the areas that tell somebody outside what they ask for.
var outward = []string{"net", "http", "web", "llm", "mcp", "hub", "harness", "channel", "email", "shell"}

// observing bounds a turn that only observes: what reads without telling anybody, and
// what remembers.
var observing = func() *policy.Layer {
	var rules []policy.Rule
	for _, b := range scope.Bases() {
		reads := b.ReadOnly() && !slices.Contains(outward, b.Area())
		if reads || b.String() == "memory" || b.String() == "memory.write" {
			rules = append(rules, policy.Rule{Scope: scope.Unqualified(b), Effect: policy.Allow})
		}
	}
	return policy.NewLayer("observing", rules)
}()

// observes reports whether a tool fits a turn that only observes, by what its
// definition says: it reads, or works on ombud's own rows, and tells nobody anything.
// What it then needs is held against the bounds all the same.
func observes(d tool.Definition) bool {
	return d.Destination == nil && !d.Irreversible && (d.ReadOnly || d.Kind == tool.Local)
}

// IntakeTx takes in, as part of tx, a message that comes from within, such as what a
// schedule says. in.Cause is the event it comes from. What led to it decides whether it
// may come while the instance is held: Refuse is not asked.
func (a *Agents) IntakeTx(ctx context.Context, tx *db.Tx, in Inbound) (Accepted, error) {
	if in.Cause == "" || in.Sender == "" {
		return Accepted{}, fault.New(fault.Internal, "a message from within has a cause and a sender")
	}
	if err := a.ready(&in); err != nil {
		return Accepted{}, err
	}
	out, conflict, err := a.intakeTx(ctx, tx, in)
	if err == nil && conflict {
		err = errConflict
	}
	return out, err
}

// OpenTx returns the conversation at an address, making it if there is none.
func (a *Agents) OpenTx(ctx context.Context, tx *db.Tx, ad Address, agent, title string) (Conversation, error) {
	return a.openTx(ctx, tx, ad, agent, title)
}

// Question is what a model is asked without a conversation and without tools.
type Question struct {
	Step      string
	Agent     string // whose budget pays; "" for the default
	Role      string // of the model: "main" or "summary"
	System    string
	Prompt    string
	Messages  []model.Message // in the place of Prompt
	MaxTokens int
}

// Answer asks a model as a step of a run, with the same record, budget, prices and
// fallback as a turn. Over its budget it is Denied; where no model has the role it is
// Unavailable.
func (a *Agents) Answer(ctx context.Context, r *run.Run, q Question) (string, error) {
	resp, err := a.Respond(ctx, r, q)
	return resp.Text, err
}

// Respond is Answer with all that is known of the answer.
func (a *Agents) Respond(ctx context.Context, r *run.Run, q Question) (resp model.Response, err error) {
	m := a.Models.For(q.Role)
	if m.Provider == nil {
		return resp, fault.New(fault.Unavailable, "no model that can answer by itself is configured").
			WithHint("ombud secret set NAME and models.main, or run an Ollama")
	}
	if q.Agent == "" {
		q.Agent = Default
	}
	if q.Messages == nil {
		q.Messages = []model.Message{model.Text(model.User, q.Prompt)}
	}
	req := model.Request{System: q.System, MaxTokens: q.MaxTokens, Model: m.Name, Messages: q.Messages}
	out, err := asking{a, r, q.Agent}.ask(ctx, q.Step, m, req, nil)
	if err == nil {
		err = out.Err
	}
	if err != nil {
		return resp, err
	}
	if err := json.Unmarshal(out.Result, &resp); err != nil {
		return resp, fault.New(fault.Verification, "the recorded answer of a model: %w", err)
	}
	if resp.Text == "" && resp.Stop == model.StopRefusal {
		return resp, fault.New(fault.Denied, "the model declined to answer")
	}
	return resp, nil
}
