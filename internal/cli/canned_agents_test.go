//go:build unix

package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// cannedAgents answers what few scripts of the fake daemon ask: coding agents are seen with
// a real one.
func (d *fakeDaemon) cannedAgents(m *ipc.Mux) {
	ipc.Handle(m, wire.DelegateStart, d.delegateStart)
	ipc.Handle(m, wire.DelegatePlan, answer[wire.DelegateRequest](wire.DelegatePlanResult{}))
	ipc.Handle(m, wire.DelegateWait, answer[wire.DelegateWaitRequest](wire.DelegateWaitResult{State: "completed", Ended: true}))
	ipc.Handle(m, wire.DelegateList, answer[wire.DelegateListRequest](wire.DelegateListResult{}))
	ipc.Handle(m, wire.DelegateShow, d.delegateShow)
	ipc.Handle(m, wire.DelegateApply, answer[wire.DelegateShowRequest](wire.DelegateApplyResult{}))
	ipc.Handle(m, wire.DelegateDrop, answer[wire.DelegateDropRequest](wire.DelegateDropResult{}))
	ipc.Handle(m, wire.HarnessList, answer[wire.Empty](wire.HarnessListResult{}))
	ipc.Handle(m, wire.HarnessProbe, answer[wire.HarnessRequest](wire.HarnessProbeResult{}))
	ipc.Handle(m, wire.HarnessLogin, answer[wire.HarnessRequest](wire.HarnessLoginResult{}))
	ipc.Handle(m, wire.HarnessRoutes, answer[wire.Empty](wire.HarnessRoutesResult{}))
}

// delegateStart takes a task as send takes a message: "lose TEXT" is the daemon's last, the
// first time.
func (d *fakeDaemon) delegateStart(_ context.Context, req wire.DelegateRequest) (wire.DelegateResult, error) {
	if req.Key == "" {
		return wire.DelegateResult{}, fault.New(fault.Invalid, "a command sends a key")
	}
	res := wire.DelegateResult{SessionID: "ses_1", Route: "claude"}
	d.change(func(s *fakeState) {
		res.RunID, res.Duplicate = s.Keys[req.Key], s.Keys[req.Key] != ""
		if !res.Duplicate {
			res.RunID = fmt.Sprintf("run_%d", len(s.Keys)+1)
			s.Keys[req.Key], s.Texts[res.RunID] = res.RunID, req.Prompt
		}
	})
	if strings.HasPrefix(req.Prompt, "lose ") {
		d.dies(req.Prompt)
	}
	return res, nil
}

// delegateShow shows a task that ended with the outcome it was told: "end OUTCOME".
func (d *fakeDaemon) delegateShow(_ context.Context, req wire.DelegateShowRequest) (wire.DelegateShowResult, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	outcome, is := strings.CutPrefix(d.state.Texts[req.RunID], "end ")
	out := wire.DelegateShowResult{Delegation: wire.Delegation{
		RunID: req.RunID, SessionID: "ses_1", Harness: "claude", Why: "claude was asked for", Outcome: outcome, MicroUSD: 1200, Priced: true, StartedAt: 1, EndedAt: 2,
	}}
	if !is || outcome == "completed" {
		out.Delegation.Outcome, out.Answer = "completed", "it is done"
		return out, nil
	}
	out.Error = "what went wrong"
	return out, nil
}
