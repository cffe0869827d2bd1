package db

import (
	"context"

	"github.com/ombud-run/ombud/internal/fault"
)

// Integrity lets SQLite check its whole file; on PostgreSQL that is the server's
// own business. Verification if the file is damaged.
func (d *DB) Integrity(ctx context.Context) error { return d.integrity(ctx, "PRAGMA quick_check(1)") }

func (d *DB) integrity(ctx context.Context, pragma string) error {
	if d.postgres {
		return nil
	}
	var said string
	if err := d.readPool.QueryRowContext(ctx, pragma).Scan(&said); err != nil {
		return d.dialect.classify(err)
	}
	if said != "ok" {
		return fault.New(fault.Verification, "the database file is damaged: %s", said).
			WithHint("stop the daemon, keep the damaged file, and restore a backup in its place")
	}
	return nil
}
