package model

import (
	"context"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// Local is the residency of a model that runs on this machine.
const Local = "local"

// Link is one member of a fallback chain.
type Link struct {
	Provider Provider
	Model    string // "" is the provider's default
	// Residency says where prompts go: Local, the name of a region, or "" for
	// anywhere.
	Residency string
}

// Fallback returns a provider that asks the links in order and goes to the next
// one only when a link is Unavailable: never because it refused, disliked the
// request or the key, or ran out of time. The model a request names is that of
// the first link; the others use their own.
//
// A link may not keep data less close than the first one: local never falls back
// to remote, a region only to itself or to local. Such a chain is a Config error.
func Fallback(links ...Link) (Provider, error) {
	if len(links) == 0 {
		return nil, fault.New(fault.Config, "a fallback chain needs a model")
	}
	for _, l := range links[1:] {
		if want := links[0].Residency; want != "" && l.Residency != want && l.Residency != Local {
			return nil, fault.New(fault.Config, "%s (%s) cannot stand in for %s (%s): its data residency is weaker",
				l.Provider.Name(), residency(l), links[0].Provider.Name(), residency(links[0]))
		}
	}
	return &fallback{links: links}, nil
}

func residency(l Link) string {
	if l.Residency == "" {
		return "anywhere"
	}
	return l.Residency
}

type fallback struct{ links []Link }

var _ Provider = (*fallback)(nil)

// Name returns the name of the first link; Response.Provider tells who answered.
func (f *fallback) Name() string { return f.links[0].Provider.Name() }

func (f *fallback) Generate(ctx context.Context, req Request, sink Sink) (Response, error) {
	var failed []error
	for i, l := range f.links {
		ask := req
		if i > 0 || ask.Model == "" {
			ask.Model = l.Model
		}
		if i > 0 {
			sink.Send(Delta{Restart: true})
		}
		out, err := l.Provider.Generate(ctx, ask, sink)
		if err == nil {
			return out, nil
		}
		failed = append(failed, err)
		if !fault.Is(err, fault.Unavailable) || ctx.Err() != nil {
			break
		}
	}
	last := failed[len(failed)-1]
	if len(failed) == 1 {
		return Response{}, last
	}
	texts := make([]string, len(failed))
	for i, err := range failed {
		texts[i] = err.Error()
	}
	return Response{}, fault.New(fault.ClassOf(last), "no model of the chain answered: %s: %w", strings.Join(texts[:len(texts)-1], "; "), last)
}
