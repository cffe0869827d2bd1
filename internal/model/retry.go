package model

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// RetryPolicy says how often and how patiently an unavailable provider is asked
// again. The zero policy is the default.
type RetryPolicy struct {
	Attempts int           // in all; default 5
	Base     time.Duration // wait before the second attempt, doubled each time; default 500 ms
	Max      time.Duration // longest wait of ours; default 20 s
	// MaxAsked is the longest wait a provider may ask for; default 60 s. If it
	// wants more, its error is returned at once: a fallback can do better.
	MaxAsked time.Duration
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	if p.Attempts <= 0 {
		p.Attempts = 5
	}
	if p.Base <= 0 {
		p.Base = 500 * time.Millisecond
	}
	if p.Max <= 0 {
		p.Max = 20 * time.Second
	}
	if p.MaxAsked <= 0 {
		p.MaxAsked = time.Minute
	}
	return p
}

// Retrying returns p with attempts that failed as Unavailable made again: after
// the time the provider asked for, else with exponential backoff and jitter.
// Everything else, and what will stay so (an empty account), is returned at once.
// The deadline of ctx is the budget of all attempts together: a wait that would
// end after it is not begun, and the last error is returned.
//
// sleep waits or returns early with an error when ctx ends; nil uses a timer.
func Retrying(p Provider, policy RetryPolicy, sleep func(ctx context.Context, d time.Duration) error) Provider {
	if sleep == nil {
		sleep = sleepTimer
	}
	return &retrying{Provider: p, policy: policy.withDefaults(), sleep: sleep}
}

type retrying struct {
	Provider
	policy RetryPolicy
	sleep  func(context.Context, time.Duration) error
}

var _ Provider = (*retrying)(nil)

func (r *retrying) Generate(ctx context.Context, req Request, sink Sink) (Response, error) {
	for attempt := 1; ; attempt++ {
		out, err := r.Provider.Generate(ctx, req, sink)
		if err == nil || !retryable(err) || attempt >= r.policy.Attempts {
			return out, err
		}
		wait, ok := r.wait(ctx, attempt, err)
		if !ok {
			return Response{}, err
		}
		if r.sleep(ctx, wait) != nil {
			if ctxErr := ContextError(ctx, r.Name()); ctxErr != nil {
				return Response{}, fault.New(fault.ClassOf(ctxErr), "%w (waiting to ask again after: %v)", ctxErr, err)
			}
			return Response{}, err
		}
		sink.Send(Delta{Restart: true})
	}
}

// wait returns how long to wait before the attempt after this one, and false if
// there is no point in waiting.
func (r *retrying) wait(ctx context.Context, attempt int, err error) (time.Duration, bool) {
	wait, asked := RetryAfter(err)
	switch {
	case asked && wait > r.policy.MaxAsked:
		return 0, false
	case asked: // never earlier than told, and not all at the same instant
		wait += rand.N(wait/10 + 10*time.Millisecond)
	default:
		ceiling := r.policy.Max
		if shift := attempt - 1; shift < 20 {
			ceiling = min(ceiling, r.policy.Base<<shift)
		}
		wait = ceiling/2 + rand.N(ceiling/2+1)
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= wait {
		return 0, false
	}
	return wait, true
}

func sleepTimer(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
