package policy

import (
	"cmp"
	"slices"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/scope"
)

// Effect is the answer of a rule, a layer or the whole decision. A smaller effect
// beats a larger one; the zero Effect is Deny.
type Effect uint8

// The effects, strongest first.
const (
	Deny Effect = iota
	Ask
	Allow
)

var effectNames = []string{"deny", "ask", "allow"}

func (e Effect) String() string { return effectNames[e] }

// MarshalText writes the name of the effect.
func (e Effect) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText reads the name of an effect.
func (e *Effect) UnmarshalText(text []byte) error {
	i, err := indexOf("effect", effectNames, string(text))
	if err == nil {
		*e = Effect(i)
	}
	return err
}

func indexOf(what string, names []string, name string) (int, error) {
	if i := slices.Index(names, name); i >= 0 {
		return i, nil
	}
	return 0, fault.New(fault.Invalid, "unknown %s %q", what, name).WithHint("it is one of %v", names)
}

// Rule gives one scope one effect.
type Rule struct {
	Scope  scope.Scope `json:"scope"`
	Effect Effect      `json:"effect"`
}

func (r Rule) String() string { return r.Effect.String() + " " + r.Scope.String() }

// Layer is a named, immutable list of rules that every need has to pass. A nil
// Layer, like one without rules, denies everything.
type Layer struct {
	name  string
	rules []Rule // by base, then as given
}

// NewLayer returns the layer of rules. Name says whose rules they are, in words
// that fit a reason: "grants of agent:main", "role assistant".
func NewLayer(name string, rules []Rule) *Layer {
	sorted := slices.DeleteFunc(slices.Clone(rules), func(r Rule) bool { return r.Scope.IsZero() })
	slices.SortStableFunc(sorted, func(a, b Rule) int { return cmp.Compare(a.Scope.Base(), b.Scope.Base()) })
	return &Layer{name: name, rules: sorted}
}

// Name returns the name given to NewLayer.
func (l *Layer) Name() string {
	if l == nil {
		return "a missing layer"
	}
	return l.name
}

// Rules returns the rules in a fresh slice.
func (l *Layer) Rules() []Rule {
	if l == nil {
		return nil
	}
	return slices.Clone(l.rules)
}

// of returns the rules of one base.
func (l *Layer) of(base scope.Base) []Rule {
	if l == nil {
		return nil
	}
	i, _ := slices.BinarySearchFunc(l.rules, base, func(r Rule, b scope.Base) int { return cmp.Compare(r.Scope.Base(), b) })
	j := i
	for j < len(l.rules) && l.rules[j].Scope.Base() == base {
		j++
	}
	return l.rules[i:j]
}

// judge returns the effect of the layer on need and the rule that decided, nil
// when no rule covers it. Deny and ask take effect where they touch need at all;
// allow, and ask as a permission, must cover the whole of it.
func (l *Layer) judge(need scope.Scope) (Effect, *Rule) {
	var asked, allowed *Rule
	covered := false
	rules := l.of(need.Base())
	for i := range rules {
		r := &rules[i]
		switch {
		case r.Effect == Deny:
			if r.Scope.Overlaps(need) {
				return Deny, r
			}
		case r.Effect == Ask:
			if asked == nil && r.Scope.Overlaps(need) {
				asked = r
			}
			covered = covered || r.Scope.Covers(need)
		case allowed == nil && r.Scope.Covers(need):
			allowed, covered = r, true
		}
	}
	switch {
	case !covered:
		return Deny, nil
	case asked != nil:
		return Ask, asked
	}
	return Allow, allowed
}
