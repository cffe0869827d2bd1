package loops

import (
	"context"
	"slices"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
)

// Permit is what policy is asked about a call of the actor, less the call, given what
// is held beside its role. Where Own is set, what it holds answers for itself: nobody is
// asked again about what the operator wrote down.
func (w Actor) Permit(held policy.Held, usual policy.Level) (policy.Input, error) {
	in := policy.Input{
		Subject: w.Subject, Role: w.Role, Tier: policy.Trusted, Bounds: held.Bounds, Standing: held.Standing, Autonomy: held.Autonomy, Unattended: true,
	}
	name := "grants of " + w.Subject
	switch {
	case w.Role == nil:
		in.Grants = policy.NewLayer(name, slices.Concat(w.Own, held.Rules))
	case w.Own == nil:
		in.Grants = policy.NewLayer(name, append(w.Role.Grants(w.Subject).Rules(), held.Rules...))
	default:
		layers := w.Role.Layers()
		in.Role, in.Tier = nil, min(in.Tier, w.Role.MaxTier())
		in.Grants = policy.NewLayer(name+" and role "+w.Role.Name(), slices.Concat(layers[0].Rules(), w.Own, held.Rules))
		in.Bounds = slices.Concat(layers[1:], held.Bounds)
		in.Standing = slices.Clone(held.Standing)
		for _, r := range w.Own {
			if r.Effect == policy.Allow {
				in.Standing = append(in.Standing, r.Scope)
			}
		}
	}
	if in.Autonomy != nil {
		return in, nil
	}
	var err error
	in.Autonomy, err = policy.NewAutonomy(usual, nil)
	return in, err
}

// AuthorityOf is what the actor may do now, in its own conversation.
func (d Deps) AuthorityOf(ctx context.Context, w Actor) (*act.Authority, error) {
	var conv agent.Conversation
	err := d.DB.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		conv, err = d.Agents.Conversation(ctx, q, w.Subject)
		return err
	})
	if err != nil {
		err = d.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
			conv, err = d.Agents.OpenTx(ctx, tx, agent.Local(w.Subject), w.Agent, w.Subject)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	var held policy.Held
	if d.Held != nil {
		if held, err = d.Held.For(ctx, w.Subject, conv.ID); err != nil {
			return nil, err
		}
	}
	p, err := w.Permit(held, d.Usual)
	if err != nil {
		return nil, err
	}
	return &act.Authority{
		Subject: p.Subject, Agent: w.Agent, Conversation: conv.ID, Readers: label.OperatorOnly, Grants: p.Grants, Role: p.Role, Bounds: p.Bounds,
		Tier: p.Tier, Standing: p.Standing, Autonomy: p.Autonomy, Unattended: p.Unattended,
	}, nil
}

// askBounds are the bounds of an agent that the actor asks. What a loop is bounded by
// bounds it too. A recipe's file is the operator's word, so the agent it asks has its own
// authority, less what the recipe is denied.
func (k *Kit) askBounds() (out []agent.Bound) {
	in := policy.Input{Grants: k.auth.Grants, Role: k.auth.Role, Bounds: k.auth.Bounds}
	for _, l := range in.Inherit() {
		rules := l.Rules()
		if k.who.Own != nil && l == k.auth.Grants {
			rules = allBut(rules)
		}
		out = append(out, agent.Bound{Name: l.Name(), Rules: rules})
	}
	return out
}

// allBut are rules that allow everything except what the given ones deny.
func allBut(rules []policy.Rule) []policy.Rule {
	var out []policy.Rule
	for _, b := range scope.Bases() {
		out = append(out, policy.Rule{Scope: scope.Unqualified(b), Effect: policy.Allow})
	}
	for _, r := range rules {
		if r.Effect == policy.Deny {
			out = append(out, r)
		}
	}
	return out
}
