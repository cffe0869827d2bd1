package cli

import (
	"context"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/daemon"
	"github.com/ombud-run/ombud/internal/wire"
)

// roof is what main runs with.
func roof() Roof {
	return Roof{
		Up: func(ctx context.Context, o UpOptions) error {
			opts := options(o.Place)
			opts.Logger, opts.Version, opts.Auto, opts.Ready = o.Logger, o.Version, o.Auto, o.Ready
			if o.Handed != nil {
				opts.Handed, opts.HandedVariable = o.Handed.secret, o.Handed.variable
			}
			return daemon.Run(ctx, opts)
		},
		VerifyAudit: func(ctx context.Context, p Place, req wire.AuditVerifyRequest) (wire.AuditVerifyResult, error) {
			return daemon.VerifyAudit(ctx, options(p), req)
		},
		ExportAudit: func(ctx context.Context, p Place, line func(wire.AuditLine) error) (wire.AuditExportResult, error) {
			return daemon.ExportAudit(ctx, options(p), line)
		},
		VerifyAuditFile: daemon.VerifyAuditFile,
		Backup: func(ctx context.Context, p Place, req wire.BackupCreateRequest, note func(wire.BackupProgress) error) (wire.BackupResult, error) {
			return daemon.Backup(ctx, ownOptions(p), req, note)
		},
		Restore: func(ctx context.Context, p Place, o RestoreOptions) (wire.RestoreResult, error) {
			return daemon.Restore(ctx, ownOptions(p), daemon.RestoreRequest{File: o.File, KeyFile: o.KeyFile, Replace: o.Replace, Load: o.Load, Send: o.Note})
		},
		VerifyBackup: func(ctx context.Context, p Place, file, scratch string, quick bool, note func(wire.BackupProgress) error) (wire.BackupVerifyResult, error) {
			return daemon.VerifyBackup(ctx, ownOptions(p), file, scratch, quick, note)
		},
		CheckStore: func(ctx context.Context, p Place) []wire.Check {
			return daemon.CheckStore(ctx, options(p))
		},
		StoreStatus: func(ctx context.Context, p Place) (daemon.StoreState, error) {
			return daemon.LookAtStore(ctx, options(p))
		},
		MoveStore: func(ctx context.Context, p Place, to *config.Loaded, leave bool, report func(string, int64)) (daemon.MovedStore, error) {
			return daemon.MoveStore(ctx, options(p), to, leave, report)
		},
		TakeBackStore: func(ctx context.Context, p Place) (file, from string, err error) {
			return daemon.TakeBackStore(ctx, options(p))
		},
		VaultStatus: func(ctx context.Context, p Place) (wire.VaultStatus, error) {
			return daemon.VaultStatus(ctx, options(p))
		},
		ChangeVault: func(ctx context.Context, p Place, req daemon.VaultRequest) (wire.VaultRecoveryKeyResult, error) {
			return daemon.ChangeVault(ctx, options(p), req)
		},
	}
}

// ownOptions are options that say which program this is.
func ownOptions(p Place) daemon.Options {
	o := options(p)
	o.Version = thisBuild().Version
	return o
}

func options(p Place) daemon.Options {
	return daemon.Options{Instance: p.Instance, Config: p.Config, Environment: p.Environment, Ask: p.Ask}
}
