//go:build unix

package cli

import (
	"context"

	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// cannedVault answers what is about the vault.
func cannedVault(m *ipc.Mux) {
	status := wire.VaultStatus{
		Fingerprint: "00112233", Generation: 3, Source: "auto", Open: true, OpenedBy: "file", From: "the key file /k",
		Wraps: []wire.VaultWrap{{Kind: "file", MadeAt: noon}}, Notes: []string{}, Exposed: []string{"root"},
	}
	ipc.Handle(m, wire.VaultState, answer[wire.Empty](status))
	ipc.Handle(m, wire.VaultPassphrase, answer[wire.VaultPassphraseRequest](status))
	ipc.Handle(m, wire.VaultRotate, answer[wire.VaultRotateRequest](status))
	ipc.Handle(m, wire.VaultRecover, answer[wire.VaultRecoverRequest](status))
	ipc.Handle(m, wire.VaultRecoveryKey, func(context.Context, wire.Empty) (wire.VaultRecoveryKeyResult, error) {
		return wire.VaultRecoveryKeyResult{RecoveryKey: "0000-1111", Vault: status}, nil
	})
}
