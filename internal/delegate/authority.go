package delegate

import (
	"context"
	"slices"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
)

// authority is what whoever gave a task may do now.
func (s *Service) authority(ctx context.Context, t Task) (*act.Authority, error) {
	auth, err := s.Authority(ctx, t.Subject, t.Conversation, t.Tier)
	if err != nil || t.Subject != Operator {
		return auth, err
	}
	return own(auth, t.Harness, t.Allow)
}

// kinds are what a program can ask leave for.
var kinds = []string{child.KindEdit, child.KindCommand, child.KindFetch, child.KindMCP, child.KindOther}

// own is the authority of what the operator gave to a coding agent: of ombud's tools what
// the agent that stands for the operator has, and of the program's own what the operator
// allowed in advance, and is asked about else.
func own(auth *act.Authority, name, allow string) (*act.Authority, error) {
	rule := func(qualifier string, e policy.Effect) (policy.Rule, error) {
		use, err := scope.Of("harness", qualifier)
		return policy.Rule{Scope: use, Effect: e}, err
	}
	use, err := rule(name, policy.Allow)
	if err != nil {
		return nil, err
	}
	rules := []policy.Rule{use}
	for _, kind := range kinds {
		e := policy.Ask
		if allow == AllowAll || allow == AllowEdits && kind == child.KindEdit {
			e = policy.Allow
		}
		r, err := rule(name+"/"+kind, e)
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	with := func(l *policy.Layer) *policy.Layer {
		others := slices.DeleteFunc(l.Rules(), func(r policy.Rule) bool { return r.Scope.Base() == use.Scope.Base() })
		return policy.NewLayer(l.Name(), append(others, rules...))
	}
	out := *auth
	out.Grants, out.Bounds, out.Role = with(auth.Grants), nil, nil
	for _, l := range auth.Bounds {
		out.Bounds = append(out.Bounds, with(l))
	}
	if auth.Role != nil {
		out.Tier = min(auth.Tier, auth.Role.MaxTier())
		for _, l := range auth.Role.Layers() {
			out.Bounds = append(out.Bounds, with(l))
		}
	}
	for _, r := range rules {
		if r.Effect == policy.Allow {
			out.Standing = append(slices.Clone(out.Standing), r.Scope) // said already: no level asks again
		}
	}
	return &out, nil
}
