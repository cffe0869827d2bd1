package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) runsCmd() *cobra.Command {
	list := a.runsListCmd()
	c := a.noun(spec{
		use:     "runs",
		short:   "every piece of work and its steps",
		example: "ombud runs\nombud runs list --state live\nombud runs show run_0197a3\nombud runs watch run_0197a3\nombud runs resolve run_0197a3 done --note \"the mail arrived\"",
	}, list, a.runsShowCmd(), a.runsWatchCmd(), a.runsSignalCmd(), a.runsCancelCmd(), a.runsResolveCmd(), a.runsVerifyCmd(), a.runsReceiptCmd())
	return byDefault(c, list)
}

// byDefault lets a noun alone mean one of its verbs.
func byDefault(noun, verb *cobra.Command) *cobra.Command {
	noun.Flags().AddFlagSet(verb.Flags())
	noun.RunE = verb.RunE
	return noun
}

// runStates are those of a run, and live for all that have not ended.
var runStates = []string{"queued", "running", "waiting", "uncertain", "cancelling", "completed", "failed", "cancelled", "live"}

func (a *app) runsListCmd() *cobra.Command {
	var req wire.RunsListRequest
	c := a.command(spec{
		use:     "list",
		short:   "runs, newest first",
		example: "ombud runs list --state uncertain\nombud runs list --kind turn --limit 10 --json",
	}, func(ctx context.Context, _ []string) error {
		if req.State != "" && !slices.Contains(runStates, req.State) {
			return fault.New(fault.Usage, "--state %q is none of %s", req.State, strings.Join(runStates, ", "))
		}
		res, err := a.client.RunsList(ctx, req)
		if err != nil {
			return err
		}
		return a.show("runs/1", res, func(p *page) { runsTable(p, res.Runs) })
	})
	c.Flags().StringVar(&req.State, "state", "", strings.Join(runStates[:len(runStates)-1], ", ")+", or live")
	c.Flags().StringVar(&req.Kind, "kind", "", "turn, call, …")
	limitFlag(c.Flags(), &req.Limit, 1000, "how many (default 50, at most 1000)")
	c.Flags().StringVar(&req.Before, "before", "", "go on behind this run")
	return c
}

func runsTable(p *page, runs []wire.Run) {
	if len(runs) == 0 {
		p.line("no runs")
		return
	}
	const stateColumn = 3
	t := table{head: []string{"RUN", "CREATED", "KIND", "STATE", "STEPS", "COST", "NAME"}}
	for _, r := range runs {
		name := r.Name
		if r.Conversation != "" {
			name = r.Conversation
		}
		t.add(r.ID, p.clock(r.CreatedAt), r.Kind, runState(r), fmt.Sprint(r.Steps), money(r.CostMicroUSD, r.CostKnown), short(name, 40))
	}
	t.tint = func(row, col int, cell string) string {
		if col != stateColumn {
			return cell
		}
		switch runs[row].State {
		case "failed":
			return p.bad(cell)
		case "uncertain", "waiting":
			return p.warn(cell)
		}
		return cell
	}
	p.table(t)
}

func runState(r wire.Run) string {
	s := r.State
	switch {
	case r.KeptBack:
		s += " (kept back)"
	case r.Wait != "":
		s += " (" + r.Wait + ")"
	}
	if r.Unknown > 0 {
		s += fmt.Sprintf(", %d unknown", r.Unknown)
	}
	return s
}

func (a *app) runsShowCmd() *cobra.Command {
	return a.command(spec{
		use:     "show ID",
		short:   "one run with its steps",
		example: "ombud runs show run_0197a3",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.RunsGet(ctx, wire.RunsGetRequest{ID: args[0]})
		if err != nil {
			return err
		}
		return a.show("run/1", res, func(p *page) { runPage(p, res) })
	})
}

func runPage(p *page, res wire.RunsGetResult) {
	r := res.Run
	p.line("%s", p.strong(oneLine(r.ID)))
	p.field("state", p.outcome(runState(r)))
	p.field("kind", oneLine(r.Kind+" "+r.Name))
	p.field("definition", oneLine(r.Definition))
	p.field("conversation", r.Conversation)
	p.field("part of", r.Parent)
	p.field("because of", r.Cause)
	p.field("created", p.clock(r.CreatedAt))
	if r.EndedAt > 0 {
		p.field("ended", p.clock(r.EndedAt)+", after "+span(micros(r.EndedAt-r.CreatedAt)))
	}
	if r.NextAt > 0 && r.EndedAt == 0 {
		p.field("next", p.clock(r.NextAt))
	}
	p.field("waits for", oneLine(r.WaitsFor))
	p.field("progress", progress(r.Progress))
	p.field("cost", money(r.CostMicroUSD, r.CostKnown))
	if r.Error != nil {
		p.problem("error", *r.Error)
	}
	if len(res.Steps) > 0 {
		p.line("")
	}
	for _, s := range res.Steps {
		p.moment(p.stepMoment(s))
	}
	if r.State == "uncertain" {
		p.line("")
		p.line("%s", p.faint("say what became of it: ombud runs resolve "+r.ID+" retry|done|failed|cancel"))
	}
}

