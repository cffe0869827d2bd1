package act

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/vault"
)

// keepTx notes in the commit of an outcome which conversation its blobs belong to:
// a handle is a name, not an authority.
func (a *Act) keepTx(ctx context.Context, tx *db.Tx, k *call, res Result) error {
	handles := res.Parts
	if res.Blob != "" {
		handles = append([]string{res.Blob}, handles...)
	}
	conversation := k.Authority.Conversation
	if conversation == "" {
		return nil
	}
	for _, handle := range handles {
		_, err := tx.Exec(ctx, `INSERT INTO results (blob, conversation, run, step, label) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (blob, conversation) DO UPDATE SET run = excluded.run, step = excluded.step, label = excluded.label`,
			handle, conversation, k.run.ID(), k.Step, a.Vault.Seal(vault.ResultLabel, handle+"/"+conversation, res.Label.Marshal()))
		if err != nil {
			return err
		}
	}
	return nil
}

// Kept returns the label of a kept result that a conversation may read; NotFound
// for any other handle.
func (a *Act) Kept(ctx context.Context, conversation, handle string) (l label.Label, err error) {
	var sealed []byte
	err = a.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT label FROM results WHERE blob = $1 AND conversation = $2", handle, conversation).Scan(&sealed)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return l, fault.New(fault.NotFound, "no result %q was kept in this conversation", handle)
	}
	if err != nil {
		return l, err
	}
	plain, err := a.Vault.Open(vault.ResultLabel, handle+"/"+conversation, sealed)
	if err != nil {
		return l, err
	}
	return l, json.Unmarshal(plain, &l)
}
