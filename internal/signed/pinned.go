package signed

import (
	"context"
	"slices"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/wasmloop"
)

// Knows reports whether a run can go on with the artifact it is pinned to: it is there, and
// no key by which it is signed is revoked. A run of a loop that was removed is let through:
// it says at once that it was.
func (l *Library) Knows(ctx context.Context, q db.Q, definition string) (bool, error) {
	name, sha, ok := Pinned(definition)
	if !ok {
		return false, nil
	}
	if has, err := l.Has(ctx, q, sha); err != nil || !has {
		return false, err
	}
	x, err := l.getIn(ctx, q, name)
	switch {
	case fault.Is(err, fault.NotFound):
		return true, nil
	case err != nil || x.Revoked != "" || x.SHA256 == sha:
		return err == nil && x.Revoked == "", err
	}
	keys, err := l.keysOfIn(ctx, q, sha)
	if err != nil {
		return fault.Is(err, fault.Verification), dropped(err, fault.Verification) // its run says what is wrong with it
	}
	revoked, err := l.revokedIn(ctx, q)
	return err == nil && among(keys, revoked) == "", err
}

func dropped(err error, class fault.Class) error {
	if fault.Is(err, class) {
		return nil
	}
	return err
}

// Revoked is a revoked key by which an artifact is signed that was read before, "" if none
// is. It reads nothing.
func (l *Library) Revoked(sha string) string {
	keys, read := l.keys.Load(sha)
	revoked := l.revoked.Load()
	if !read || revoked == nil {
		return ""
	}
	return among(keys.([]string), *revoked) //nolint:forcetypeassert // we put it there
}

func among(keys, revoked []string) string {
	for _, key := range keys {
		if slices.Contains(revoked, key) {
			return key
		}
	}
	return ""
}

// keysOf are the keys that vouch for an artifact, or say they do.
func keysOf(a *wasmloop.Artifact) (keys []string) {
	if a.Manifest.Publisher != "" {
		keys = append(keys, a.Manifest.Publisher)
	}
	for _, s := range a.Signatures {
		keys = append(keys, s.Key)
	}
	return keys
}

// keysOfIn reads them from the store, once: what has a sha256 does not change.
func (l *Library) keysOfIn(ctx context.Context, q db.Q, sha string) ([]string, error) {
	if keys, read := l.keys.Load(sha); read {
		return keys.([]string), nil //nolint:forcetypeassert // we put it there
	}
	pieces, err := db.All(ctx, q, db.Column[[]byte], "SELECT data FROM signed_pieces WHERE sha = $1 ORDER BY n", sha)
	if err != nil {
		return nil, err
	}
	data := []byte(nil)
	for n, sealed := range pieces {
		piece, err := l.d.Vault.Open(vault.SignedPiece, pieceRow(sha, n), sealed)
		if err != nil {
			return nil, err
		}
		data = append(data, piece...)
	}
	if got := Sum(data); got != sha {
		return nil, fault.New(fault.Verification, "the artifact kept as %s has the sha256 %s", sha, got)
	}
	a, err := wasmloop.Unpack(data)
	if err != nil {
		return nil, fault.New(fault.Verification, "the artifact kept as %s: %w", sha, err)
	}
	keys := keysOf(a)
	l.keys.Store(sha, keys)
	return keys, nil
}

// cancelTx cancels what has not ended of loops that are not installed any more, with what it
// asks and waits for. Such runs would otherwise stay where they are, or be begun.
func (l *Library) cancelTx(ctx context.Context, tx *db.Tx, installed []Installed) error {
	type left struct{ id, name string }
	runs, err := db.All(ctx, tx, func(r *db.Rows) (x left, err error) { err = r.Scan(&x.id, &x.name); return x, err },
		"SELECT id, name FROM runs WHERE ended = 0 AND kind IN ($1, $2) ORDER BY seq", Kind, ToolKind)
	if err != nil {
		return err
	}
	for _, x := range runs {
		if slices.ContainsFunc(installed, func(i Installed) bool { return i.Subject() == x.name }) {
			continue
		}
		live := 0 // one that waited for another has ended with it
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM runs WHERE id = $1 AND ended = 0", x.id).Scan(&live); err != nil {
			return err
		}
		if live == 0 {
			continue
		}
		if err := l.d.Runs.CancelTx(ctx, tx, x.id, "ombud", x.name+" was removed"); err != nil {
			return err
		}
	}
	return nil
}