func progress(pr *wire.RunProgress) string {
	switch {
	case pr == nil:
		return ""
	case pr.Total > 0:
		return fmt.Sprintf("%s, %d of %d", oneLine(pr.Text), pr.Done, pr.Total)
	case pr.Done > 0:
		return fmt.Sprintf("%s, %d", oneLine(pr.Text), pr.Done)
	}
	return oneLine(pr.Text)
}

func (a *app) runsCancelCmd() *cobra.Command {
	var note string
	c := a.command(spec{
		use:     "cancel ID",
		short:   "ask a run to stop after the step it is in",
		example: "ombud runs cancel run_0197a3",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		got, err := a.client.RunsGet(ctx, wire.RunsGetRequest{ID: args[0]})
		if err != nil {
			return err
		}
		if got.Run.State == "uncertain" {
			return a.resolve(ctx, wire.RunsResolveRequest{ID: got.Run.ID, Decision: wire.ResolveCancel, Note: note})
		}
		res, err := a.client.TurnCancel(ctx, wire.TurnCancelRequest{RunID: got.Run.ID})
		if err != nil {
			return err
		}
		return a.show("run-cancel/1", res, func(p *page) {
			if res.Moved {
				p.line("%s is %s", res.RunID, res.State)
			} else {
				p.line("%s had ended already: %s", res.RunID, res.State)
			}
		})
	})
	c.Flags().StringVar(&note, "note", "", "why; recorded for an uncertain run")
	return c
}

func (a *app) runsResolveCmd() *cobra.Command {
	var note string
	decisions := []string{wire.ResolveRetry, wire.ResolveDone, wire.ResolveFailed, wire.ResolveCancel}
	c := a.command(spec{
		use:   "resolve ID retry|done|failed|cancel",
		short: "say what became of an uncertain run",
		long: `A run is uncertain when ombud cannot know whether a step happened. You may: look,
then say done or failed; or retry, which does it again; or cancel the run.`,
		example: "ombud runs resolve run_0197a3 done --note \"the mail arrived\"",
		args:    cobra.ExactArgs(2),
	}, func(ctx context.Context, args []string) error {
		for _, d := range decisions {
			if d == args[1] {
				return a.resolve(ctx, wire.RunsResolveRequest{ID: args[0], Decision: d, Note: note})
			}
		}
		return fault.New(fault.Usage, "%q is none of retry, done, failed, cancel", args[1]).WithHint("ombud runs resolve --help")
	})
	c.Flags().StringVar(&note, "note", "", "how you know; recorded")
	c.ValidArgs = decisions
	return c
}

func (a *app) resolve(ctx context.Context, req wire.RunsResolveRequest) error {
	res, err := a.client.RunsResolve(ctx, req)
	if err != nil {
		return err
	}
	return a.show("run-resolve/1", res, func(p *page) { p.line("%s is %s", res.Run.ID, runState(res.Run)) })
}

func (a *app) runsVerifyCmd() *cobra.Command {
	return a.command(spec{
		use:     "verify",
		short:   "compare every run with its events",
		long:    "Folds the events of every run and compares the result with the rows. Exits 5 at a difference.",
		example: "ombud runs verify",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.RunsVerify(ctx)
		if err != nil {
			return err
		}
		if err := a.show("runs-verify/1", res, func(p *page) {
			for _, m := range res.Mismatches {
				p.line("%s  %s: the row says %s, the events say %s", m.RunID, m.What, m.Rows, m.Event)
			}
			if len(res.Mismatches) == 0 {
				p.line("ok, %s and %s in %s", plural(res.Runs, "run"), plural(res.Steps, "step"), span(micros(res.DurationUS)))
			}
		}); err != nil || len(res.Mismatches) == 0 {
			return err
		}
		return fault.New(fault.Verification, "the rows differ from their events in %s", plural(int64(len(res.Mismatches)), "place"))
	})
}

func (a *app) runsReceiptCmd() *cobra.Command {
	return a.command(spec{
		use:   "receipt ID",
		short: "the signed receipt of a run that has ended",
		long: `Writes the receipt as JSON: what was done, folded to one hash, and signed. It tells
nothing of the contents and can be checked by anybody: ombud receipt verify.`,
		example: "ombud runs receipt run_0197a3 > receipt.json\nombud receipt verify receipt.json",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.RunsReceipt(ctx, wire.RunsReceiptRequest{ID: args[0]})
		if err != nil {
			return err
		}
		if a.json {
			return a.writeJSON("run-receipt/1", res)
		}
		// The receipt itself is JSON; it is indented for the eye, which its signature allows.
		body, err := json.MarshalIndent(res.Receipt, "", "  ")
		if err != nil {
			return fault.New(fault.Internal, "indent receipt: %w", err)
		}
		_, err = a.stdout.Write(append(body, '\n'))
		return outputFault(err)
	})
}
