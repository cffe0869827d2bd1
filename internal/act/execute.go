package act

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/tool"
)

// approvalGone is an approval that turned out not to be good at the last moment.
type approvalGone struct{ error }

func (e approvalGone) Unwrap() error { return e.error }

// execute is stages 6 to 10 of a call that may be made. approved says that it uses
// up the approval k.apr.
func (a *Act) execute(ctx context.Context, k *call, approved bool) (res Result, err error) {
	switch {
	case k.unanswered():
		return a.refuse(ctx, k, fault.New(fault.Internal, "%s cannot be called without what a person fills in", k.Tool))
	case k.def.Kind == tool.Local:
		res, err = a.executeLocal(ctx, k, approved)
	case a.Abandoned() >= maxAbandoned && !k.def.ReadOnly:
		err = fault.New(fault.Unavailable, "%d calls ignore their timeout; no new effect is begun until they end", maxAbandoned)
		return a.refuse(ctx, k, err)
	default:
		res, err = a.executeEffect(ctx, k, approved)
	}
	if gone, ok := errors.AsType[approvalGone](err); ok {
		return a.record(ctx, k, a.refusal(k.Tool, gone.error), k.apr, nil)
	}
	return res, err
}

func (a *Act) executeEffect(ctx context.Context, k *call, approved bool) (Result, error) {
	var res Result
	var out tool.Output
	kept := a.keepFiles(ctx, k)
	spec := run.StepSpec{
		Name: k.Step, Kind: "tool", InputMAC: k.mac, Timeout: k.def.Timeout + k.grace() + kept.time, Policy: a.policyOf(k, &res), Resumes: k.def.Resumes,
		Lazy: k.def.ReadOnly && k.apr == "",
		OnOpen: func(ctx context.Context, tx *db.Tx) error {
			if err := a.useApproval(ctx, tx, k, approved); err != nil {
				return err
			}
			if err := a.called(ctx, tx, k); err != nil {
				return err
			}
			if err := kept.OpenTx(ctx, tx); err != nil {
				return err
			}
			_, err := a.Audit.AppendTx(ctx, tx, k.entry("call.begun", Result{Status: "begun"}))
			return err
		},
		OnClose: func(ctx context.Context, tx *db.Tx, o *run.Outcome) error {
			if o.State == run.Unknown && res.Status == "" { // found interrupted
				res = Result{Status: Unclear, Tool: k.Tool, Text: o.Err.Error(), Class: fault.Unknown}
			}
			k.fill(&res)
			if err := kept.CloseTx(ctx, tx); err != nil {
				return err
			}
			return a.closed(ctx, tx, k, res, out, o)
		},
	}
	if spec.Policy.Kind == run.Repeatable && k.apr != "" {
		spec.Policy.Kind = run.Noted // the approval is used up by the intent's commit
	}
	defer kept.Done()
	_, err := k.run.Do(ctx, spec, func(ctx context.Context) run.Outcome {
		var ended bool
		res, out, ended = a.perform(ctx, k)
		if ended {
			kept.After(context.WithoutCancel(ctx))
		}
		return outcomeOf(res, out)
	})
	if err != nil {
		return Result{}, err
	}
	return res, nil
}

// grace is how long the call may take to stop when it is cancelled.
func (k *call) grace() time.Duration { return cmp.Or(k.def.Grace, heedTime) }

// policyOf maps what a tool says of repeating it to the step's policy.
func (a *Act) policyOf(k *call, res *Result) run.Policy {
	switch {
	case k.def.Repeat == tool.Repeatable && k.def.ReadOnly:
		return run.Policy{Kind: run.Repeatable}
	case k.def.Repeat == tool.Repeatable:
		return run.Policy{Kind: run.Noted}
	case k.def.Repeat == tool.Probed:
		return run.Policy{Kind: run.Probed, Probe: func(ctx context.Context) (run.Probe, run.Outcome) { return a.probe(ctx, k, res) }}
	}
	return run.Policy{Kind: run.AtMostOnce}
}

func (a *Act) probe(ctx context.Context, k *call, res *Result) (run.Probe, run.Outcome) {
	ctx, cancel := context.WithTimeout(ctx, k.def.Timeout)
	defer cancel()
	found, err := a.invoker.Probe(ctx, k.Tool, a.invocation(k, nil))
	if err != nil {
		a.Logger.Warn("probe", "tool", k.Tool, "run", k.run.ID(), "error", err)
	}
	switch found.State {
	case tool.Done:
		*res = a.guarded(ctx, k, found.Output, nil)
		return run.Happened, outcomeOf(*res, found.Output)
	case tool.NotDone:
		return run.DidNotHappen, run.Outcome{}
	}
	return run.CannotTell, run.Outcome{}
}

