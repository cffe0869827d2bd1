package policy

import "github.com/ombud-run/ombud/internal/scope"

// Held is what was decided about one subject beside its role. None of it gives
// more than role and tier do: rules stand in the layer of the subject's grants,
// standing approvals only answer an ask, and bounds only take away.
type Held struct {
	Rules    []Rule
	Standing []scope.Scope
	Bounds   []*Layer
	Autonomy *Autonomy // nil: no level was set
}

// Limit returns a bound that leaves every base as it is but for those of limits,
// of which it leaves what limits cover. Nil if there is no limit.
func Limit(name string, limits []scope.Scope) *Layer {
	if len(limits) == 0 {
		return nil
	}
	limited := make([]bool, scope.NumBases())
	rules := make([]Rule, 0, len(limits)+scope.NumBases())
	for _, s := range limits {
		limited[s.Base()] = true
		rules = append(rules, Rule{s, Allow})
	}
	for _, b := range scope.Bases() {
		if !limited[b] {
			rules = append(rules, Rule{scope.Unqualified(b), Allow})
		}
	}
	return NewLayer(name, rules)
}

// Reach returns the most that a need within s can come to in the layers and the
// tier, with the reason of what holds it back: an upper bound, which a smaller
// need may not come to. A grant for s whose reach is Deny can match nothing.
func (in *Input) Reach(s scope.Scope) (Effect, Reason) {
	tier, layers := in.Tier, []*Layer{}
	if in.Role != nil {
		tier = min(tier, in.Role.maxTier)
		layers = append(layers, in.Role.layers...)
	}
	layers = append(append(layers, in.Bounds...), in.Grants)
	var why []Reason
	ceiling := tier.ceiling(s.Base())
	if s.IsZero() {
		ceiling = Deny
	}
	noteTier(&why, ceiling, tier, s)
	for _, l := range layers {
		effect, rule := l.reach(s)
		r := Reason{Effect: effect, Code: CodeNoRule, Layer: l.Name(), Scope: s.String()}
		if rule == nil {
			note(&why, r, "%s: nothing within %s", l.Name(), s)
			continue
		}
		r.Code, r.Rule = CodeRule, rule.String()
		note(&why, r, "%s: %q is the most for %s", l.Name(), rule, s)
	}
	least := why[0]
	for _, r := range why {
		if r.Effect < least.Effect {
			least = r
		}
	}
	return least.Effect, least
}

// reach is the most the layer gives to any part of s, with the rule that says so.
func (l *Layer) reach(s scope.Scope) (Effect, *Rule) {
	rules := l.of(s.Base())
	var best, asked *Rule
	for i := range rules {
		r := &rules[i]
		switch {
		case r.Effect == Deny && r.Scope.Covers(s):
			return Deny, r
		case r.Effect == Deny || !r.Scope.Overlaps(s):
			continue
		case r.Effect == Ask && r.Scope.Covers(s):
			asked = r
		}
		if best == nil || r.Effect > best.Effect {
			best = r
		}
	}
	switch {
	case best == nil:
		return Deny, nil
	case asked != nil:
		return Ask, asked
	}
	return best.Effect, best
}

// Deciding returns the reason that settled an explained decision. An allow is
// settled by a standing approval if one answered, else by the first rule that had
// to agree; anything else by the first reason of its effect, which is the role's
// where the role says so, and a rule before an ask of the level.
func (d Decision) Deciding() (found Reason, ok bool) {
	for _, r := range d.Reasons {
		if r.Effect == d.Effect && (!ok || r.Code.weight() > found.Code.weight()) {
			found, ok = r, true
		}
	}
	return found, ok
}

// weight orders reasons of one effect by how much they say.
func (c Code) weight() int {
	switch c {
	case CodeStanding:
		return 3
	case CodeRule, CodeNoRule:
		return 2
	case CodeTier:
		return 0
	}
	return 1
}
