package loops

import (
	"context"
	"encoding/json"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
)

// KindCall is the kind of the runs that make a call of a kit which a person approved
// after the work had gone on without it: an accepted proposal.
const KindCall = "kitcall"

// Actors finds who a subject is now. NotFound if it is neither a loop nor a recipe.
type Actors func(subject string) (Actor, error)

type approvedInput struct {
	Approval string `json:"approval"`
	Subject  string `json:"subject"`
}

// DecidedTx takes the decision about a call that a kit left to a person. It reports
// whether it was one.
func (d Deps) DecidedTx(ctx context.Context, tx *db.Tx, apr approval.Approval, actors Actors) (ours bool, err error) {
	if !apr.Detached {
		return false, nil
	}
	if _, err := actors(apr.Subject); err != nil {
		if fault.Is(err, fault.NotFound) {
			err = nil
		}
		return false, err
	}
	if apr.State != approval.Approved {
		return true, nil
	}
	_, err = d.Runs.StartTx(ctx, tx, run.Spec{
		ID: "run_" + apr.ID[len("apr_"):], Kind: KindCall, Name: apr.Tool, Definition: apr.ToolDigest, Cause: apr.ID, Actor: apr.Resolver,
		Parent: apr.Run, Input: approvedInput{Approval: apr.ID, Subject: apr.Subject},
	})
	return true, err
}

// CallKind makes such calls.
func CallKind(d Deps, actors Actors, b *budget.Budget) run.Kind {
	return run.Kind{Name: KindCall, Handle: func(ctx context.Context, r *run.Run) ([]byte, error) {
		var in approvedInput
		if err := json.Unmarshal(r.Input(), &in); err != nil {
			return nil, fault.New(fault.Internal, "input of %s: %w", r.ID(), err)
		}
		who, err := actors(in.Subject)
		if err != nil {
			return nil, err
		}
		auth, err := d.AuthorityOf(ctx, who)
		if err != nil {
			return nil, err
		}
		apr, err := d.Approvals.Get(ctx, in.Approval)
		if err != nil {
			return nil, err
		}
		auth.Unattended = false // somebody has just decided
		res, err := d.Act.CallApproved(ctx, r, act.Call{Step: "call", Tool: apr.Tool, Input: apr.Input, Authority: auth, Within: true}, apr)
		if err == nil {
			err = res.Err()
		}
		if err != nil {
			return nil, err
		}
		return json.Marshal(res)
	}, Ended: func(ctx context.Context, tx *db.Tx, rec run.Record) error { return b.SettleTx(ctx, tx, rec.ID) }}
}
