package agent

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/tool"
)

// subjectKind begins the subjects that are agents.
const subjectKind = "agent:"

// authority is what the agent may do in a conversation. It is computed once for a
// turn, before any model is asked, and again only when the turn goes on after it
// waited or was interrupted: what was revoked meanwhile is gone then.
func (a *Agents) authority(ctx context.Context, in TurnInput) (*act.Authority, error) {
	i := a.identity(in.Agent)
	held, err := a.heldBy(ctx, i, in.Conversation)
	if err != nil {
		return nil, err
	}
	p := i.permit(held)
	p.Tier = in.Tier
	in.Within.lend(&p)
	p.Bounds = append(p.Bounds, in.Within.layers()...)
	return &act.Authority{
		Subject: p.Subject, Agent: i.Name, Conversation: in.Conversation, Readers: in.Audience, Grants: p.Grants, Role: p.Role, Bounds: p.Bounds,
		Tier: p.Tier, Standing: p.Standing, Autonomy: p.Autonomy, Unattended: in.Unattended,
	}, nil
}

func (a *Agents) heldBy(ctx context.Context, i Identity, conversation string) (policy.Held, error) {
	if a.Authority == nil {
		return policy.Held{}, nil
	}
	return a.Authority.For(ctx, subjectKind+i.Name, conversation)
}

// permit is what policy is asked about a call of the identity, less the call, its
// tier and its context.
func (i Identity) permit(held policy.Held) policy.Input {
	in := policy.Input{
		Subject: subjectKind + i.Name, Grants: i.Grants, Role: i.Role, Bounds: held.Bounds, Standing: held.Standing, Autonomy: i.Autonomy,
	}
	if len(held.Rules) > 0 {
		in.Grants = policy.NewLayer(i.Grants.Name(), append(i.Grants.Rules(), held.Rules...))
	}
	if held.Autonomy != nil {
		in.Autonomy = held.Autonomy
	}
	return in
}

// Permit is what policy is asked about a call of a subject that is a configured
// agent, given what is held beside its role. NotFound for any other.
func (a *Agents) Permit(subject string, held policy.Held) (policy.Input, error) {
	name, isAgent := strings.CutPrefix(subject, subjectKind)
	i, known := a.identities[name]
	if !isAgent || !known {
		return policy.Input{}, fault.New(fault.NotFound, "no agent is called %q", subject).
			WithHint("the agents are %s%s", subjectKind, strings.Join(slices.Sorted(maps.Keys(a.identities)), ", "+subjectKind))
	}
	return i.permit(held), nil
}

// Subjects are the configured agents, in order, as policy knows them.
func (a *Agents) Subjects() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(a.identities)) {
		out = append(out, subjectKind+name)
	}
	return out
}

// PolicyFor is what policy is asked about a tool of the default agent as a whole.
// whole is false if what the tool needs depends on its input.
func (a *Agents) PolicyFor(ctx context.Context, d tool.Definition) (in policy.Input, whole bool, err error) {
	nothing := []byte("{}")
	if invalid := a.Tools.Validate(d.Name, nothing); invalid != nil {
		return in, false, nil //nolint:nilerr // it needs an input, which is what was asked
	}
	scopes, unknown := d.Scopes(nothing)
	if unknown != nil {
		return in, false, nil //nolint:nilerr // as above
	}
	i := a.identity(Default)
	held, err := a.heldBy(ctx, i, "")
	if err != nil {
		return in, false, err
	}
	in = i.permit(held)
	in.Tool, in.Scopes, in.Tier = policy.ToolFacts{Name: d.Name, Irreversible: d.Irreversible}, scopes, policy.Trusted
	return in, true, nil
}
