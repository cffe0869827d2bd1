package agent

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/run"
)

// told says what the model was told of its calls.
func told(calls ...string) brain {
	return func(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
		if _, n := asked(req); n < len(calls) {
			return wants(calls[n])
		}
		return said(strings.Join(results(req), " "))
	}
}

func TestAnApprovedCallIsMadeOnceAndTheWaitIsNotTheTurnsTime(t *testing.T) {
	t.Parallel()
	const limit = 3 * time.Second
	each(t, setup{main: told("t.ask"), cfg: Config{Timeout: limit}}, func(t *testing.T, b *bench) {
		got := b.tell("main", "do it")
		q := b.parked(got.Run)
		if q.Summary != "t.ask {}" || q.Subject != "agent:main" || q.Conversation != got.Conversation || b.did("t.ask") != 0 {
			t.Errorf("asked %+v", q)
		}
		next := b.tell("main", "/status")
		if next.Run != "" {
			t.Error("a control message waits")
		}
		slow(t.Context(), limit+100*time.Millisecond) // a person takes longer than the turn may
		if _, err := b.Approvals.Resolve(t.Context(), q.ID, approval.Reply{Decision: approval.Approve, Note: "go on"}, "operator"); err != nil {
			t.Fatal(err)
		}
		if a := b.answer(got.Run); a.Outcome != Completed || a.Reply != "tool/0.0{}" || b.did("t.ask") != 1 {
			t.Errorf("%+v, %d effects", a, b.did("t.ask"))
		}
		if _, err := b.Approvals.Resolve(t.Context(), q.ID, approval.Reply{Decision: approval.Approve}, "operator"); !fault.Is(err, fault.Conflict) {
			t.Errorf("approved again: %v", err)
		}
	})
}

