//go:build unix

package cli

import (
	"context"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// cannedWatch answers for a run that waits, tells how far it is and completes, and for
// run_9, which fails.
func cannedWatch(m *ipc.Mux) {
	ipc.HandleStream(m, wire.RunsWatch, func(_ context.Context, req wire.RunsWatchRequest, send func(wire.RunNote) error) (wire.RunsGetResult, error) {
		r := cannedRun()
		if req.ID == "run_9" {
			r.State, r.Error = "failed", &wire.Problem{Class: fault.Unavailable, Message: "no route to the sea"}
			return wire.RunsGetResult{Run: r}, send(wire.RunMoved{Run: r})
		}
		for _, n := range []wire.RunNote{wire.RunMoved{Run: waitingRun()}, wire.RunStepped{Step: cannedSteps()[0]}, wire.RunMoved{Run: r}} {
			if err := send(n); err != nil {
				return wire.RunsGetResult{}, err
			}
		}
		return wire.RunsGetResult{Run: r}, nil
	})
	ipc.Handle(m, wire.RunsSignal, func(_ context.Context, req wire.RunsSignalRequest) (wire.RunsSignalResult, error) {
		if string(req.Payload) != "" && string(req.Payload) != `{"celsius":21}` && string(req.Payload) != `"a word"` {
			return wire.RunsSignalResult{}, fault.New(fault.Internal, "payload %s", req.Payload)
		}
		return wire.RunsSignalResult{Run: waitingRun()}, nil
	})
}

func waitingRun() wire.Run {
	return wire.Run{
		ID: "run_5", Kind: "recipe", Name: "daily", Definition: "1a2b", State: "queued", KeptBack: true, WaitsFor: "its definition daily@1a2b", Attempt: 1,
		CreatedAt: noon, CostKnown: true, Progress: &wire.RunProgress{Text: "reading", Done: 3, Total: 10, At: noon + 5000},
	}
}
