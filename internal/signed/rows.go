package signed

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

const loopColumns = "name, sha, body, at"

// loopRow is what the body of a row is bound to: a body of another loop, or that of the same
// loop beside another artifact, does not open.
func loopRow(name, sha string) string { return name + "@" + sha }

func (l *Library) scan(scan func(...any) error) (x Installed, err error) {
	var sealed []byte
	if err = scan(&x.Name, &x.SHA256, &sealed, &x.At); err != nil {
		return x, err
	}
	plain, err := l.d.Vault.Open(vault.SignedLoop, loopRow(x.Name, x.SHA256), sealed)
	if err == nil {
		err = json.Unmarshal(plain, &x)
	}
	if err != nil {
		x.Problem = fault.New(fault.Verification, "read signed_loops %s: %w", x.Name, err)
	}
	return x, nil
}

// listIn reads every loop, each with whether its keys were revoked.
func (l *Library) listIn(ctx context.Context, q db.Q) ([]Installed, error) {
	list, err := db.All(ctx, q, func(r *db.Rows) (Installed, error) { return l.scan(r.Scan) }, "SELECT "+loopColumns+" FROM signed_loops")
	if err != nil {
		return nil, err
	}
	revoked, err := l.revokedIn(ctx, q)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].judge(revoked)
		list[i].Shadowed = l.d.Taken(strings.ToLower(list[i].Name))
	}
	slices.SortFunc(list, func(a, b Installed) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return list, nil
}

func (l *Library) getIn(ctx context.Context, q db.Q, name string) (Installed, error) {
	x, err := l.scan(q.QueryRow(ctx, "SELECT "+loopColumns+" FROM signed_loops WHERE name = $1", name).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return x, notInstalled(name)
	}
	if err != nil {
		return x, err
	}
	revoked, err := l.revokedIn(ctx, q)
	x.judge(revoked)
	x.Shadowed = l.d.Taken(strings.ToLower(name))
	return x, err
}

// judge says which of a loop's keys are revoked.
func (x *Installed) judge(revoked []string) {
	for _, key := range []string{x.Publisher, x.Registry} {
		if key != "" && slices.Contains(revoked, key) {
			x.Revoked = key
		}
	}
}

func (l *Library) putTx(ctx context.Context, tx *db.Tx, x Installed) error {
	raw, err := json.Marshal(x)
	if err != nil {
		return fault.New(fault.Internal, "body of a signed loop: %w", err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO signed_loops (`+loopColumns+`) VALUES ($1, $2, $3, $4)
		ON CONFLICT (name) DO UPDATE SET sha = excluded.sha, body = excluded.body, at = excluded.at`,
		x.Name, x.SHA256, l.d.Vault.Seal(vault.SignedLoop, loopRow(x.Name, x.SHA256), raw), x.At)
	return err
}
