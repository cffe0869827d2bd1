package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
)

// ToolFacts is what the definition of a tool says about its calls.
type ToolFacts struct {
	Name         string
	Irreversible bool // more than its scopes already say
}

// Budget is the headroom for the cost of one call, in millionths of a dollar.
type Budget struct {
	Limited  bool
	Left     int64
	Estimate int64
}

// Input is all a decision depends on. The layers are shared, immutable values:
// build them when a turn starts, not for each call.
type Input struct {
	Subject string
	Tool    ToolFacts
	Scopes  []scope.Scope // everything the call needs; a call that needs nothing is denied

	Grants *Layer   // what the subject was given; nil: nothing
	Role   *Role    // nil: no role narrows it
	Bounds []*Layer // of parent and run; see Inherit
	Tier   Tier

	Standing   []scope.Scope // answered with "always" before, by a person
	Autonomy   *Autonomy     // nil: Manual
	Unattended bool          // nobody is there to be asked now

	Label       label.Label // of the context the call comes from
	Destination Destination
	Budget      Budget
	OverRate    bool // the rate limit of the subject or the tool is used up
}

// Inherit returns the bounds for a child of this subject: all the layers that
// bind the subject itself.
func (in *Input) Inherit() []*Layer {
	out := append(slices.Clone(in.Bounds), in.Grants)
	if in.Role != nil {
		out = append(out, in.Role.layers...)
	}
	return out
}

// Code names the kind of a reason. The texts are part of the JSON of `caps why`.
type Code string

// The codes.
const (
	CodeNoScope   Code = "no_scope"   // the call names nothing it needs
	CodeNoRule    Code = "no_rule"    // no rule of the layer covers the need
	CodeRule      Code = "rule"       // a rule of the layer decided
	CodeTier      Code = "tier"       // the ceiling of the tier
	CodeLevel     Code = "level"      // the level wants to ask
	CodeStanding  Code = "standing"   // a standing approval answered an ask
	CodeNobody    Code = "unattended" // an ask that nobody is there to answer
	CodeLabel     Code = "label"      // the labels allow it
	CodeUntrusted Code = "untrusted"  // something untrusted before what cannot be taken back
	CodeLeak      Code = "leak"       // the readers are outside an audience in the context
	CodeBudget    Code = "budget"     // the budget is used up
	CodeRate      Code = "rate"       // too many calls
)

// Reason is one step of a decision.
type Reason struct {
	Effect Effect `json:"effect"`
	Code   Code   `json:"code"`
	Layer  string `json:"layer"`
	Scope  string `json:"scope,omitempty"`
	Rule   string `json:"rule,omitempty"` // the rule that decided, if it was a rule
	Text   string `json:"text"`
}

// Decision is the answer. From Decide it holds the reasons of the effect, none on
// allow; from Explain all of them, in the order they were found.
type Decision struct {
	Effect  Effect   `json:"decision"`
	Park    bool     `json:"park,omitempty"` // an ask to be kept for review while the work goes on
	Reasons []Reason `json:"reasons,omitempty"`
}

// String tells the decision in one line.
func (d Decision) String() string {
	texts := make([]string, 0, len(d.Reasons))
	for _, r := range d.Reasons {
		if r.Effect == d.Effect {
			texts = append(texts, r.Text)
		}
	}
	if len(texts) == 0 {
		return d.Effect.String()
	}
	return d.Effect.String() + ": " + strings.Join(texts, "; ")
}

// Decide answers one call. On allow it does not allocate.
func Decide(in *Input) Decision {
	if effect, _ := judge(in, nil); effect == Allow {
		return Decision{Effect: Allow}
	}
	d := Explain(in)
	answered := map[string]bool{}
	for _, r := range d.Reasons {
		answered[r.Scope] = answered[r.Scope] || r.Code == CodeStanding
	}
	d.Reasons = slices.DeleteFunc(d.Reasons, func(r Reason) bool {
		return r.Effect != d.Effect || r.Effect == Ask && answered[r.Scope]
	})
	return d
}

// Explain decides as Decide does and keeps every reason.
func Explain(in *Input) Decision {
	var d Decision
	d.Effect, d.Park = judge(in, &d.Reasons)
	return d
}

// judge does the work of both. Reasons are built only where out is not nil.
func judge(in *Input, out *[]Reason) (effect Effect, park bool) {
	if len(in.Scopes) == 0 {
		note(out, Reason{Deny, CodeNoScope, "call", "", "", ""}, "%s names no scope it needs, so nothing can grant it", in.Tool.Name)
		return Deny, false
	}
	effect = Allow
	irreversible := in.Tool.Irreversible
	for i := range in.Scopes {
		irreversible = irreversible || in.Scopes[i].Base().Irreversible()
	}
	for i := range in.Scopes {
		effect = min(effect, judgeNeed(in, in.Scopes[i], out))
		park = park || in.Unattended && in.Autonomy.Of(in.Scopes[i].Base()) == Supervised
	}
	effect = min(effect, judgeFlow(in, irreversible, out), judgeLimits(in, out))
	return effect, park && effect == Ask
}

