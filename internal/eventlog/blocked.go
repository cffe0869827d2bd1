package eventlog

import (
	"context"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/vault"
)

// Blocked is a stream that waits for a retry.
type Blocked struct {
	Subscription string
	Stream       string
	From         int64 // first position not handled
	Attempts     int64
	NextAt       int64
	Error        string
}

// Blocked returns the streams that wait, the first due first, at most 256.
func (l *Log) Blocked(ctx context.Context) ([]Blocked, error) {
	var out []Blocked
	err := l.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		out, err = db.All(ctx, q, func(r *db.Rows) (b Blocked, err error) {
			var sealed []byte
			if err := r.Scan(&b.Subscription, &b.Stream, &b.From, &b.Attempts, &b.NextAt, &sealed); err != nil {
				return b, err
			}
			text, err := l.vault.Open(vault.BlockedError, blockedRow(b.Subscription, b.Stream), sealed)
			b.Error = string(text)
			return b, err
		}, `SELECT subscription, stream, from_position, attempts, next_at, error FROM blocked
			ORDER BY next_at, subscription, stream LIMIT $1`, int64(page))
		return err
	})
	return out, err
}
