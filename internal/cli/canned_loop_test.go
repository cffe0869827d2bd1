//go:build unix

package cli

import (
	"context"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

func cannedLoopOf(name, state, reason string) wire.Loop {
	last := cannedRun()
	return wire.Loop{
		Name: name, Kind: "compiled", Description: "looks after " + name, State: state, Reason: reason, Subject: "loop:" + name, Role: "first-party",
		Triggers: []string{"@every 15m", "by hand"}, Settings: []wire.LoopSetting{{Name: "merge", Value: "true"}}, TimeoutS: 720, NextAt: noon + 9e8,
		Started: 3, LastOKAt: noon, Last: &last,
	}
}

// cannedLoops answers for three loops; budget-watch is the one whose runs fail.
func cannedLoops(m *ipc.Mux) {
	ipc.Handle(m, wire.LoopList, func(_ context.Context, req wire.LoopListRequest) (out wire.LoopListResult, err error) {
		out.Loops = []wire.Loop{cannedLoopOf("budget-watch", "failing", "no route to the sea"), cannedLoopOf("memory-upkeep", "ok", ""), cannedLoopOf("odd", "off", "loops.odd.enabled in the configuration")}
		out.Loops[2].Last, out.Loops[2].NextAt = nil, 0
		switch req.Name {
		case "":
		case "memory-upkeep":
			out.Loops = out.Loops[1:2]
		default:
			err = fault.New(fault.NotFound, "no loop is called %q", req.Name).WithHint("the loops are budget-watch, memory-upkeep, odd")
		}
		return out, err
	})
	ipc.Handle(m, wire.LoopRun, func(_ context.Context, req wire.LoopRunRequest) (wire.LoopRunResult, error) {
		switch {
		case req.Name == "odd" && !req.Force:
			return wire.LoopRunResult{}, fault.New(fault.Conflict, "loop odd is disabled by operator").WithHint("ombud loop enable odd, or --force")
		case req.Name == "budget-watch":
			return wire.LoopRunResult{RunID: "run_9"}, nil
		}
		return wire.LoopRunResult{RunID: "run_1"}, nil
	})
	ipc.Handle(m, wire.LoopDisable, answer[wire.LoopRequest](wire.LoopResult{Loop: cannedLoopOf("budget-watch", "disabled", "by operator")}))
	ipc.Handle(m, wire.LoopEnable, answer[wire.LoopRequest](wire.LoopResult{Loop: cannedLoopOf("odd", "off", "loops.odd.enabled in the configuration")}))
	ipc.Handle(m, wire.LoopLogs, func(_ context.Context, req wire.LoopLogsRequest) (out wire.LoopLogsResult, err error) {
		if req.RunID == "" {
			out.Lines = []wire.LoopLine{{Seq: 1, RunID: "run_1", At: noon, Level: "info", Text: "3 facts were over"}, {Seq: 2, RunID: "run_1", At: noon, Level: "warn", Text: "odd"}}
		}
		return out, err
	})
	ipc.Handle(m, wire.IntegrationsList, func(_ context.Context, req wire.IntegrationsRequest) (out wire.IntegrationsResult, err error) {
		if req.Check {
			out.Integrations = []wire.Integration{
				{Name: "model", Kind: "model", State: "working", SinceAt: noon, CheckedAt: noon},
				{Name: "tool process boiler", Kind: "tool process", State: "failing", Reason: "it ended 5 times in a row", SinceAt: noon, CheckedAt: noon},
			}
		}
		return out, err
	})
}
