package cli

import (
	"context"

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
		CheckStore: func(ctx context.Context, p Place) []wire.Check {
			return daemon.CheckStore(ctx, options(p))
		},
		VaultStatus: func(ctx context.Context, p Place) (wire.VaultStatus, error) {
			return daemon.VaultStatus(ctx, options(p))
		},
		ChangeVault: func(ctx context.Context, p Place, req daemon.VaultRequest) (wire.VaultRecoveryKeyResult, error) {
			return daemon.ChangeVault(ctx, options(p), req)
		},
	}
}

func options(p Place) daemon.Options {
	return daemon.Options{Instance: p.Instance, Config: p.Config, Environment: p.Environment, Ask: p.Ask}
}
