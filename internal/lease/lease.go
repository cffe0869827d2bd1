// Package lease says who may act for a thing, until when, and with which fence.
//
// A lease is a row with an owner, an end and a fence. Fences come from one counter
// of the store: each is greater than every earlier one, of any name, and none
// ever repeats, not even after a restart or a release. Whatever a holder writes
// elsewhere carries its fence, or checks its lease in the same transaction
// (CheckTx), so that one who slept through its end can change nothing.
//
//	free ──acquire──▶ held ──renew──▶ held
//	  ▲                │ │
//	  └────release─────┘ └──time runs out──▶ free to be taken, by anyone
//
// Time is the store's own clock, so two nodes whose clocks differ agree. A lease
// survives its holder's death until its end. Holding one is not re-entrant: whoever
// holds it renews it, and a second acquire, also by the same owner, is refused.
package lease

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// fences is the counter all fences come from.
const fences = "lease.fence"

// reserved begins the names of rows that are not taken through this package: the
// store's own seat.
const reserved = "ombud."

// Lease is a hold on a name. Expires is in Unix microseconds of the store's clock.
type Lease struct {
	Name    string
	Owner   string
	Fence   int64
	Expires int64
}

// Leases are the leases of one store. It is safe for concurrent use.
type Leases struct{ db *db.DB }

// New returns the leases of d.
func New(d *db.DB) *Leases { return &Leases{db: d} }

// Acquire is AcquireTx in a transaction of its own.
func (l *Leases) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (Lease, error) {
	return l.inTx(ctx, func(ctx context.Context, tx *db.Tx) (Lease, error) { return l.AcquireTx(ctx, tx, name, owner, ttl) })
}

// Renew is RenewTx in a transaction of its own.
func (l *Leases) Renew(ctx context.Context, held Lease, ttl time.Duration) (Lease, error) {
	return l.inTx(ctx, func(ctx context.Context, tx *db.Tx) (Lease, error) { return l.RenewTx(ctx, tx, held, ttl) })
}

// Release is ReleaseTx in a transaction of its own.
func (l *Leases) Release(ctx context.Context, held Lease) error {
	return l.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return l.ReleaseTx(ctx, tx, held) })
}

func (l *Leases) inTx(ctx context.Context, fn func(context.Context, *db.Tx) (Lease, error)) (out Lease, err error) {
	err = l.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		out, err = fn(ctx, tx)
		return err
	})
	if err != nil {
		return Lease{}, err
	}
	return out, nil
}

// AcquireTx takes the name for ttl, or returns a Conflict that names its holder.
func (l *Leases) AcquireTx(ctx context.Context, tx *db.Tx, name, owner string, ttl time.Duration) (Lease, error) {
	if name == "" || owner == "" || ttl < time.Microsecond || strings.HasPrefix(name, reserved) {
		return Lease{}, fault.New(fault.Invalid, "acquire lease %q for %q: it needs a name that is not of ombud itself, an owner and a time", name, owner)
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return Lease{}, fmt.Errorf("acquire lease %q: %w", name, err)
	}
	out := Lease{Name: name, Owner: owner, Expires: now + ttl.Microseconds()}
	held, err := get(ctx, tx, name)
	if err == nil && held.Expires > now {
		return Lease{}, fault.New(fault.Conflict, "lease %q is held by %s for %s more", name, held.Owner,
			time.Duration(held.Expires-now)*time.Microsecond)
	}
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return Lease{}, fmt.Errorf("acquire lease %q: %w", name, err)
	}
	if out.Fence, err = tx.Next(ctx, fences); err != nil {
		return Lease{}, fmt.Errorf("acquire lease %q: %w", name, err)
	}
	n, err := tx.Exec(ctx, `INSERT INTO leases (name, owner, fence, expires) VALUES ($1, $2, $3, $4)
		ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, fence = excluded.fence, expires = excluded.expires
		WHERE leases.expires <= $5`, name, owner, out.Fence, out.Expires, now)
	if err != nil {
		return Lease{}, fmt.Errorf("acquire lease %q: %w", name, err)
	}
	if n == 0 {
		return Lease{}, fault.New(fault.Conflict, "lease %q was just taken", name)
	}
	return out, nil
}

// RenewTx moves the end of a lease that is still held to ttl from now; it never
// moves it nearer. A lease that ran out or was taken is a Conflict: what was done
// under it has to be looked at again.
func (l *Leases) RenewTx(ctx context.Context, tx *db.Tx, held Lease, ttl time.Duration) (Lease, error) {
	now, err := tx.Clock(ctx)
	if err != nil {
		return Lease{}, fmt.Errorf("renew lease %q: %w", held.Name, err)
	}
	err = tx.QueryRow(ctx, `UPDATE leases SET expires = CASE WHEN expires > $4 THEN expires ELSE $4 END
		WHERE name = $1 AND fence = $2 AND expires > $3 RETURNING expires`,
		held.Name, held.Fence, now, now+ttl.Microseconds()).Scan(&held.Expires)
	if errors.Is(err, sql.ErrNoRows) {
		return Lease{}, lost(held)
	}
	if err != nil {
		return Lease{}, fmt.Errorf("renew lease %q: %w", held.Name, err)
	}
	return held, nil
}

// CheckTx returns a Conflict unless the lease is held at this moment. What tx
// writes beside it is written by the holder or not at all.
func (l *Leases) CheckTx(ctx context.Context, tx *db.Tx, held Lease) error {
	now, err := tx.Clock(ctx)
	if err != nil {
		return fmt.Errorf("check lease %q: %w", held.Name, err)
	}
	row, err := get(ctx, tx, held.Name)
	if errors.Is(err, sql.ErrNoRows) || err == nil && (row.Fence != held.Fence || row.Expires <= now) {
		return lost(held)
	}
	return err
}

// ReleaseTx gives a lease back before its end. A Conflict says that it was lost
// before; then there is nothing to give back.
func (l *Leases) ReleaseTx(ctx context.Context, tx *db.Tx, held Lease) error {
	n, err := tx.Exec(ctx, `DELETE FROM leases WHERE name = $1 AND fence = $2`, held.Name, held.Fence)
	if err != nil {
		return fmt.Errorf("release lease %q: %w", held.Name, err)
	}
	if n == 0 {
		return lost(held)
	}
	return nil
}

// ForgetTx ends every lease: the store was restored from a backup, so no holder of
// one knows this store. Fences go on where they were.
func ForgetTx(ctx context.Context, tx *db.Tx) error {
	_, err := tx.Exec(ctx, `DELETE FROM leases`)
	return err
}

// Holder returns the last holder of a name, which may have run out, or NotFound.
func (l *Leases) Holder(ctx context.Context, name string) (Lease, error) {
	var out Lease
	err := l.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		out, err = get(ctx, q, name)
		return err
	})
	if errors.Is(err, sql.ErrNoRows) {
		return Lease{}, fault.New(fault.NotFound, "nobody holds lease %q", name)
	}
	return out, err
}

func get(ctx context.Context, q db.Q, name string) (Lease, error) {
	l := Lease{Name: name}
	err := q.QueryRow(ctx, `SELECT owner, fence, expires FROM leases WHERE name = $1`, name).Scan(&l.Owner, &l.Fence, &l.Expires)
	return l, err
}

func lost(held Lease) error {
	return fault.New(fault.Conflict, "lease %q with fence %d is no longer held by %s", held.Name, held.Fence, held.Owner)
}
