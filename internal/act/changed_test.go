package act

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// A person approved what a tool was; what took its place is asked about anew.
func TestAnApprovalIsVoidWhenAnOwnerReplacesItsTool(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		as := func(revision, says string) {
			def := define("w.do")
			def.Revision = revision
			if bad, err := b.tools.Replace("w", []tool.Offer{{Definition: def, Handler: text(says)}}); err != nil || len(bad) > 0 {
				t.Fatalf("%v, %v", bad, err)
			}
		}
		as("1", "first")
		call := to("c", "w.do", `{"as":"ask"}`)
		id := b.start(call)
		apr := b.asked(id)
		as("2", "second")
		b.decide(apr, "approve")
		again := b.asked(id)
		if again.ID == apr.ID {
			t.Fatal("the approval of the old tool was good for the new one")
		}
		b.decide(again, "approve")
		expect(t, b.end(id, call)[0], OK, "second")
	})
}

// On another node, or where a backup was restored, the same input may be another file.
func TestAnApprovalIsVoidWhereTheCallNeedsAnotherScope(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), func(o *approval.Options) { o.Hold = 50 * time.Millisecond })
	b.add(define("t.send"), text("sent"))
	call := to("tool/1", "t.send", `{"as":"ask"}`)
	apr, err := b.approvals.Get(t.Context(), b.do(call)[0].Approval)
	if err != nil {
		t.Fatal(err)
	}
	b.decide(apr, approval.Approve)
	b.newTools()
	def := define("t.send")
	def.Scopes = func(json.RawMessage) ([]scope.Scope, error) {
		s, err := scope.Parse("tool:elsewhere")
		return []scope.Scope{s}, err
	}
	b.add(def, text("sent elsewhere"))
	exact := to("call", "t.send", `{"as":"ask"}`)
	expect(t, b.end(b.startWith(program{Calls: []planned{exact}, Approved: apr.ID}), exact)[0], Refused, "changed since it was approved")
	if b.called("t.send") != 0 {
		t.Error("it was made")
	}
}

// A crash is no way around: a call that can be repeated is repeated only by the tool
// that was approved, in the turn that asked and in a run of its own.
func TestAnInterruptedCallIsNotRepeatedByAnotherToolThanWasApproved(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]bool{"in its turn": false, "in a run of its own": true} {
		for says, changed := range map[string]bool{"the same": false, "another": true} {
			t.Run(name+", "+says, func(t *testing.T) {
				t.Parallel()
				hold := time.Minute
				if own {
					hold = 50 * time.Millisecond
				}
				b := setup(t, dbtest.SQLite(t), func(o *approval.Options) { o.Hold = hold })
				began, release := make(chan struct{}), make(chan struct{})
				def := define("t.send")
				def.Repeat = tool.Repeatable
				b.add(def, func(context.Context, tool.Invocation) (tool.Output, error) {
					close(began)
					<-release
					return tool.Output{Text: "of a zombie"}, nil
				})
				call := to("tool/1", "t.send", `{"as":"ask"}`)
				id := b.start(call)
				if own {
					apr, err := b.approvals.Get(t.Context(), b.end(id, call)[0].Approval)
					if err != nil {
						t.Fatal(err)
					}
					b.decide(apr, approval.Approve)
					id = b.startWith(program{Calls: []planned{call}, Approved: apr.ID})
				} else {
					b.decide(b.asked(id), approval.Approve)
				}
				<-began
				b.newTools()
				if changed {
					def.Revision = "2"
				}
				b.add(def, text("again"))
				zombie := b.Engine
				b.boot()
				got := b.end(id, call)[0]
				close(release)
				if err := zombie.Stop(context.Background()); err != nil {
					t.Error(err)
				}
				if !changed {
					expect(t, got, OK, "again")
					return
				}
				expect(t, got, Unclear)
				if s := b.step(id, "tool/1"); s.State != run.Unknown || b.called("t.send") != 1 {
					t.Errorf("step is %s, called %d times", s.State, b.called("t.send"))
				}
			})
		}
	}
}
