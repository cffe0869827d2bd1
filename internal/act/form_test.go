package act

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

const nameForm = `{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`

// formed is a tool whose calls have a form, unless their n is 0.
func formed(kind tool.Kind, schema string) tool.Definition {
	d := define("t.ask")
	d.Kind = kind
	d.Form = func(input json.RawMessage) json.RawMessage {
		if strings.Contains(string(input), `"n":0`) {
			return nil
		}
		return json.RawMessage(schema)
	}
	return d
}

// says is a handler that returns what was filled in.
func says(_ context.Context, in tool.Invocation) (tool.Output, error) {
	if in.Said == nil {
		return tool.Output{Text: "nothing was said"}, nil
	}
	return tool.Output{Text: "said " + string(in.Said)}, nil
}

func (b *bench) fill(a approval.Approval, answer string) {
	b.t.Helper()
	if _, err := b.approvals.Resolve(b.t.Context(), a.ID, approval.Reply{Decision: approval.Approve, Answer: json.RawMessage(answer)}, "operator"); err != nil {
		b.t.Fatal(err)
	}
}

func TestACallWithAFormIsMadeWithWhatAPersonFilledIn(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		for _, kind := range []tool.Kind{tool.Effect, tool.Local} {
			def := formed(kind, nameForm)
			def.Name = "t." + string(kind)
			b.add(def, says)
			for _, as := range []string{"free", "ask"} { // what policy allows is asked too
				c := to("tool/1", def.Name, `{"as":"`+as+`"}`)
				id := b.start(c)
				apr := b.asked(id)
				if string(apr.Form) != nameForm || apr.Answer != nil || len(apr.Reasons) == 0 {
					t.Errorf("the question is %+v", apr)
				}
				if _, err := b.approvals.Resolve(t.Context(), apr.ID, approval.Reply{Decision: approval.Approve}, "operator"); !fault.Is(err, fault.Invalid) {
					t.Fatalf("a plain yes: %v", err)
				}
				b.fill(apr, ` {"name": "Ada"}`)
				got := b.end(id, c)[0]
				expect(t, got, OK, `said {"name":"Ada"}`)
				if got.Decision != "ask" || got.Approval != apr.ID {
					t.Errorf("it was decided as %s by %s", got.Decision, got.Approval)
				}
			}
			plain := to("tool/1", def.Name, `{"as":"free","n":0}`)
			expect(t, b.do(plain)[0], OK, "nothing was said")
			no := to("tool/1", def.Name, `{"as":"free","n":1}`)
			id := b.start(no)
			made := b.called(def.Name)
			b.decide(b.asked(id), approval.Deny)
			expect(t, b.end(id, no)[0], Refused, "refused this call")
			if b.called(def.Name) != made {
				t.Error("what was refused was made")
			}
		}
	})
}

func TestNoStandingApprovalAnswersAForm(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	b.tune = func(a *Authority) { a.Standing = []scope.Scope{scope.Must("tool:ask")} }
	b.add(formed(tool.Effect, nameForm), says)
	expect(t, b.do(to("tool/1", "t.ask", `{"as":"ask","n":0}`))[0], OK, "nothing was said")
	c := to("tool/1", "t.ask", `{"as":"ask"}`)
	id := b.start(c)
	b.fill(b.asked(id), `{"name":"Ada"}`)
	expect(t, b.end(id, c)[0], OK, `said {"name":"Ada"}`)
}

func TestAFormThatNobodyCouldBeAskedRefusesTheCall(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	b.add(formed(tool.Effect, `{"type":"object","properties":{"f":{"type":"object"}}}`), says)
	expect(t, b.do(to("tool/1", "t.ask", `{"as":"free"}`))[0], Refused, "field f", "t.ask")
	if b.called("t.ask") != 0 {
		t.Error("it was made")
	}
}

func TestAPlainFormIsAConfirmation(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	b.add(formed(tool.Effect, `{"type":"object","properties":{}}`), says)
	c := to("tool/1", "t.ask", `{"as":"free"}`)
	id := b.start(c)
	b.decide(b.asked(id), approval.Approve)
	expect(t, b.end(id, c)[0], OK, "said {}")
}

