package act

import (
	"context"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// errDeniedBefore is what the same call gets again after a person's no.
var errDeniedBefore = fault.New(fault.Denied, "a person refused this call before in this run")

// allowed makes a call that policy allows. Where a standing approval may have
// answered, a person may have been asked before it was given: then their answer
// counts, and what they refused in this run stays refused.
func (a *Act) allowed(ctx context.Context, k *call) (Result, error) {
	if a.deniedBefore(k) {
		return a.refuse(ctx, k, errDeniedBefore)
	}
	if len(k.Authority.Standing) == 0 {
		return a.execute(ctx, k, false)
	}
	apr, found, err := a.findApproval(ctx, k)
	switch {
	case err != nil:
		return Result{}, err
	case found && apr.State == approval.Denied:
		return a.denied(ctx, k, apr)
	case found && apr.State == approval.Approved:
		k.approvedBy(apr)
		return a.execute(ctx, k, true)
	}
	return a.execute(ctx, k, false)
}

func (a *Act) denied(ctx context.Context, k *call, apr approval.Approval) (Result, error) {
	res := a.refusal(k.Tool, fault.New(fault.Denied, "%s refused this call%s", apr.Resolver, noted(apr.Note)))
	return a.record(ctx, k, res, apr.ID, nil)
}

// review keeps a call of unattended work for a person and lets the work go on
// without it: the question, already detached, and the step's result are one
// commit. The same call that waits already is not asked about twice.
func (a *Act) review(ctx context.Context, k *call) (Result, error) {
	ask := a.question(k)
	var waits approval.Approval
	var found bool
	err := a.DB.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		waits, found, err = a.Approvals.Waiting(ctx, q, ask)
		return err
	})
	if err != nil {
		return Result{}, err
	}
	keep := func(ctx context.Context, tx *db.Tx) error {
		if _, err := a.Approvals.AskTx(ctx, tx, ask); err != nil {
			return err
		}
		return a.Approvals.DetachTx(ctx, tx, ask.ID)
	}
	if found {
		ask.ID, keep = waits.ID, nil
	}
	return a.record(ctx, k, a.parked(k.Tool, ask.ID), ask.ID, keep)
}

// parked is what a turn is told of a call that a person may still approve.
func (a *Act) parked(tool, id string) Result {
	res := a.refusal(tool, fault.New(fault.Waiting, "parked for review as %s and not done; do not rely on it having happened", id))
	res.Status = Parked
	return res
}

// question is what a person is asked about the call.
func (a *Act) question(k *call) approval.Ask {
	return approval.Ask{
		ID: a.Approvals.NewID(), Run: k.run.ID(), Step: k.Step, Subject: k.Authority.Subject, Tool: k.Tool, ToolDigest: k.digest,
		Summary: k.summary, Conversation: k.Authority.Conversation, CallHash: k.hash, Input: k.input,
		Scopes: scopeTexts(k.scopes), Reasons: reasonTexts(k.decided.Reasons), Label: k.Label, Form: k.form,
	}
}