// judgeNeed passes one need through the layers, the tier and the level.
func judgeNeed(in *Input, need scope.Scope, out *[]Reason) Effect {
	effect, tier := Allow, in.Tier
	if in.Role != nil {
		for _, l := range in.Role.layers {
			effect = min(effect, judgeLayer(l, "", "", need, out))
		}
		tier = min(tier, in.Role.maxTier)
	}
	for _, l := range in.Bounds {
		effect = min(effect, judgeLayer(l, "", "", need, out))
	}
	effect = min(effect, judgeLayer(in.Grants, "grants of ", in.Subject, need, out))
	ceiling := tier.ceiling(need.Base())
	if need.IsZero() {
		ceiling = Deny
	}
	if out != nil {
		noteTier(out, ceiling, tier, need)
	}
	effect = min(effect, ceiling)
	if effect == Deny {
		return Deny
	}
	return judgeLevel(in, effect, need, out)
}

func judgeLayer(l *Layer, missing, subject string, need scope.Scope, out *[]Reason) Effect {
	effect, rule := l.judge(need)
	if out == nil {
		return effect
	}
	name := l.Name()
	if l == nil && missing != "" {
		name = missing + subject
	}
	r := Reason{Effect: effect, Code: CodeNoRule, Layer: name, Scope: need.String()}
	if rule == nil {
		note(out, r, "%s: nothing covers %s", name, need)
		return effect
	}
	r.Code, r.Rule = CodeRule, rule.String()
	note(out, r, "%s: rule %q decides on %s", name, rule, need)
	return effect
}

func noteTier(out *[]Reason, effect Effect, tier Tier, need scope.Scope) {
	verb := map[Effect]string{Deny: "is never given", Ask: "has to ask for", Allow: "may hold"}[effect]
	note(out, Reason{effect, CodeTier, "tier " + tier.String(), need.String(), "", ""}, "tier %s %s %s", tier, verb, need.Base())
}

// judgeLevel lets the level ask and a standing approval answer. What is left of
// an ask that nobody is there to answer is refused where the level says so.
func judgeLevel(in *Input, effect Effect, need scope.Scope, out *[]Reason) Effect {
	level, final := in.Autonomy.Of(need.Base()), in.Tool.Irreversible || need.Base().Irreversible()
	wants := level.asks(need.Base(), final)
	if effect == Allow && !wants {
		return Allow
	}
	r := Reason{Ask, CodeLevel, "level " + level.String(), need.String(), "", ""}
	if wants && out != nil {
		what := "reading"
		if final {
			what = "what can be taken back"
		}
		note(out, r, "level %s asks before anything but %s, and this is %s", level, what, need.Base())
	}
	for i := range in.Standing {
		if in.Standing[i].Covers(need) {
			r.Effect, r.Code, r.Layer = Allow, CodeStanding, "standing approval"
			if out != nil {
				r.Rule = in.Standing[i].String()
				note(out, r, "the standing approval of %s answers for %s", in.Standing[i], need)
			}
			return Allow
		}
	}
	if in.Unattended && level == Autonomous && final {
		r.Effect, r.Code = Deny, CodeNobody
		note(out, r, "%s cannot be taken back and nobody is there to ask", need.Base())
		return Deny
	}
	return Ask
}

func judgeFlow(in *Input, irreversible bool, out *[]Reason) Effect {
	effect, code := flow(in.Label, in.Destination, irreversible)
	if out == nil || effect == Allow {
		return effect
	}
	r := Reason{effect, code, "labels", "", "", ""}
	if code == CodeUntrusted {
		note(out, r, "the context holds what others wrote (%s) and the call cannot be taken back", in.Label)
		return effect
	}
	readers := in.Destination.Readers
	if readers == "" {
		readers = label.Anyone
	}
	note(out, r, "%q is read by %s, which is wider than the context allows (%s)", in.Destination.Name, readers, in.Label)
	return effect
}

func judgeLimits(in *Input, out *[]Reason) Effect {
	effect := Allow
	if b := in.Budget; b.Limited && b.Estimate > b.Left {
		effect = Deny
		note(out, Reason{Deny, CodeBudget, "budget", "", "", ""}, "the call may cost $%.6f and $%.6f is left",
			float64(b.Estimate)/1e6, float64(max(0, b.Left))/1e6)
	}
	if in.OverRate {
		effect = Deny
		note(out, Reason{Deny, CodeRate, "rate", "", "", ""}, "%s has used up its calls of %s for now", in.Subject, in.Tool.Name)
	}
	return effect
}

// note appends r with its text, if anybody wants to know.
func note(out *[]Reason, r Reason, format string, args ...any) {
	if out != nil {
		r.Text = fmt.Sprintf(format, args...)
		*out = append(*out, r)
	}
}
