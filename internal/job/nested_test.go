package job

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// nest adds a tool within whose call do works, with a job of that call.
func (b *bench) nest(do func(ctx context.Context, in tool.Invocation, parent *act.Authority) (string, error)) {
	b.t.Helper()
	d := tool.Definition{
		Name: "nest", Description: "for tests", Kind: tool.Effect, Timeout: time.Minute, MaxOutput: 1 << 20, Source: label.Own,
		Input:       json.RawMessage(`{"type":"object","additionalProperties":false}`),
		Scopes:      func(json.RawMessage) ([]scope.Scope, error) { return []scope.Scope{scope.Must("tool:note.a")}, nil },
		Summary:     func(json.RawMessage) string { return "nest" },
		Destination: func(json.RawMessage) tool.Destination { return tool.Destination{Nobody: true} },
	}
	err := b.tools.Add(d, func(ctx context.Context, in tool.Invocation) (tool.Output, error) {
		parent, err := b.AuthorityOf(ctx, in.Run, in.Subject, in.Conversation, in.Tier)
		if err != nil {
			return tool.Output{}, err
		}
		text, err := do(ctx, in, parent)
		return tool.Output{Text: text}, err
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// TestAJobWithinTheCallOfAJobHoldsNoMore: what makes the call is a job, and the job of the
// call is held by what holds that.
func TestAJobWithinTheCallOfAJobHoldsNoMore(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	b.nest(func(ctx context.Context, in tool.Invocation, parent *act.Authority) (string, error) {
		if parent.Subject != "harness:test" {
			t.Errorf("the call is made by %s", parent.Subject)
		}
		inner := func(rules ...policy.Rule) (string, error) {
			_, token, err := b.Issue(ctx, in.Run, Spec{Subject: "server:test", Parent: parent, Rules: rules})
			return token, err
		}
		if _, err := inner(rule(policy.Allow, "tool:note.b")); !fault.Is(err, fault.Denied) {
			t.Errorf("more than the job was given: %v", err)
		}
		token, err := inner(rule(policy.Allow, "tool:note.a"))
		if err != nil {
			return "", err
		}
		b.got(act.OK, token, "note", "a", "")
		b.parentMay(func(a *act.Authority) { a.Grants = policy.NewLayer("grants of agent:main", nil) })
		b.got(act.Refused, token, "note", "a", "")
		return "done", nil
	})
	r := b.work("x")
	_, token := b.issue(r, func(s *Spec) { s.Rules = []policy.Rule{rule(policy.Allow, "tool:note.a")} })
	if res := b.got(act.OK, token, "nest", "", ""); res.Text != "done" {
		t.Error(res.Text)
	}
	b.let(r)
}

// TestAPatientCallWaitsAsLongAsItsQuestionIsOpen: and its question goes with its job.
func TestAPatientCallWaitsAsLongAsItsQuestionIsOpen(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), func(o *approval.Options) { o.Hold = time.Millisecond })
	r := b.work("x")
	job, token := b.issue(r)
	req := Request{Token: token, Tool: "post", Input: json.RawMessage(`{"as":"a"}`), Key: "a", Wait: 100 * time.Millisecond, Patient: true}
	ans, err := b.Call(t.Context(), req)
	if err != nil || ans.Result.Status != act.Parked {
		t.Fatalf("%+v, %v", ans.Result, err)
	}
	a, err := b.approvals.Get(t.Context(), ans.Result.Approval)
	if err != nil || a.Detached || a.State != approval.Pending {
		t.Fatalf("%+v, %v", a, err)
	}
	if err := b.End(t.Context(), job.ID, "it is over"); err != nil {
		t.Fatal(err)
	}
	rec, err := b.Runs.Wait(t.Context(), ans.Run)
	if err != nil || rec.State != run.Cancelled {
		t.Errorf("the call is %s, %v", rec.State, err)
	}
	if a, err = b.approvals.Get(t.Context(), a.ID); err != nil || a.State != approval.Expired || !strings.Contains(a.Note, "ended") {
		t.Errorf("the question is %s (%s), %v", a.State, a.Note, err)
	}
	b.let(r)
}

func TestNobodyIsToldThatAnAnswerWasTakenWhichNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		r := b.work("x")
		_, token := b.issue(r)
		req := Request{Token: token, Tool: "post", Input: json.RawMessage(`{"as":"a"}`), Key: "a", Wait: 100 * time.Millisecond, Patient: true}
		ans, err := b.Call(t.Context(), req)
		if err != nil || ans.Result.Status != act.Parked {
			t.Fatalf("%+v, %v", ans.Result, err)
		}
		b.let(r) // and its job was not swept yet
		yes := approval.Reply{Decision: approval.Approve}
		if _, err := b.approvals.Resolve(t.Context(), ans.Result.Approval, yes, "operator"); !fault.Is(err, fault.Conflict) {
			t.Errorf("a yes: %v", err)
		}
		if a, err := b.approvals.Get(t.Context(), ans.Result.Approval); err != nil || a.State != approval.Pending {
			t.Errorf("the question is %s, %v", a.State, err)
		}
		if n, err := b.Sweep(t.Context()); err != nil || n != 1 {
			t.Fatalf("%d jobs were swept: %v", n, err)
		}
		if rec, err := b.Runs.Wait(t.Context(), ans.Run); err != nil || rec.State != run.Cancelled {
			t.Errorf("the call is %s, %v", rec.State, err)
		}
	})
}
