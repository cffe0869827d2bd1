package daemon

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/delegate"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/wire"
)

// delegateMethods are the operator's methods about coding agents.
func (d *Daemon) delegateMethods(m *ipc.Mux) {
	ipc.Handle(m, wire.DelegateStart, d.delegateStart)
	ipc.Handle(m, wire.DelegatePlan, d.delegatePlan)
	ipc.Handle(m, wire.DelegateWait, d.delegateWait)
	ipc.Handle(m, wire.DelegateList, func(ctx context.Context, req wire.DelegateListRequest) (out wire.DelegateListResult, err error) {
		limit := req.Limit
		if limit <= 0 {
			limit = 20
		}
		if out.Delegations, err = d.wireDelegations(ctx, min(limit, 1000)); err != nil || !req.Worktrees {
			return out, err
		}
		trees, err := d.delegations.Worktrees(ctx)
		out.Worktrees = wireWorktrees(trees)
		return out, err
	})
	ipc.Handle(m, wire.DelegateShow, d.delegateShow)
	ipc.Handle(m, wire.DelegateApply, d.delegateApply)
	ipc.Handle(m, wire.DelegateDrop, d.delegateDrop)
	ipc.Handle(m, wire.HarnessList, func(context.Context, wire.Empty) (out wire.HarnessListResult, err error) {
		for _, h := range d.delegations.Harnesses() {
			out.Harnesses = append(out.Harnesses, wire.Harness{
				Name: h.Name, Program: h.Program, Missing: h.Missing, Model: h.Model, Default: h.Name == d.o.Config.Config.Delegate.Default,
				KeyFrom: h.KeyFrom(), KeyHeld: h.KeyHeld(), Asks: child.Asks(h.CLI), StateDir: d.delegations.StateOf(h),
			})
		}
		return out, nil
	})
	ipc.Handle(m, wire.HarnessProbe, d.harnessProbe)
	ipc.Handle(m, wire.HarnessLogin, func(_ context.Context, req wire.HarnessRequest) (out wire.HarnessLoginResult, err error) {
		h, err := d.delegations.Harness(req.Name)
		if err == nil && h.Program == "" {
			err = fault.New(fault.Unavailable, "%s is not on this machine: %s", h.Name, h.Missing)
		}
		if err != nil {
			return out, err
		}
		out.Program = h.Program
		out.Args, out.Env, err = child.ByHand(h.CLI, d.delegations.StateOf(h))
		return out, err
	})
	ipc.Handle(m, wire.HarnessRoutes, d.harnessRoutes)
}

// order is a task as the operator gives it.
func order(req wire.DelegateRequest) delegate.Order {
	return delegate.Order{
		Want: delegate.Want{Harness: req.Harness, Model: req.Model},
		Task: delegate.Task{
			Prompt: req.Prompt, Subject: delegate.Operator, Tier: policy.Trusted, Label: label.Of(label.Operator, label.OperatorOnly), Session: req.Session,
			Dir: req.Dir, Write: req.Write, Background: req.Background, Ephemeral: req.Ephemeral, Seconds: req.TimeoutS, Tools: req.Tools,
			Checks: req.Checks, Allow: req.Allow,
		},
	}
}

func (d *Daemon) delegateStart(ctx context.Context, req wire.DelegateRequest) (wire.DelegateResult, error) {
	if err := d.hold.Refuse(); err != nil {
		return wire.DelegateResult{}, err
	}
	o := order(req)
	got, known, err := d.delegations.Begun(ctx, o, req.Key)
	if err != nil || known {
		return startedAs(got, known), err
	}
	if _, err := d.delegations.Plan(ctx, o); err != nil {
		return wire.DelegateResult{}, err // before anything is begun
	}
	err = d.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		conv, err := d.agents.OpenTx(ctx, tx, agent.Local(mainConversation), agent.Default, mainConversation)
		if err != nil {
			return err
		}
		got, known, err = d.delegations.StartOnceTx(ctx, tx, o, conv.ID, req.Key)
		return err
	})
	return startedAs(got, known), err
}

func startedAs(got delegate.Started, known bool) wire.DelegateResult {
	return wire.DelegateResult{RunID: got.Run, SessionID: got.Session, Route: got.Route.String(), Why: got.Why, Duplicate: known}
}

