package signed

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/wasmloop"
)

// The kinds of trust.
const (
	Registry  = "registry"  // its countersignature says that somebody reviewed a loop
	Publisher = "publisher" // its loops are let in without their name being typed
	Revoked   = "revoked"   // nothing that it signed is let in, or runs
	Community = "community" // loops of publishers that are not known are let in
)

// TrustRow is one thing that is trusted, or no more.
type TrustRow struct {
	Kind string `json:"-"`
	Key  string `json:"-"`             // "" of Community
	URL  string `json:"url,omitempty"` // of a registry: its index must be signed by the key
	Note string `json:"note,omitempty"`
	By   string `json:"by"`
	At   int64  `json:"-"`
}

func trustRow(kind, key string) string { return kind + ":" + key }

// Trusted returns every row, by kind and key.
func (l *Library) Trusted(ctx context.Context) (out []TrustRow, err error) {
	err = l.d.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = l.trustIn(ctx, q)
		return err
	})
	return out, err
}

func (l *Library) trustIn(ctx context.Context, q db.Q) ([]TrustRow, error) {
	out, err := db.All(ctx, q, func(r *db.Rows) (x TrustRow, err error) {
		var sealed []byte
		if err = r.Scan(&x.Kind, &x.Key, &sealed, &x.At); err != nil {
			return x, err
		}
		plain, err := l.d.Vault.Open(vault.SignedTrust, trustRow(x.Kind, x.Key), sealed)
		if err == nil {
			err = json.Unmarshal(plain, &x)
		}
		if err != nil { // a list of revoked keys that cannot be read must not be a shorter one
			err = fault.New(fault.Verification, "read signed_trust %s: %w", trustRow(x.Kind, x.Key), err)
		}
		return x, err
	}, "SELECT kind, name, body, at FROM signed_trust")
	slices.SortFunc(out, func(a, b TrustRow) int {
		if trustRow(a.Kind, a.Key) < trustRow(b.Kind, b.Key) {
			return -1
		}
		return 1
	})
	return out, err
}

// revokedIn are the keys that were revoked.
func (l *Library) revokedIn(ctx context.Context, q db.Q) (keys []string, err error) {
	rows, err := l.trustIn(ctx, q)
	for _, x := range rows {
		if x.Kind == Revoked {
			keys = append(keys, x.Key)
		}
	}
	return keys, err
}

// Trust is what is let in, in the words of the public package.
func (l *Library) Trust(ctx context.Context) (t wasmloop.Trust, err error) {
	rows, err := l.Trusted(ctx)
	for _, x := range rows {
		switch x.Kind {
		case Registry:
			t.Registries = append(t.Registries, x.Key)
		case Revoked:
			t.Revoked = append(t.Revoked, x.Key)
		case Community:
			t.AllowCommunity = true
		}
	}
	return t, err
}

// refusal gives an error of the public package its class.
func refusal(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, wasmloop.ErrMalformed):
		return fault.New(fault.Invalid, "%w", err)
	case errors.Is(err, wasmloop.ErrUntrusted):
		return fault.New(fault.Denied, "%w", err)
	case errors.Is(err, wasmloop.ErrAltered):
		return fault.New(fault.Verification, "%w", err)
	case errors.Is(err, wasmloop.ErrNotInstalled):
		return fault.New(fault.NotFound, "%w", err)
	}
	return err
}
