package act

import (
	"context"
	"sync"

	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
)

// bound is the context of a call, which ends with its time. While the call has a person
// asked, where it may, its time stands still.
func (k *call) bound(ctx context.Context, clock *run.Clock) (context.Context, context.CancelFunc) {
	if k.def.Asks <= 0 {
		return context.WithTimeoutCause(ctx, k.def.Timeout, errAbandoned)
	}
	return clock.Bound(ctx, k.def.Timeout, errAbandoned)
}

// asking stops the clocks of the call and of its run while a person is asked: at most as
// long as the definition says, however long the tool asks on.
func (k *call) asking(clock *run.Clock) func(context.Context) (context.Context, func()) {
	if k.def.Asks <= 0 {
		return nil
	}
	return func(ctx context.Context) (context.Context, func()) {
		ctx, cancel := context.WithTimeout(ctx, k.def.Asks-clock.Asked())
		ctx, back := k.run.Asking(ctx)
		own := clock.Ask()
		resume := sync.OnceFunc(func() { own(); back() })
		context.AfterFunc(ctx, resume)
		return ctx, func() { resume(); cancel() }
	}
}

// judging is what policy says of a further scope. What the call tells anybody is not part
// of it: that is judged where it is told.
func (a *Act) judging(k *call) func(scope.Scope) policy.Decision {
	return func(need scope.Scope) policy.Decision {
		in := *a.policyInput(k)
		in.Scopes, in.Label, in.Destination = []scope.Scope{need}, label.Label{}, policy.Destination{}
		return a.Decide(&in)
	}
}