func (d *Daemon) delegatePlan(ctx context.Context, req wire.DelegateRequest) (out wire.DelegatePlanResult, err error) {
	p, err := d.delegations.Plan(ctx, order(req))
	if err != nil {
		return out, err
	}
	out = wire.DelegatePlanResult{
		Route: p.Route.String(), Why: p.Why, Program: p.Harness.Program, Dir: p.Dir, Write: req.Write, Asks: child.Asks(p.Harness.CLI), LimitMicroUSD: p.Limit,
		Cost: wire.CostEstimate{Known: p.Known, MedianMicroUSD: p.Median, MostMicroUSD: p.Most}, Login: string(child.LoginUnknown),
	}
	if out.Scopes, err = d.agentsEffects(ctx, p.Needs); err != nil {
		return out, err
	}
	probe, err := d.delegations.Probe(ctx, p.Harness)
	if err != nil {
		return out, err
	}
	out.Version, out.Login, out.Warnings = probe.Version, string(probe.Login), details(probe)
	return out, nil
}

// agentsEffects is what the default agent would get for each need.
func (d *Daemon) agentsEffects(ctx context.Context, needs []scope.Scope) (out []wire.PlanScope, err error) {
	auth, err := d.agents.AuthorityOf(ctx, "agent:"+agent.Default, "", policy.Trusted)
	if err != nil {
		return nil, err
	}
	for _, s := range needs {
		dec := policy.Decide(&policy.Input{
			Subject: auth.Subject, Scopes: []scope.Scope{s}, Grants: auth.Grants, Role: auth.Role, Bounds: auth.Bounds, Tier: auth.Tier,
			Standing: auth.Standing, Autonomy: auth.Autonomy,
		})
		out = append(out, wire.PlanScope{Scope: s.String(), Agent: dec.Effect.String()})
	}
	return out, nil
}

func details(p child.Probe) (out []string) {
	for _, w := range p.Warning {
		out = append(out, w.Detail)
	}
	return out
}

// delegateWait answers when a delegation has ended or asks something that was not seen.
func (d *Daemon) delegateWait(ctx context.Context, req wire.DelegateWaitRequest) (out wire.DelegateWaitResult, err error) {
	ctx, done := whileConnected(ctx)
	defer done()
	woken, stop := d.runs.Watch()
	defer stop()
	over := time.NewTimer(min(seconds(req.WaitS), time.Minute))
	defer over.Stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		rec, _, err := d.runs.Get(ctx, req.RunID)
		if err != nil {
			return out, err
		}
		out.State, out.Ended = string(rec.State), rec.State.Ended()
		if out.Questions, err = d.questionsOf(ctx, req.RunID, req.Seen); err != nil || out.Ended || len(out.Questions) > 0 {
			return out, err
		}
		select {
		case <-woken:
		case <-tick.C:
		case <-over.C:
			return out, nil
		case <-ctx.Done():
			return out, context.Cause(ctx)
		}
	}
}

// questionsOf are the open questions of a run and of the calls that work for it.
func (d *Daemon) questionsOf(ctx context.Context, runID string, seen []string) (out []wire.DelegateQuestion, err error) {
	list, err := d.approvals.List(ctx, approval.Filter{State: approval.Pending, Limit: 1000})
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		if slices.Contains(seen, a.ID) {
			continue
		}
		if a.Run != runID {
			rec, _, err := d.runs.Get(ctx, a.Run)
			if err != nil || rec.Parent != runID {
				if err != nil {
					return nil, err
				}
				continue
			}
		}
		out = append(out, wire.DelegateQuestion{ApprovalID: a.ID, Summary: a.Summary, Form: wireForm(a.Form)})
	}
	return out, nil
}

func wireDelegation(x delegate.Delegation) wire.Delegation {
	return wire.Delegation{
		RunID: x.Run, SessionID: x.Session, Harness: x.Harness, Model: x.Route.Model, Why: x.Route.Why, Subject: x.Route.Subject, Dir: x.Route.Dir,
		Write: x.Route.Write, Background: x.Route.Background, Tries: x.Tries, Outcome: x.Outcome, MicroUSD: x.MicroUSD, Priced: x.Priced, PossibleMicroUSD: x.Possible,
		StartedAt: x.Started, EndedAt: x.Ended,
	}
}

func (d *Daemon) wireDelegations(ctx context.Context, limit int) (out []wire.Delegation, err error) {
	list, err := d.delegations.List(ctx, limit)
	for _, x := range list {
		out = append(out, wireDelegation(x))
	}
	return out, err
}