// The answer is kept with the approval, so a process that dies after it loses nothing:
// neither before the call is begun, nor while it is made.
func TestWhatWasFilledInSurvivesTheProcess(t *testing.T) {
	t.Parallel()
	for _, kind := range []tool.Kind{tool.Effect, tool.Local} {
		b := setup(t, dbtest.SQLite(t))
		b.add(formed(kind, nameForm), says)
		c := to("tool/1", "t.ask", `{"as":"free"}`)
		id := b.start(c)
		apr := b.asked(id)
		b.halt()
		b.fill(apr, `{"name":"Ada"}`)
		b.boot()
		expect(t, b.end(id, c)[0], OK, `said {"name":"Ada"}`)
	}
}

func TestAnInterruptedCallIsRepeatedWithTheSameAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		own, other bool // in a run of its own; the tool asks something else now
	}{"in its turn": {}, "in a run of its own": {own: true}, "with another form": {other: true}, "alone, with another form": {true, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hold := time.Minute
			if c.own {
				hold = 50 * time.Millisecond
			}
			b := setup(t, dbtest.SQLite(t), func(o *approval.Options) { o.Hold = hold })
			began, release := make(chan struct{}), make(chan struct{})
			def := formed(tool.Effect, nameForm)
			def.Repeat = tool.Repeatable
			b.add(def, func(context.Context, tool.Invocation) (tool.Output, error) {
				close(began)
				<-release
				return tool.Output{Text: "of a zombie"}, nil
			})
			call := to("tool/1", "t.ask", `{"as":"free"}`)
			id := b.start(call)
			if c.own {
				parked := b.end(id, call)[0]
				expect(t, parked, Parked)
				apr, err := b.approvals.Get(t.Context(), parked.Approval)
				if err != nil {
					t.Fatal(err)
				}
				b.fill(apr, `{"name":"Ada"}`)
				id = b.startWith(program{Calls: []planned{call}, Approved: apr.ID})
			} else {
				b.fill(b.asked(id), `{"name":"Ada"}`)
			}
			<-began
			b.newTools()
			if c.other {
				def.Form = func(json.RawMessage) json.RawMessage {
					return json.RawMessage(`{"type":"object","properties":{"iban":{"type":"string"}}}`)
				}
			}
			b.add(def, says)
			zombie := b.Engine
			b.boot()
			got := b.end(id, call)[0]
			close(release)
			if err := zombie.Stop(context.Background()); err != nil {
				t.Error(err)
			}
			if !c.other {
				expect(t, got, OK, `said {"name":"Ada"}`)
				return
			}
			expect(t, got, Unclear)
			if s := b.step(id, "tool/1"); s.State != run.Unknown || b.called("t.ask") != 1 {
				t.Errorf("step is %s, called %d times", s.State, b.called("t.ask"))
			}
		})
	}
}

// The digest of a tool does not know what its form comes to. The approval does.
func TestAnAnswerIsToTheFormThatWasAsked(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	b.add(formed(tool.Effect, nameForm), says)
	c := to("tool/1", "t.ask", `{"as":"free"}`)
	id := b.start(c)
	first := b.asked(id)
	b.newTools()
	b.add(formed(tool.Effect, `{"type":"object","properties":{"name":{"type":"string","title":"Of your bank"}},"required":["name"]}`), says)
	b.fill(first, `{"name":"Ada"}`)
	second := b.asked(id)
	if second.ID == first.ID {
		t.Fatal("the answer to one form was good for another")
	}
	b.fill(second, `{"name":"Bank"}`)
	expect(t, b.end(id, c)[0], OK, `said {"name":"Bank"}`)
}

func TestACallWithAFormIsNotMadeUnanswered(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	b.add(formed(tool.Effect, nameForm), says)
	err := b.kinds.Add(run.Kind{Name: "past the question", Handle: func(ctx context.Context, r *run.Run) ([]byte, error) {
		k, err := b.act.prepare(r, Call{Step: "tool/1", Tool: "t.ask", Input: json.RawMessage(`{"as":"free"}`), Authority: b.authority()}, false)
		if err != nil {
			return nil, err
		}
		res, err := b.act.execute(ctx, k, false)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.results[r.ID()+"/tool/1"] = res
		return nil, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	id, err := b.Start(t.Context(), run.Spec{Kind: "past the question", Actor: "agent:test"})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, b.end(id, to("tool/1", "", ""))[0], Refused, "what a person fills in")
	if b.called("t.ask") != 0 {
		t.Error("it was made")
	}
}
