package grant

import (
	"fmt"

	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
)

// Weight says how much of a grant has an effect.
type Weight string

// The weights.
const (
	All     Weight = "all"
	Part    Weight = "part"
	Nothing Weight = "nothing"
)

// Weigh compares what the subject may do without x and with it, for a person who
// is told what their grant comes to. Before and after are what policy is asked,
// less the call. The reason is empty where all of x has its effect.
func Weigh(x Grant, before, after policy.Input) (Weight, string) {
	if x.Scope.IsZero() {
		return Nothing, "this ombud does not know the scope"
	}
	gives, within := x.Effect == Allow || x.Effect == Standing, x.Scope
	if x.Effect == Limit {
		within = scope.Unqualified(x.Scope.Base()) // what it takes away lies outside its own scope
	}
	if reach, why := after.Reach(within); gives && reach == policy.Deny {
		return Nothing, why.Text
	}
	if reach, why := before.Reach(within); !gives && reach == policy.Deny {
		return Nothing, "it is denied already: " + why.Text
	}
	probes, exact := probesOf(within, &before, &after)
	some := !exact
	for _, s := range probes {
		some = some || decide(before, s).Effect != decide(after, s).Effect
	}
	was, is := decide(before, within), decide(after, within)
	switch {
	case was.Effect != is.Effect || some && x.Effect == Limit:
		return All, ""
	case !some:
		return Nothing, unchanged(x, was)
	}
	r, _ := is.Deciding()
	return Part, "the rest is settled elsewhere: " + r.Text
}

func unchanged(x Grant, was policy.Decision) string {
	r, _ := was.Deciding()
	if x.Effect == Allow && was.Effect == policy.Ask {
		return fmt.Sprintf("%s has it already and is asked about it (%s); only a standing approval answers that", x.Subject, r.Text)
	}
	if x.Effect == Limit {
		return fmt.Sprintf("%s has no more than this anyway", x.Subject)
	}
	if x.Effect == Allow {
		return fmt.Sprintf("%s has what its role gives of it already", x.Subject)
	}
	return fmt.Sprintf("the answer is %s already: %s", was.Effect, r.Text)
}

// decide explains the decision about one need, as if made by a tool that changes
// what the need is about.
func decide(in policy.Input, s scope.Scope) policy.Decision {
	in.Scopes = []scope.Scope{s}
	in.Tool = policy.ToolFacts{Name: "a tool", Irreversible: !s.Base().ReadOnly()}
	return policy.Explain(&in)
}

// probesOf are the needs on which a difference within s shows: s, and what the
// rules are about. exact is false where a rule and s only cross, so that a
// difference may lie where no probe is.
func probesOf(s scope.Scope, ins ...*policy.Input) (probes []scope.Scope, exact bool) {
	exact = true
	seen := map[string]bool{}
	add := func(o scope.Scope) {
		switch {
		case !o.Overlaps(s) || o.Covers(s):
		case !s.Covers(o):
			exact = false
		case !seen[o.String()]:
			seen[o.String()] = true
			probes = append(probes, o)
		}
	}
	for _, in := range ins {
		layers := append([]*policy.Layer{in.Grants}, in.Bounds...)
		if in.Role != nil {
			layers = append(layers, in.Role.Layers()...)
		}
		for _, l := range layers {
			for _, r := range l.Rules() {
				add(r.Scope)
			}
		}
		for _, o := range in.Standing {
			add(o)
		}
	}
	return append(probes, s), exact
}
