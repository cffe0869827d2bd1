package delegate

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// maxKey bounds the key of a task, in bytes.
const maxKey = 200

// sealOf stands for what a client asked for under a key.
func (s *Service) sealOf(o Order, key string) ([]byte, error) {
	o.Conversation = "" // where it is put is not the client's word
	raw, err := json.Marshal(struct {
		Harness string `json:"harness"`
		Model   string `json:"model"`
		Task    Task   `json:"task"`
	}{o.Want.Harness, o.Want.Model, o.Task})
	if err != nil {
		return nil, fault.New(fault.Internal, "a task: %w", err)
	}
	return s.Vault.MAC("delegate.start", []byte(key), raw), nil
}

// begun finds the task that was begun under a key.
func (s *Service) begun(ctx context.Context, q db.Q, o Order, key string) (got Started, known bool, err error) {
	mac, err := s.sealOf(o, key)
	if err != nil {
		return got, false, err
	}
	var had []byte
	err = q.QueryRow(ctx, "SELECT run, body_mac FROM delegations WHERE key = $1", s.Vault.Blind(vault.DelegationKey, key)).Scan(&got.Run, &had)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return got, false, nil
	case err != nil:
		return got, false, err
	case !bytes.Equal(had, mac):
		return got, false, fault.New(fault.Conflict, "another task was given with this key before").WithHint("use a new key for a new task")
	}
	x, err := s.get(ctx, q, got.Run)
	got.Session, got.Route, got.Why = x.Session, Route{x.Harness, x.Route.Model}, x.Route.Why
	return got, err == nil, err
}

// Begun finds the task that was begun under a key. Conflict if that was another task.
func (s *Service) Begun(ctx context.Context, o Order, key string) (got Started, known bool, err error) {
	if len(key) > maxKey {
		return got, false, fault.New(fault.Invalid, "a key has at most %d bytes", maxKey)
	}
	if key == "" {
		return got, false, nil
	}
	err = s.DB.Read(ctx, func(ctx context.Context, q db.Q) error { got, known, err = s.begun(ctx, q, o, key); return err })
	return got, known, err
}

// StartOnceTx is StartTx for a client that may ask again: a task with the same key is the
// same task. conversation is where its questions are put.
func (s *Service) StartOnceTx(ctx context.Context, tx *db.Tx, o Order, conversation, key string) (got Started, known bool, err error) {
	if key != "" {
		if got, known, err = s.begun(ctx, tx, o, key); err != nil || known {
			return got, known, err
		}
	}
	mac, err := s.sealOf(o, key)
	if err != nil {
		return got, false, err
	}
	o.Conversation = conversation
	if got, err = s.StartTx(ctx, tx, o, ""); err != nil || key == "" {
		return got, false, err
	}
	_, err = tx.Exec(ctx, "UPDATE delegations SET key = $1, body_mac = $2 WHERE run = $3", s.Vault.Blind(vault.DelegationKey, key), mac, got.Run)
	return got, false, err
}
