package db

import (
	"context"
	"database/sql"
	"errors"
)

// Meta returns what the store says of itself under key, "" if nothing.
func Meta(ctx context.Context, q Q, key string) (value string, err error) {
	err = q.QueryRow(ctx, "SELECT value FROM meta WHERE key = $1", key).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return value, err
}

// SetMeta sets it.
func SetMeta(ctx context.Context, tx *Tx, key, value string) error {
	_, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value", key, value)
	return err
}

// ClaimMeta sets it if there is nothing yet, and returns what is there then.
func ClaimMeta(ctx context.Context, tx *Tx, key, value string) (string, error) {
	if _, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING", key, value); err != nil {
		return "", err
	}
	return Meta(ctx, tx, key)
}