func (a *Act) useApproval(ctx context.Context, tx *db.Tx, k *call, approved bool) error {
	if !approved {
		return nil
	}
	err := a.Approvals.UseTx(ctx, tx, k.apr, k.hash)
	switch fault.ClassOf(err) {
	case fault.Denied, fault.Conflict, fault.Waiting, fault.NotFound:
		return approvalGone{err}
	}
	return err
}

// calledData is the payload of tool.called and tool.result.
type calledData struct {
	Tool    string `json:"tool"`
	Subject string `json:"subject"`
	Run     string `json:"run"`
	Step    string `json:"step"`
	Summary string `json:"summary,omitempty"`
	Status  Status `json:"status,omitempty"`
	IsError bool   `json:"is_error,omitempty"`
}

func (a *Act) called(ctx context.Context, tx *db.Tx, k *call) error {
	return a.tell(ctx, tx, k, "tool.called", calledData{Summary: k.summary})
}

func (a *Act) tell(ctx context.Context, tx *db.Tx, k *call, kind string, d calledData) error {
	d.Tool, d.Subject, d.Run, d.Step = k.Tool, k.Authority.Subject, k.run.ID(), k.Step
	_, err := a.Log.AppendTx(ctx, tx, eventlog.New{
		Stream: "tool:" + k.Tool, Kind: kind, Actor: k.Authority.Subject, Cause: k.run.Record().Cause, Trace: k.run.ID(),
		Data: d, Expect: eventlog.Any,
	})
	return err
}

// closed records the outcome with its cost and audit: stage 9.
func (a *Act) closed(ctx context.Context, tx *db.Tx, k *call, res Result, out tool.Output, o *run.Outcome) error {
	o.Result = marshal(res)
	if err := a.keepTx(ctx, tx, k, res); err != nil {
		return err
	}
	entry := k.entry("call", res)
	entry.CostMicroUSD = out.CostMicroUSD
	if out.CostMicroUSD > 0 && !out.Reserved {
		spent := budget.Reserve{Run: k.run.ID(), Step: k.Step, Agent: k.Authority.Agent}
		if err := a.Budget.SpendTx(ctx, tx, spent, out.CostMicroUSD, true); err != nil {
			return err
		}
	}
	if err := a.tell(ctx, tx, k, "tool.result", calledData{Summary: res.Summary, Status: res.Status, IsError: res.Status != OK}); err != nil {
		return err
	}
	if err := a.warned(ctx, tx, k, res); err != nil {
		return err
	}
	ref, err := a.Audit.AppendTx(ctx, tx, entry)
	o.Audit = run.AuditRef(ref)
	return err
}

// executeLocal makes a call whose work is rows, inside the commit of its outcome.
// A failure rolls back the tool's rows; the approval is used up either way.
func (a *Act) executeLocal(ctx context.Context, k *call, approved bool) (Result, error) {
	var res Result
	var out tool.Output
	spec := run.StepSpec{Name: k.Step, Kind: "tool", InputMAC: k.mac, OnClose: func(ctx context.Context, tx *db.Tx, o *run.Outcome) error {
		if err := a.useApproval(ctx, tx, k, approved); err != nil {
			return err
		}
		return a.closed(ctx, tx, k, res, out, o)
	}}
	_, err := k.run.DoTx(ctx, spec, func(ctx context.Context, tx *db.Tx) run.Outcome {
		begun := time.Now()
		var err error
		out, err = a.invoker.Call(ctx, k.Tool, a.invocation(k, tx))
		if err == nil && out.Reader != nil {
			err = errors.Join(fault.New(fault.Internal, "%s is local and returned a stream", k.Tool), out.Reader.Close())
		}
		res = a.settle(k, out, err, begun)
		return outcomeOf(res, out)
	})
	if err != nil {
		return Result{}, err
	}
	return res, nil
}