func (d *Daemon) delegateShow(ctx context.Context, req wire.DelegateShowRequest) (out wire.DelegateShowResult, err error) {
	id, err := d.runs.Find(ctx, req.RunID)
	if err != nil {
		return out, err
	}
	x, kept, told, err := d.delegations.Get(ctx, id)
	if err != nil {
		return out, err
	}
	rec, _, err := d.runs.Get(ctx, id)
	if err != nil {
		return out, err
	}
	var task delegate.Task
	if err := json.Unmarshal(rec.Input, &task); err != nil {
		return out, fault.New(fault.Verification, "input of %s: %w", id, err)
	}
	out.Delegation, out.Task, out.Error = wireDelegation(x), task.Prompt, rec.Error
	if rec.State == run.Failed {
		out.ErrorClass = string(rec.ErrorClass)
	}
	if rec.State == run.Completed {
		var rep delegate.Report
		if err := json.Unmarshal(rec.Result, &rep); err != nil {
			return out, fault.New(fault.Verification, "result of %s: %w", id, err)
		}
		out.Error, out.Notes = rep.Error, rep.Notes
		out.Tokens = wire.DelegateTokens{Input: rep.Usage.Input, CacheRead: rep.Usage.CacheRead, CacheWrite: rep.Usage.CacheWrite, Output: rep.Usage.Output}
		for _, f := range rep.Files {
			out.Files = append(out.Files, wire.DelegateFile(f))
		}
	}
	if told {
		if u := kept.Record.Usage; rec.State != run.Completed && !u.Cumulative {
			out.Tokens = wire.DelegateTokens{Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Output: u.Output}
		}
		showKept(&out, kept)
	}
	return out, nil
}

// showKept adds what the program told.
func showKept(out *wire.DelegateShowResult, k delegate.Kept) {
	out.Answer, out.Version = k.Record.Text, k.Record.Version
	out.Worktree, out.Repository, out.Patch, out.PatchCut = k.Tree.Path, k.Tree.Repo, k.Patch, k.Cut
	if !utf8.ValidString(k.Patch) {
		out.Patch, out.PatchBase64 = strings.ToValidUTF8(k.Patch, "\uFFFD"), base64.StdEncoding.EncodeToString([]byte(k.Patch))
	}
	for _, t := range k.Record.Tools {
		out.Tools = append(out.Tools, wire.DelegateTool{Name: t.Name, Input: t.Input, Outcome: string(t.Outcome)})
	}
	for _, p := range k.Record.Permissions {
		out.Permissions = append(out.Permissions, wire.DelegatePermission{Tool: p.Tool, Input: p.Input, Decision: string(p.Decision)})
	}
	for _, c := range k.Checks {
		out.Checks = append(out.Checks, wire.DelegateCheck(c))
	}
}

func (d *Daemon) delegateApply(ctx context.Context, req wire.DelegateShowRequest) (out wire.DelegateApplyResult, err error) {
	if err := d.hold.Refuse(); err != nil {
		return out, err
	}
	id, err := d.runs.Find(ctx, req.RunID)
	if err != nil {
		return out, err
	}
	shown, err := d.delegateShow(ctx, wire.DelegateShowRequest{RunID: id})
	if err != nil {
		return out, err
	}
	out.Repository, out.Files = shown.Repository, len(shown.Files)
	if out.RunID, err = d.delegations.Apply(ctx, id); err != nil {
		return out, err
	}
	rec, err := d.runs.Wait(ctx, out.RunID)
	if err != nil {
		return out, err
	}
	if rec.State != run.Completed {
		return out, fault.New(rec.ErrorClass, "%s", rec.Error)
	}
	var res act.Result
	if err := json.Unmarshal(rec.Result, &res); err != nil {
		return out, fault.New(fault.Verification, "result of %s: %w", rec.ID, err)
	}
	return out, res.Err()
}

func (d *Daemon) harnessProbe(ctx context.Context, req wire.HarnessRequest) (out wire.HarnessProbeResult, err error) {
	ctx, done := whileConnected(ctx)
	defer done()
	h, err := d.delegations.Harness(req.Name)
	if err != nil {
		return out, err
	}
	p, err := d.delegations.ProbeNow(ctx, h)
	return wire.HarnessProbeResult{Name: h.Name, Version: p.Version, Login: string(p.Login), Detail: p.Detail, KeyFrom: h.KeyFrom(), KeyHeld: h.KeyHeld(), Warnings: details(p)}, err
}

func (d *Daemon) harnessRoutes(ctx context.Context, _ wire.Empty) (out wire.HarnessRoutesResult, err error) {
	for _, r := range d.delegations.Admitted() {
		out.Admitted = append(out.Admitted, r.String())
	}
	for _, h := range d.delegations.Harnesses() {
		now := wire.RouteNow{Harness: h.Name}
		if _, r, why, err := d.delegations.Resolve(delegate.Want{Harness: h.Name}); err != nil {
			now.Refused = err.Error()
		} else {
			now.Route, now.Why = r.String(), why
		}
		out.Now = append(out.Now, now)
	}
	out.Ran, err = d.wireDelegations(ctx, 20)
	return out, err
}
