//go:build unix

package cli

import (
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// cannedSigned answers for one signed loop that is always about to be installed.
func cannedSigned(m *ipc.Mux) {
	manifest := wire.LoopManifest{Name: "hello", Version: "1.0.0", Host: []string{"notify"}, MemoryMB: 64, Module: "ab"}
	ipc.Handle(m, wire.LoopUpload, answer[wire.LoopUploadRequest](wire.LoopUploadResult{Have: 1}))
	ipc.Handle(m, wire.LoopInspect, answer[wire.LoopInspectRequest](wire.LoopPreview{
		SHA256: "ab", Manifest: manifest, Vouching: wire.LoopVouching{Tier: "untrusted", Format: 2}, TypeName: "nobody has signed it",
	}))
	ipc.Handle(m, wire.LoopInstall, answer[wire.LoopInstallRequest](wire.LoopResult{Loop: cannedLoopOf("hello", "idle", "")}))
	ipc.Handle(m, wire.LoopRemove, answer[wire.LoopRequest](wire.Empty{}))
	ipc.Handle(m, wire.LoopSet, answer[wire.LoopSetRequest](wire.LoopResult{Loop: cannedLoopOf("hello", "idle", "")}))
	ipc.Handle(m, wire.LoopVerify, answer[wire.LoopVerifyRequest](wire.LoopVerifyResult{Loops: []wire.LoopVerified{{Name: "hello", Version: "1.0.0", SHA256: "ab"}}}))
	ipc.Handle(m, wire.TrustList, answer[wire.Empty](wire.TrustListResult{Trust: []wire.Trust{{Kind: "community"}}}))
	ipc.Handle(m, wire.TrustChange, answer[wire.TrustChangeRequest](wire.TrustChangeResult{Stopped: []string{"hello"}}))
}
