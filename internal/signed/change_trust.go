package signed

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/wasmloop"
)

// Trusting is a change of what is trusted.
type Trusting struct {
	Add    []TrustRow // By is not looked at
	Remove []TrustRow // by Kind and Key
	By     string
}

// trustData is the payload of loop.trust.
type trustData struct {
	Add    []string `json:"add,omitempty"` // KIND:KEY
	Remove []string `json:"remove,omitempty"`
}

// maxTrust is how many rows of trust there can be.
const maxTrust = 1000

// Change changes what is trusted, in one transaction with what that stops. It returns the
// loops that are stopped by a revoked key now and were not before, and those that run
// again. Errors: Invalid for a key that is none, NotFound for a row to be removed that is
// not there.
func (l *Library) Change(ctx context.Context, c Trusting) (stopped, freed []string, err error) {
	if len(c.Add)+len(c.Remove) == 0 {
		return nil, nil, fault.New(fault.Invalid, "there is nothing to change of what is trusted")
	}
	for _, r := range c.Add {
		if err := r.check(); err != nil {
			return nil, nil, err
		}
	}
	err = l.d.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		stopped, freed = nil, nil
		before, err := l.listIn(ctx, tx)
		if err != nil {
			return err
		}
		if err := l.trustTx(ctx, tx, c); err != nil {
			return err
		}
		after, err := l.listIn(ctx, tx)
		if err != nil {
			return err
		}
		for i := range after {
			switch {
			case before[i].Revoked == "" && after[i].Revoked != "":
				stopped = append(stopped, after[i].Name)
			case before[i].Revoked != "" && after[i].Revoked == "":
				freed = append(freed, after[i].Name)
			}
		}
		return l.trustToldTx(ctx, tx, c, stopped, freed)
	})
	return stopped, freed, err
}

func (r TrustRow) check() error {
	switch {
	case !slices.Contains([]string{Registry, Publisher, Revoked, Community}, r.Kind):
		return fault.New(fault.Invalid, "%q is nothing that can be trusted", r.Kind)
	case r.Kind == Community:
		if r.Key != "" {
			return fault.New(fault.Invalid, "the community has no key")
		}
	default:
		if _, err := wasmloop.ParseKey(r.Key); err != nil {
			return fault.New(fault.Invalid, "%w", err).WithHint("a key is 43 letters, digits, - and _, as ombud loop inspect shows it")
		}
	}
	if r.URL != "" && r.Kind != Registry {
		return fault.New(fault.Invalid, "only a registry has a URL")
	}
	if strings.ContainsRune(r.Note+r.URL, 0) || len(r.Note)+len(r.URL) > 4096 {
		return fault.New(fault.Invalid, "note and URL have at most 4096 bytes, and no NUL")
	}
	return nil
}

func (l *Library) trustTx(ctx context.Context, tx *db.Tx, c Trusting) error {
	for _, r := range c.Remove {
		n, err := tx.Exec(ctx, "DELETE FROM signed_trust WHERE kind = $1 AND name = $2", r.Kind, r.Key)
		if err != nil {
			return err
		}
		if n == 0 {
			return fault.New(fault.NotFound, "%s is not there", strings.TrimSuffix(trustRow(r.Kind, r.Key), ":")).WithHint("ombud loop trust list")
		}
	}
	for _, r := range c.Add {
		r.By = c.By
		raw, err := json.Marshal(r)
		if err != nil {
			return fault.New(fault.Internal, "body of a row of trust: %w", err)
		}
		_, err = tx.Exec(ctx, `INSERT INTO signed_trust (kind, name, body, at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (kind, name) DO UPDATE SET body = excluded.body, at = excluded.at`,
			r.Kind, r.Key, l.d.Vault.Seal(vault.SignedTrust, trustRow(r.Kind, r.Key), raw), tx.Now())
		if err != nil {
			return err
		}
	}
	n := 0
	if err := tx.QueryRow(ctx, "SELECT count(*) FROM signed_trust").Scan(&n); err != nil {
		return err
	}
	if n > maxTrust {
		return fault.New(fault.Invalid, "at most %d keys can be trusted or revoked", maxTrust)
	}
	return nil
}

func (l *Library) trustToldTx(ctx context.Context, tx *db.Tx, c Trusting, stopped, freed []string) error {
	if err := l.targetsTx(ctx, tx); err != nil {
		return err
	}
	data := trustData{}
	for _, r := range c.Add {
		data.Add = append(data.Add, trustRow(r.Kind, r.Key))
	}
	for _, r := range c.Remove {
		data.Remove = append(data.Remove, trustRow(r.Kind, r.Key))
	}
	for verb, rows := range map[string][]string{"add": data.Add, "remove": data.Remove} {
		for _, row := range rows {
			_, err := l.d.Audit.AppendTx(ctx, tx, audit.Entry{Kind: "trust", Actor: c.By, Subject: c.By, Outcome: "ok", Reason: verb + " " + row})
			if err != nil {
				return err
			}
		}
	}
	evs, err := l.d.Log.AppendTx(ctx, tx, eventlog.New{Stream: "loops", Kind: "loop.trust", Actor: c.By, Data: data, Expect: eventlog.Any})
	if err != nil {
		return err
	}
	var text string
	if len(stopped) > 0 {
		text = "A key was revoked. What it signed is stopped: " + strings.Join(stopped, ", ")
	}
	if len(freed) > 0 {
		text = strings.TrimSpace(text + "\nA key is revoked no more. What it signed runs again: " + strings.Join(freed, ", "))
	}
	if text == "" {
		return nil
	}
	return l.d.Tell(ctx, tx, evs[0].ID, text)
}
