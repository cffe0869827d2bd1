package grant

import (
	"context"
	"slices"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
)

// For returns what is in force for a subject in a conversation now, beside its
// role. An error means that this cannot be told, and then nothing is allowed.
func (g *Grants) For(ctx context.Context, subject, conversation string) (policy.Held, error) {
	s, err := g.of(ctx, subject)
	if err != nil {
		return policy.Held{}, err
	}
	return g.held(s, subject, conversation)
}

// Around returns what is in force for the subject of x without x and with it,
// whether x is stored or not.
func (g *Grants) Around(ctx context.Context, x Grant) (without, with policy.Held, err error) {
	s, err := g.of(ctx, x.Subject)
	if err != nil {
		return without, with, err
	}
	s.grants = slices.DeleteFunc(slices.Clone(s.grants), func(o Grant) bool { return o.ID == x.ID })
	if without, err = g.held(s, x.Subject, x.Conversation); err != nil {
		return without, with, err
	}
	x.Expires, x.Revoked = 0, 0
	s.grants = append(s.grants, x)
	with, err = g.held(s, x.Subject, x.Conversation)
	return without, with, err
}

// LimitLayer is the name of the layer that the limits of a subject make.
func LimitLayer(subject string) string { return "limits of " + subject }

// held folds what is stored into what policy asks.
func (g *Grants) held(s stored, subject, conversation string) (policy.Held, error) {
	var out policy.Held
	var limits []scope.Scope
	now := g.db.Time()
	for _, x := range s.grants {
		if x.StateAt(now) != Live || x.Conversation != "" && x.Conversation != conversation {
			continue
		}
		switch x.Effect {
		case Allow:
			out.Rules = append(out.Rules, policy.Rule{Scope: x.Scope, Effect: policy.Allow})
		case Ask:
			out.Rules = append(out.Rules, policy.Rule{Scope: x.Scope, Effect: policy.Ask})
		case Deny:
			out.Rules = append(out.Rules, policy.Rule{Scope: x.Scope, Effect: policy.Deny})
		case Limit:
			limits = append(limits, x.Scope)
		case Standing:
			out.Standing = append(out.Standing, x.Scope)
		}
	}
	if l := policy.Limit(LimitLayer(subject), limits); l != nil {
		out.Bounds = []*policy.Layer{l}
	}
	var err error
	out.Autonomy, err = g.autonomy(s.levels)
	return out, err
}

func (g *Grants) autonomy(levels []Level) (*policy.Autonomy, error) {
	if len(levels) == 0 {
		return nil, nil
	}
	level, areas := g.usual, map[string]policy.Level{}
	for _, l := range levels {
		if l.Area == "" {
			level = l.Level
		} else {
			areas[l.Area] = l.Level
		}
	}
	return policy.NewAutonomy(level, areas)
}

// of returns what is stored for a subject: from memory, if the store says that
// nothing has changed since it was read.
func (g *Grants) of(ctx context.Context, subject string) (s stored, err error) {
	err = g.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		version, err := db.Meta(ctx, q, versionKey)
		if err != nil {
			return err
		}
		var cached bool
		if s, cached = g.cached(version, subject); cached {
			return nil
		}
		if s.grants, err = g.unrevoked(ctx, q, subject); err != nil {
			return err
		}
		if s.levels, err = g.levels(ctx, q, subject); err != nil {
			return err
		}
		g.keep(version, subject, s)
		return nil
	})
	return s, err
}

func (g *Grants) cached(version, subject string) (stored, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.version != version {
		return stored{}, false
	}
	s, ok := g.cache[subject]
	return s, ok
}

func (g *Grants) keep(version, subject string, s stored) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.version != version || len(g.cache) >= maxCached {
		g.version = version
		clear(g.cache)
	}
	g.cache[subject] = s
}

// InForce returns the grants that For folds, for a person who wants to know which
// one decided.
func (g *Grants) InForce(ctx context.Context, subject, conversation string) ([]Grant, error) {
	s, err := g.of(ctx, subject)
	now := g.db.Time()
	return slices.DeleteFunc(slices.Clone(s.grants), func(x Grant) bool {
		return x.StateAt(now) != Live || x.Conversation != "" && x.Conversation != conversation
	}), err
}
