package policy

import "github.com/ombud-run/ombud/internal/scope"

// Holds returns the most the subject holds on the whole of s by its layers and its
// tier, with the reason of what holds it back. Level, labels and limits are left
// out: they stand in a child's decisions too. It is what a child may be given at
// most; where a layer takes away only a part of s, the child's decisions do so too,
// because they pass the same layers (Inherit).
func (in *Input) Holds(s scope.Scope) (Effect, Reason) {
	tier, layers := in.Tier, []*Layer{in.Grants}
	if in.Role != nil {
		tier = min(tier, in.Role.maxTier)
		layers = append(layers, in.Role.layers...)
	}
	layers = append(layers, in.Bounds...)
	var why []Reason
	ceiling := tier.ceiling(s.Base())
	if s.IsZero() {
		ceiling = Deny
	}
	noteTier(&why, ceiling, tier, s)
	for _, l := range layers {
		effect := l.holds(s)
		note(&why, Reason{Effect: effect, Code: CodeRule, Layer: l.Name(), Scope: s.String()}, "%s has %s for %s", l.Name(), effect, s)
	}
	least := why[0]
	for _, r := range why {
		if r.Effect < least.Effect {
			least = r
		}
	}
	return least.Effect, least
}

// ChildTier is the tier of a child: its parent's, as far as the parent's role lets
// the parent use it.
func (in *Input) ChildTier() Tier {
	if in.Role != nil {
		return min(in.Tier, in.Role.maxTier)
	}
	return in.Tier
}

// holds returns the effect of the layer on all of s.
func (l *Layer) holds(s scope.Scope) Effect {
	own := Deny
	rules := l.of(s.Base())
	for _, x := range rules {
		if x.Scope.Covers(s) && x.Effect != Deny {
			own = max(own, x.Effect)
		}
	}
	for _, x := range rules {
		if x.Scope.Covers(s) {
			own = min(own, x.Effect)
		}
	}
	return own
}
