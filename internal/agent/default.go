package agent

import (
	"context"

	"github.com/ombud-run/ombud/internal/policy"
)

// DefaultInput is what policy is asked about a call of the default agent that its
// operator talks to here, less the call.
func (a *Agents) DefaultInput(ctx context.Context) (policy.Input, error) {
	i := a.identity(Default)
	held, err := a.heldBy(ctx, i, "")
	if err != nil {
		return policy.Input{}, err
	}
	in := i.permit(held)
	in.Tier = policy.Trusted
	return in, nil
}
