//go:build unix

package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// cannedSecrets keeps secrets as long as the fake daemon lives. The fingerprint tells
// a script which value arrived.
func cannedSecrets(m *ipc.Mux) {
	var mu sync.Mutex
	var kept []wire.Secret
	find := func(name string) int {
		return slices.IndexFunc(kept, func(s wire.Secret) bool { return s.Name == name })
	}
	ipc.Handle(m, wire.SecretSet, func(_ context.Context, req wire.SecretSetRequest) (out wire.SecretSetResult, _ error) {
		mu.Lock()
		defer mu.Unlock()
		sum := sha256.Sum256(req.Value)
		s := wire.Secret{Name: req.Name, Version: 1, Hosts: req.Hosts, SetBy: "operator", SetAt: noon, Fingerprint: hex.EncodeToString(sum[:4])}
		if i := find(req.Name); i >= 0 {
			s.Version = kept[i].Version + 1
			kept[i] = s
		} else {
			kept = append(kept, s)
		}
		out.Secret = s
		if len(req.Value) < 8 {
			out.Warnings = []string{"it is short"}
		}
		if req.Name == "claude-key" {
			out.Notes = []string{"models.providers.anthropic.api_key uses it from the next request on"}
		}
		return out, nil
	})
	ipc.Handle(m, wire.SecretList, func(context.Context, wire.Empty) (wire.SecretListResult, error) {
		mu.Lock()
		defer mu.Unlock()
		return wire.SecretListResult{Secrets: slices.Clone(kept)}, nil
	})
	ipc.Handle(m, wire.SecretRemove, func(_ context.Context, req wire.SecretRemoveRequest) (out wire.SecretRemoveResult, err error) {
		mu.Lock()
		defer mu.Unlock()
		i := find(req.Name)
		if i < 0 {
			return out, fault.New(fault.NotFound, "there is no secret %s", req.Name).WithHint("ombud secret set %s", req.Name)
		}
		out.Secret = kept[i]
		kept = slices.Delete(kept, i, i+1)
		return out, nil
	})
}