// settle makes the result of a call whose output is in memory.
func (a *Act) settle(k *call, out tool.Output, err error, begun time.Time) Result {
	var res Result
	if err != nil {
		res = a.failure(k, out, err)
	} else if out.Awaits != "" {
		res = Result{Status: OK, Tool: k.Tool, Text: "started " + out.Awaits, Awaits: out.Awaits, Label: label.Of(label.Own, label.OperatorOnly)}
	} else {
		text := out.Text
		if out.JSON != nil {
			text = string(out.JSON)
		}
		res = Result{Status: OK, Tool: k.Tool, Size: int64(len(text)), Label: k.labelOf(out)}
		res.Text, res.Cut = a.clean(text)
	}
	k.fill(&res)
	res.Warnings = warnings(res)
	res.TookUS = time.Since(begun).Microseconds()
	return res
}

func (k *call) labelOf(out tool.Output) label.Label {
	if out.Label != nil {
		return *out.Label
	}
	return label.Of(k.def.Source, label.OperatorOnly)
}

func (a *Act) failure(k *call, out tool.Output, err error) Result {
	res := a.refusal(k.Tool, err)
	res.Status = Failed
	if fault.Is(err, fault.Unknown) {
		res.Status = Unclear
	}
	res.Label = k.labelOf(out)
	return res
}

func outcomeOf(res Result, out tool.Output) run.Outcome {
	o := run.Outcome{State: run.Done, Result: marshal(res), Cost: out.CostMicroUSD, CostKnown: true}
	switch res.Status {
	case OK:
	case Unclear:
		o.State, o.Err = run.Unknown, res.Err()
	default:
		o.State, o.Err = run.Errored, res.Err()
	}
	return o
}

func (a *Act) invocation(k *call, tx *db.Tx) tool.Invocation {
	return tool.Invocation{
		Run: k.run.ID(), Step: k.Step, Conversation: k.Authority.Conversation, Readers: k.Authority.Readers, Subject: k.Authority.Subject,
		Key: k.run.ID() + "/" + k.Step, Input: k.input, Label: k.Label, Digest: k.digest, Tx: tx, Permit: a.permitter(k), Judge: a.judging(k),
		Unattended: k.Authority.Unattended, Tier: k.Authority.Tier, Said: k.said,
	}
}

// perform calls the handler under its timeout: stage 8. ended is false if the handler
// goes on though its time is over.
func (a *Act) perform(ctx context.Context, k *call) (_ Result, _ tool.Output, ended bool) {
	type answer struct {
		res Result
		out tool.Output
	}
	begun := time.Now()
	clock := run.NewClock()
	ctx, cancel := k.bound(ctx, clock)
	done := make(chan answer, 1)
	go func() {
		defer cancel()
		inv := a.invocation(k, nil)
		inv.Asking = k.asking(clock)
		out, err := a.invoker.Call(ctx, k.Tool, inv)
		res := a.guarded(ctx, k, out, err)
		res.TookUS = time.Since(begun).Microseconds()
		done <- answer{res, out}
	}()
	select {
	case got := <-done:
		return got.res, got.out, true
	case <-ctx.Done():
	}
	heed := time.NewTimer(k.grace())
	defer heed.Stop()
	select {
	case got := <-done:
		return got.res, got.out, true
	case <-heed.C:
	}
	a.abandoned.Add(1)
	a.Logger.Warn("a call ignores its cancellation", "tool", k.Tool, "run", k.run.ID(), "step", k.Step)
	go func() { // ends when the tool does; a late result is an event only
		got := <-done
		a.abandoned.Add(-1)
		a.late(k, got.res)
	}()
	why := "it did not end in time"
	if !errors.Is(context.Cause(ctx), errAbandoned) {
		why = "it was cancelled and did not stop"
	}
	res := a.failure(k, tool.Output{}, fault.New(fault.Unknown, "%s: %s (limit %s), so its outcome is unknown; do not repeat it", k.Tool, why, k.def.Timeout))
	if k.def.ReadOnly {
		res = a.failure(k, tool.Output{}, fault.New(fault.Timeout, "%s: %s (limit %s)", k.Tool, why, k.def.Timeout))
	}
	res.TookUS = time.Since(begun).Microseconds()
	return res, tool.Output{}, false
}

// late notes a result that came after its step was closed.
func (a *Act) late(k *call, res Result) {
	err := a.DB.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
		return a.tell(ctx, tx, k, "tool.late", calledData{Summary: k.summary, Status: res.Status, IsError: res.Status != OK})
	})
	if err != nil {
		a.Logger.Warn("note a late result", "tool", k.Tool, "run", k.run.ID(), "error", err)
	}
}
