package signed

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/wasmloop"
)

// Verified is what became of verifying one loop.
type Verified struct {
	Installed
	Problem error    // nil: it is what was approved
	Notes   []string // what has changed of what vouches for it
}

// Verify reads an installed loop back, or all of them, and holds each against what was
// approved: row, file, manifest, signatures, keys.
func (l *Library) Verify(ctx context.Context, name string) (out []Verified, err error) {
	list, err := l.List(ctx)
	if err != nil {
		return nil, err
	}
	if name != "" {
		x, err := l.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		list = []Installed{x}
	}
	trusted, err := l.Trusted(ctx)
	if err != nil {
		return nil, err
	}
	for _, x := range list {
		v := Verified{Installed: x}
		v.Problem = l.verify(ctx, x, trusted)
		s := standing{trust: trusted}
		if x.Tier == wasmloop.TierRegistry && !slices.Contains(s.keys(Registry), x.Registry) {
			v.Notes = append(v.Notes, "the registry that reviewed it is trusted no more")
		}
		out = append(out, v)
	}
	return out, nil
}

func (l *Library) verify(ctx context.Context, x Installed, trusted []TrustRow) error {
	if x.Problem != nil {
		return x.Problem
	}
	data, err := l.file(ctx, x.SHA256)
	if err != nil {
		if fault.Is(err, fault.NotFound) {
			err = fault.New(fault.Verification, "%w", err)
		}
		return err
	}
	s := standing{trust: trusted}
	// The registry of the day it was approved; a revoked key is refused all the same.
	a, v, err := wasmloop.VerifyBytes(data, wasmloop.Trust{
		Registries: append(s.keys(Registry), x.Registry), Revoked: s.keys(Revoked), AllowUntrusted: true,
	})
	if err != nil {
		return refusal(err)
	}
	if !alike(a.Manifest, x.Manifest) || v.Publisher != x.Publisher || v.Registry != x.Registry || v.Tier != x.Tier {
		return fault.New(fault.Verification, "%s is not what was approved: its row says another manifest or other keys than its file", x.Name)
	}
	return nil
}

// alike reports whether two manifests say the same.
func alike(a, b wasmloop.Manifest) bool {
	one, err := json.Marshal(a)
	two, errTwo := json.Marshal(b)
	return err == nil && errTwo == nil && bytes.Equal(one, two)
}
