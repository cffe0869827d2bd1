package daemon

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/wire"
)

func (d *Daemon) status(ctx context.Context, _ wire.Empty) (wire.Status, error) {
	counts, err := d.runs.Counts(ctx)
	if err != nil {
		return wire.Status{}, err
	}
	out := wire.Status{
		PID: os.Getpid(), Version: d.o.Version, Instance: d.o.Instance.Name, Store: d.db.Kind(), StartedAt: d.began.UnixMicro(),
		UptimeS: int64(time.Since(d.began).Seconds()), Detached: d.o.Auto, Ready: !d.db.Full(), Missing: append(d.missingSecrets(ctx), d.models.missing...),
		Models: wire.Models{Main: d.models.main.wire()},
		Runs: wire.RunCounts{
			Queued: counts[run.Queued], Running: counts[run.Running] + counts[run.Cancelling],
			Waiting: counts[run.Waiting], Uncertain: counts[run.Uncertain],
		},
		Listeners: d.listeners(),
	}
	kept, err := d.runs.KeptBack(ctx)
	if err != nil {
		return out, err
	}
	out.Runs.KeptBack = int64(kept)
	out.Idle = out.Runs.Queued+out.Runs.Running == 0
	if s := d.models.summary; s != nil {
		shown := s.wire()
		out.Models.Summary = &shown
	}
	if out.Conversations, err = d.agents.CountConversations(ctx); err != nil {
		return out, err
	}
	open, err := d.approvals.List(ctx, approval.Filter{State: approval.Pending, Limit: 1000})
	if err != nil {
		return out, err
	}
	piles, err := d.letters.Unhandled(ctx)
	if err != nil {
		return out, err
	}
	out.Approvals = int64(len(open))
	for _, p := range piles {
		out.DeadLetters += p.Count
	}
	out.Disk, out.Held = d.disk(), d.held()
	return out, nil
}

func (d *Daemon) disk() wire.Disk {
	out := wire.Disk{ReadOnly: d.db.Full()}
	if free, known := db.FreeBytes(d.o.Instance.StateDir); known {
		out.FreeBytes = free
	}
	if d.db.Postgres() {
		return out
	}
	files, _ := filepath.Glob(d.o.Instance.StateDB() + "*") // the pattern is always well formed
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			out.StoreBytes += info.Size()
		}
	}
	return out
}

func (d *Daemon) costReport(ctx context.Context, req wire.CostReportRequest) (wire.CostReportResult, error) {
	days := req.Days
	if days == 0 {
		days = 7
	}
	list, err := d.budget.Report(ctx, days)
	var out wire.CostReportResult
	for _, day := range list {
		shown := wire.CostDay{Date: day.Date}
		byModel := map[[2]string]int{}
		for _, l := range day.Lines {
			cost := wireCost(l)
			addCost(&shown.Total, cost)
			addCost(&out.Total, cost)
			key := [2]string{l.Provider, l.Model}
			i, there := byModel[key]
			if !there {
				i = len(shown.Models)
				byModel[key] = i
				shown.Models = append(shown.Models, wire.CostModel{Provider: l.Provider, Model: l.Model})
			}
			addCost(&shown.Models[i].Cost, cost)
		}
		out.Days = append(out.Days, shown)
	}
	return out, err
}

func wireCost(l budget.Line) wire.Cost {
	return wire.Cost{
		MicroUSD: l.Spent + l.Possible, Calls: l.Calls, Unpriced: l.Unknown, InputTokens: l.Tokens.Input, OutputTokens: l.Tokens.Output,
		CacheReadTokens: l.Tokens.CacheRead, CacheWriteTokens: l.Tokens.CacheWrite,
	}
}

func addCost(sum *wire.Cost, c wire.Cost) {
	sum.MicroUSD += c.MicroUSD
	sum.Calls += c.Calls
	sum.Unpriced += c.Unpriced
	sum.InputTokens += c.InputTokens
	sum.OutputTokens += c.OutputTokens
	sum.CacheReadTokens += c.CacheReadTokens
	sum.CacheWriteTokens += c.CacheWriteTokens
}

func (d *Daemon) toolsList(ctx context.Context, _ wire.Empty) (wire.ToolsListResult, error) {
	var out wire.ToolsListResult
	for _, t := range d.tools.List() {
		access, err := d.access(ctx, t)
		if err != nil {
			return out, err
		}
		out.Tools = append(out.Tools, wire.Tool{
			Name: t.Name, Description: t.Description, Kind: string(t.Kind), ReadOnly: t.ReadOnly, Irreversible: t.Irreversible,
			Repeat: string(t.Repeat), TimeoutUS: t.Timeout.Microseconds(), Access: access, Input: t.Input,
		})
	}
	for _, q := range d.tools.Quarantined() {
		out.Tools = append(out.Tools, wire.Tool{Name: q.Name, Quarantined: q.Reason})
	}
	for _, i := range d.processes.List() {
		shown, err := d.wireProcess(ctx, i)
		if err != nil {
			return out, err
		}
		out.Processes = append(out.Processes, shown)
	}
	return out, nil
}

// access is what the default agent's role says of a tool as a whole; a single call
// may be decided otherwise.
func (d *Daemon) access(ctx context.Context, t tool.Definition) (string, error) {
	in, whole, err := d.agents.PolicyFor(ctx, t)
	if !whole || err != nil {
		return "depends on the call", err
	}
	return policy.Decide(&in).Effect.String(), nil
}

// configExplain tells what the running daemon was started with.
func (d *Daemon) configExplain(_ context.Context, req wire.ConfigExplainRequest) (wire.ConfigExplainResult, error) {
	keys := []string{req.Key}
	if req.Key == "" {
		keys = d.o.Config.Keys()
	}
	var out wire.ConfigExplainResult
	for _, key := range keys {
		e, err := d.o.Config.Explain(key)
		if err != nil {
			return out, err
		}
		origin, where, _ := strings.Cut(e.Source, " ")
		out.Values = append(out.Values, wire.ConfigValue{Key: e.Key, Value: e.Value, Default: e.Default, Origin: origin, Where: where, Doc: e.Doc})
	}
	return out, nil
}
