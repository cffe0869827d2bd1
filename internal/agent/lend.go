package agent

import (
	"slices"

	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

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
