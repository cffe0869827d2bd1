package delegate

import (
	"context"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/harness/keyproxy"
)

// Keys lends tokens in the place of keys; it is a *keyproxy.Broker.
type Keys interface {
	Lend(owner string, up keyproxy.Upstream, key string) (*keyproxy.Loan, error)
}

// KeyHeld reports whether ombud keeps the key of a harness from its program. Else, if there
// is a key, the program has it in its environment: nobody knows where it is good.
func (h Harness) KeyHeld() bool {
	_, held := h.vendor(h.Model)
	return held
}

// vendor is where the key of a harness is good when it runs model.
func (h Harness) vendor(model string) (child.Vendor, bool) {
	if h.KeyFrom() == "" {
		return child.Vendor{}, false
	}
	return child.VendorOf(h.CLI, model, h.Variable, h.BaseURL)
}

// key is the key of a harness, "" for a program that is logged in by itself.
func (s *Service) key(ctx context.Context, h Harness) (string, error) {
	if h.Secret == "" {
		return h.Key, nil
	}
	v, err := s.Secrets.Resolve(ctx, h.Secret)
	if err != nil {
		return "", fault.New(fault.ClassOf(err), "the key of %s: %w", h.Name, err).WithHint("ombud secret set %s", h.Secret)
	}
	return v.Reveal(), nil
}

// access is how a program gets at the API of its model.
type access struct {
	env          []string
	base         string
	held, stands bool
	end          func() // of a token that was lent
}

// access gives a start of a program a token in the place of its key, or the key itself
// where that has to be. It is good until end.
func (s *Service) access(ctx context.Context, run string, h Harness, model string) (access, error) {
	out := access{base: h.BaseURL, end: func() {}}
	key, err := s.key(ctx, h)
	if err != nil || key == "" {
		return out, err
	}
	v, held := h.vendor(model)
	if !held {
		out.env = []string{h.Variable + "=" + key}
		return out, nil
	}
	l, err := s.Keys.Lend(run, v.Upstream, key)
	if err != nil {
		return out, err
	}
	return access{env: []string{h.Variable + "=" + l.Token}, base: l.BaseURL, held: true, stands: v.Stands, end: l.End}, nil
}

// probeEnv is what a program is told that is only asked for its version and login. A key that
// is held is not shown to it for that.
func (s *Service) probeEnv(ctx context.Context, h Harness) ([]string, error) {
	key, err := s.key(ctx, h) // one that is not there is told now
	switch {
	case err != nil || key == "":
		return nil, err
	case h.KeyHeld():
		key = keyproxy.Placeholder
	}
	return []string{h.Variable + "=" + key}, nil
}
