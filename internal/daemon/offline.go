package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

// What can be done with a store while no daemon has it. The store is opened with
// its lock, so that a daemon which starts meanwhile is told.

// withStore opens the parts that verifying needs.
func withStore(ctx context.Context, o Options, how access, fn func(*db.DB, *vault.Vault, *eventlog.Log) error) error {
	return lockStore(ctx, o, how, func(o Options, d *db.DB) error {
		k, _, err := openVault(ctx, d, o, false)
		if err != nil {
			return err
		}
		defer k.Close()
		return fn(d, k.Vault(), eventlog.NewLog(d, k.Vault(), o.Logger, eventlog.Options{}))
	})
}

// access is what a command without a daemon wants of the store.
type access int

const (
	toRead  access = iota // on PostgreSQL also while a daemon elsewhere is active
	toWrite               // as the active node
)

// lockStore opens the store alone.
func lockStore(ctx context.Context, o Options, how access, fn func(Options, *db.DB) error) (err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	so := storeOptions(o)
	if o.Config.Config.Store.Postgres.Set() {
		unlock, err := db.Lock(so.LockFile)
		if err != nil {
			return err
		}
		defer unlock()
		so.HoldsLock, so.ReadOnly = true, how == toRead
		if how == toWrite {
			if so.Seat, err = takeSeat(ctx, o, db.SeatOptions{}); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, so.Seat.Release(context.WithoutCancel(ctx))) }()
		}
	}
	d, err := openStore(ctx, o, so)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return fn(o, d)
}

// VerifyAudit checks the audit record of an instance without its daemon.
func VerifyAudit(ctx context.Context, o Options, req wire.AuditVerifyRequest) (out wire.AuditVerifyResult, err error) {
	err = withStore(ctx, o, toRead, func(d *db.DB, v *vault.Vault, l *eventlog.Log) error {
		runs := run.New(d, v, l, run.NewKinds(), run.Options{})
		out, err = verifyAudit(ctx, d, v, runs, anchorFiles(o, req))
		return err
	})
	return out, err
}

// ExportAudit writes the audit record of an instance without its daemon.
func ExportAudit(ctx context.Context, o Options, line func(wire.AuditLine) error) (out wire.AuditExportResult, err error) {
	err = withStore(ctx, o, toRead, func(d *db.DB, v *vault.Vault, _ *eventlog.Log) error {
		out, err = exportAudit(ctx, audit.New(d, v, "offline", slog.New(slog.DiscardHandler)), v, line)
		return err
	})
	return out, err
}

// CheckStore looks at the store of an instance that has no daemon.
func CheckStore(ctx context.Context, o Options) []wire.Check {
	var out []wire.Check
	err := withStore(ctx, o, toRead, func(d *db.DB, _ *vault.Vault, l *eventlog.Log) error {
		if err := d.Integrity(ctx); err != nil {
			return err
		}
		head, err := l.Head(ctx)
		out = append(out, wire.Check{ID: "store.integrity", Status: "ok", Detail: fmt.Sprintf("%s, %d events", d.Kind(), head)})
		return err
	})
	if err != nil {
		out = append(out, wire.Check{ID: "store.integrity", Status: "fail", Detail: err.Error(), Hint: fault.HintOf(err)})
	}
	return out
}
