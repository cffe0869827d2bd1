//go:build unix

package cli

import (
	"context"

	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// cannedBackup answers what is about backups.
func cannedBackup(m *ipc.Mux) {
	ipc.HandleStream(m, wire.BackupCreate, func(_ context.Context, req wire.BackupCreateRequest, send func(wire.BackupProgress) error) (wire.BackupResult, error) {
		return wire.BackupResult{Backup: wire.Backup{ID: "bak_1", CreatedAt: noon, Head: 7}, Path: req.Path, Bytes: 2048}, send(wire.BackupProgress{Phase: "writing"})
	})
	ipc.Handle(m, wire.RestorePending, answer[wire.Empty](wire.PendingWork{}))
	ipc.Handle(m, wire.RestoreRelease, answer[wire.RestoreReleaseRequest](wire.RestoreReleaseResult{}))
}
