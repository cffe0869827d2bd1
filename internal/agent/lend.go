package agent

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// Lent is the result of the run that a lent tool starts.
type Lent struct {
	Text  string      `json:"text"`
	Label label.Label `json:"label"`
}

// lent reports whether a tool was lent to the turn.
func (w Within) lent(d tool.Definition) bool { return d.Lent && slices.Contains(w.Lends, d.Name) }

// lend adds to what a turn may do the tools that were lent to it. What is denied stays so.
func (w Within) lend(p *policy.Input) {
	var rules []policy.Rule
	for _, name := range w.Lends {
		if s, err := scope.Of("tool", name); err == nil { // else there is no such tool
			rules = append(rules, policy.Rule{Scope: s, Effect: policy.Allow})
			p.Standing = append(slices.Clone(p.Standing), s)
		}
	}
	if len(rules) == 0 {
		return
	}
	with := func(l *policy.Layer) *policy.Layer { return policy.NewLayer(l.Name(), append(l.Rules(), rules...)) }
	p.Grants = with(p.Grants)
	if p.Role == nil {
		return
	}
	p.Tier = min(p.Tier, p.Role.MaxTier())
	for _, l := range p.Role.Layers() {
		p.Bounds = append(slices.Clone(p.Bounds), with(l))
	}
	p.Role = nil
}

// borrowed is what a lent tool came to: its call started a run, which the turn waits for.
func (t *turn) borrowed(ctx context.Context, step string, res act.Result) (act.Result, error) {
	rec, err := t.r.WaitRun(ctx, step+"/run", func(context.Context, *db.Tx) (string, error) { return res.Text, nil })
	if err != nil {
		return res, err
	}
	if rec.State != run.Completed {
		res.Status, res.Class = act.Failed, rec.ErrorClass
		// What it said as it failed can be of what it had read, and nobody knows the label of that.
		return t.a.Act.Answer(res, "it did not come to an end: "+rec.Error, label.Of(label.Untrusted("loop"), label.OperatorOnly)), nil
	}
	var out Lent
	if err := json.Unmarshal(rec.Result, &out); err != nil {
		return res, fault.New(fault.Verification, "the result of run %s: %w", rec.ID, err)
	}
	return t.a.Act.Answer(res, out.Text, out.Label), nil
}