func TestARefusedCallIsToldAndNotAskedAgain(t *testing.T) {
	t.Parallel()
	each(t, setup{main: told("t.ask", "t.ask")}, func(t *testing.T, b *bench) {
		got := b.tell("main", "do it")
		q := b.parked(got.Run)
		if _, err := b.Approvals.Resolve(t.Context(), q.ID, approval.Reply{Decision: approval.Deny, Note: "too dear"}, "operator"); err != nil {
			t.Fatal(err)
		}
		a := b.answer(got.Run)
		if a.Outcome != Completed || !strings.Contains(a.Reply, "refused this call before") || b.did("t.ask") != 0 {
			t.Errorf("%+v, %d effects", a, b.did("t.ask"))
		}
		if s := b.step(got.Run, "tool/0.0"); !strings.Contains(s.Error, "too dear") {
			t.Errorf("the reason is not told: %q", s.Error)
		}
		if n := b.count("SELECT count(*) FROM approvals"); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestACallNobodyDecidesInTimeBecomesARunOfItsOwn(t *testing.T) {
	t.Parallel()
	each(t, setup{main: told("t.ask", "t.put"), hold: time.Millisecond}, func(t *testing.T, b *bench) {
		got := b.tell("main", "do it")
		a := b.answer(got.Run)
		if a.Outcome != ParkedTurn || len(a.Approvals) != 1 || !strings.Contains(a.Reply, "ombud approve "+a.Approvals[0]) || b.did("t.ask") != 0 {
			t.Fatalf("%+v", a)
		}
		// The conversation goes on, also without the decision.
		if next := b.ask("main", "and now?"); next.Outcome != ParkedTurn {
			t.Errorf("%+v", next)
		}
		before := b.did("t.ask")
		apr, err := b.Approvals.Resolve(t.Context(), a.Approvals[0], approval.Reply{Decision: approval.Approve}, "operator")
		if err != nil {
			t.Fatal(err)
		}
		if rec := b.wait(CallRun(apr)); rec.State != run.Completed || rec.Kind != CallKind || rec.Parent != got.Run {
			t.Errorf("%+v", rec)
		}
		if n := b.did("t.ask") - before; n != 1 {
			t.Errorf("%d effects", n)
		}
		out := b.out(got.Conversation)
		if last := out[len(out)-1]; !strings.HasPrefix(last, "Approved and done: t.ask {}") {
			t.Errorf("told %q", out)
		}
		if _, err := b.Runs.Verify(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What a stranger wrote stays theirs, also if it comes late into the conversation.
func TestTheResultOfALateCallKeepsItsLabel(t *testing.T) {
	t.Parallel()
	sqlite(t, setup{main: once("t.askfar"), hold: time.Millisecond}, func(t *testing.T, b *bench) {
		a := b.ask("main", "do it")
		apr, err := b.Approvals.Resolve(t.Context(), a.Approvals[0], approval.Reply{Decision: approval.Approve}, "operator")
		if err != nil {
			t.Fatal(err)
		}
		b.wait(CallRun(apr))
		next := b.tell("main", "and?")
		b.answer(next.Run)
		if snap := b.snap(next.Run); !snap.Label.Tainted() {
			t.Errorf("a page somebody else wrote became %v", snap.Label)
		}
	})
}

func TestAnApprovedCallThatCannotBeMadeIsTold(t *testing.T) {
	t.Parallel()
	sqlite(t, setup{main: once("t.askfail"), hold: time.Millisecond}, func(t *testing.T, b *bench) {
		got := b.tell("main", "do it")
		a := b.answer(got.Run)
		apr, err := b.Approvals.Resolve(t.Context(), a.Approvals[0], approval.Reply{Decision: approval.Approve}, "operator")
		if err != nil {
			t.Fatal(err)
		}
		b.wait(CallRun(apr))
		out := b.out(got.Conversation)
		if last := out[len(out)-1]; !strings.HasPrefix(last, "Approved, but failed: t.askfail") || !strings.Contains(last, "it broke") {
			t.Errorf("told %q", out)
		}
	})
}

func TestStoppingATurnThatWaitsWithdrawsItsQuestion(t *testing.T) {
	t.Parallel()
	each(t, setup{main: told("t.ask")}, func(t *testing.T, b *bench) {
		got := b.tell("main", "do it")
		q := b.parked(got.Run)
		b.tell("main", "/stop")
		if a := b.answer(got.Run); a.Outcome != Cancelled {
			t.Errorf("%+v", a)
		}
		if now := b.approval(q.ID); now.State != approval.Expired {
			t.Errorf("the question is %s", now.State)
		}
		if _, err := b.Approvals.Resolve(t.Context(), q.ID, approval.Reply{Decision: approval.Approve}, "operator"); !fault.Is(err, fault.Conflict) {
			t.Errorf("approved after the stop: %v", err)
		}
		yes := b.tell("main", "yes")
		if yes.Run == "" {
			t.Errorf("a yes to a question that is gone: %+v", yes)
		}
		b.parked(yes.Run)
		b.tell("main", "/stop")
		b.answer(yes.Run)
		if n := b.did("t.ask"); n != 0 {
			t.Errorf("%d effects", n)
		}
	})
}

// Several calls of one answer that ask: all are asked, one by one, and each is
// done once.
func TestCallsThatAskInOneAnswer(t *testing.T) {
	t.Parallel()
	each(t, setup{main: once(`t.ask {"n":1}`, `t.put {"n":2}`, `t.ask {"n":3}`)}, func(t *testing.T, b *bench) {
		got := b.tell("main", "do it")
		for range 2 {
			q := b.parked(got.Run)
			if _, err := b.Approvals.Resolve(t.Context(), q.ID, approval.Reply{Decision: approval.Approve}, "operator"); err != nil {
				t.Fatal(err)
			}
			b.until("the decision to be used", func() bool { return b.approval(q.ID).State == approval.Used })
		}
		b.answer(got.Run)
		if e := b.effects(); !slices.Equal(e, []string{`t.ask{"n":1}`, `t.put{"n":2}`, `t.ask{"n":3}`}) {
			t.Errorf("done %v", e)
		}
	})
}

// Read-only calls that ask are made together: the run parks once for each and
// nothing is lost or done twice.
func TestReadOnlyCallsThatAskTogether(t *testing.T) {
	t.Parallel()
	each(t, setup{main: once(`t.askfar {"n":1}`, `t.look {"n":2}`, `t.askfar {"n":3}`)}, func(t *testing.T, b *bench) {
		got := b.tell("main", "do it")
		for range 2 {
			q := b.parked(got.Run)
			if _, err := b.Approvals.Resolve(t.Context(), q.ID, approval.Reply{Decision: approval.Approve}, "operator"); err != nil {
				t.Fatal(err)
			}
		}
		if a := b.answer(got.Run); a.Outcome != Completed {
			t.Errorf("%+v", a)
		}
		e := b.effects()
		slices.Sort(e)
		if !slices.Equal(e, []string{`t.askfar{"n":1}`, `t.askfar{"n":3}`, `t.look{"n":2}`}) {
			t.Errorf("done %v", e)
		}
	})
}

func TestAQuestionNamesWhatIsAsked(t *testing.T) {
	t.Parallel()
	sqlite(t, setup{main: once(`t.ask {"n":7}`)}, func(t *testing.T, b *bench) {
		got := b.tell("main", "do it")
		q := b.parked(got.Run)
		if q.Summary != `t.ask {"n":7}` || !slices.Equal(q.Scopes, []string{"tool:asked"}) || len(q.Reasons) == 0 || q.Step != "tool/0.0" {
			t.Errorf("%+v", q)
		}
		b.tell("main", "no")
		b.answer(got.Run)
	})
}
