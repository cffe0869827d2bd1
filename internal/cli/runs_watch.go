package cli

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) runsWatchCmd() *cobra.Command {
	return a.command(spec{
		use:   "watch ID",
		short: "follow a run to its end, or until Ctrl-C",
		long: `Shows every step as it is made, what the run waits for and how far it says it has
come. The run goes on when the watch ends. Exits 0 if it completed.`,
		example: "ombud runs watch run_0197a3\nombud runs watch run_0197a3 --json",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error { return a.watchRun(ctx, args[0]) })
}

// watchRun follows a run to its end, and tells an end that was not a good one as an error.
func (a *app) watchRun(ctx context.Context, id string) error {
	res, err := a.client.RunsWatch(ctx, wire.RunsWatchRequest{ID: id}, func(n wire.RunNote) error {
		switch n := n.(type) {
		case wire.RunStepped:
			return a.show("run-step/1", n.Step, func(p *page) { p.moment(p.stepMoment(n.Step)) })
		case wire.RunMoved:
			return a.show("run-moved/1", n.Run, func(p *page) { runMoved(p, n.Run) })
		}
		return nil
	})
	if err != nil {
		return untilInterrupted(ctx, err)
	}
	return runEnded(res.Run)
}

func runMoved(p *page, r wire.Run) {
	m := moment{at: p.now.UnixMicro(), what: "run", text: p.outcome(runState(r))}
	if r.EndedAt > 0 {
		m.at = r.EndedAt
	}
	if r.WaitsFor != "" {
		m.below = append(m.below, "waits for "+oneLine(r.WaitsFor))
	}
	if text := progress(r.Progress); text != "" {
		m.below = append(m.below, text)
	}
	p.moment(m)
}

// runEnded is how a run that ended otherwise than completed is told.
func runEnded(r wire.Run) error {
	hint := "ombud runs show " + r.ID
	switch r.State {
	case "cancelled":
		return fault.New(fault.Cancelled, "the run was cancelled").WithHint("%s", hint)
	case "failed":
		text, class := "the run failed", fault.Conflict
		if r.Error != nil {
			text += ": " + oneLine(r.Error.Message)
			if r.Error.Class == fault.Denied {
				class = fault.Denied
			}
		}
		return fault.New(class, "%s", text).WithHint("%s", hint)
	}
	return nil
}

func (a *app) runsSignalCmd() *cobra.Command {
	return a.command(spec{
		use:   "signal ID NAME [JSON]",
		short: "send a run what it waits for",
		long: `A signal is kept until the run waits for one of that name, and taken once. What comes
with it is JSON; text that is not JSON is sent as a string.`,
		example: "ombud runs signal run_0197a3 approved\nombud runs signal run_0197a3 reading '{\"celsius\": 21}'",
		args:    cobra.RangeArgs(2, 3),
	}, func(ctx context.Context, args []string) error {
		req := wire.RunsSignalRequest{ID: args[0], Name: args[1]}
		if len(args) > 2 {
			req.Payload = json.RawMessage(args[2])
			if !json.Valid(req.Payload) {
				text, err := json.Marshal(args[2])
				if err != nil {
					return fault.New(fault.Usage, "the text of the signal: %w", err)
				}
				req.Payload = text
			}
		}
		res, err := a.client.RunsSignal(ctx, req)
		if err != nil {
			return err
		}
		return a.show("run-signal/1", res, func(p *page) { p.line("%s has it: %s", res.Run.ID, runState(res.Run)) })
	})
}
