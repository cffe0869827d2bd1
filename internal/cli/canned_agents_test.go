//go:build unix

package cli

import (
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// cannedAgents answers what no script of the fake daemon asks: coding agents are seen with
// a real one.
func cannedAgents(m *ipc.Mux) {
	ipc.Handle(m, wire.DelegateStart, answer[wire.DelegateRequest](wire.DelegateResult{}))
	ipc.Handle(m, wire.DelegatePlan, answer[wire.DelegateRequest](wire.DelegatePlanResult{}))
	ipc.Handle(m, wire.DelegateWait, answer[wire.DelegateWaitRequest](wire.DelegateWaitResult{}))
	ipc.Handle(m, wire.DelegateList, answer[wire.DelegateListRequest](wire.DelegateListResult{}))
	ipc.Handle(m, wire.DelegateShow, answer[wire.DelegateShowRequest](wire.DelegateShowResult{}))
	ipc.Handle(m, wire.DelegateApply, answer[wire.DelegateShowRequest](wire.DelegateApplyResult{}))
	ipc.Handle(m, wire.DelegateDrop, answer[wire.DelegateDropRequest](wire.DelegateDropResult{}))
	ipc.Handle(m, wire.HarnessList, answer[wire.Empty](wire.HarnessListResult{}))
	ipc.Handle(m, wire.HarnessProbe, answer[wire.HarnessRequest](wire.HarnessProbeResult{}))
	ipc.Handle(m, wire.HarnessLogin, answer[wire.HarnessRequest](wire.HarnessLoginResult{}))
	ipc.Handle(m, wire.HarnessRoutes, answer[wire.Empty](wire.HarnessRoutesResult{}))
}
