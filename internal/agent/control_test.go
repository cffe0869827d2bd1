package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/run"
)

// stuckOn never answers a message that holds "stuck", until its context ends.
func stuckOn(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error) {
	if text, _ := asked(req); strings.Contains(text, "stuck") {
		<-ctx.Done()
		return model.Response{}, model.ContextError(ctx, "brain")
	}
	return echo(ctx, req, sink)
}

func TestStopEndsTheTurnAndDropsWhatWaits(t *testing.T) {
	t.Parallel()
	each(t, setup{main: stuckOn}, func(t *testing.T, b *bench) {
		if got := b.tell("main", "/stop"); got.Run != "" || !strings.Contains(got.Notice, "nothing to stop") {
			t.Errorf("an idle conversation: %+v", got)
		}
		first := b.tell("main", "stuck 1")
		b.until("the turn at work", func() bool { return b.state(first.Run) == run.Running })
		waiting := []Accepted{b.tell("main", "2"), b.tell("main", "3")}
		other := b.tell("other", "stuck elsewhere")
		b.until("the other turn at work", func() bool { return b.state(other.Run) == run.Running })
		if got := b.tell("main", "/Status."); !strings.Contains(got.Notice, first.Run) || !strings.Contains(got.Notice, "2 more") {
			t.Errorf("status: %q", got.Notice)
		}
		if got := b.tell("main", " /stop "); !strings.Contains(got.Notice, "dropping 2") {
			t.Errorf("stop: %+v", got)
		}
		for _, got := range append(waiting, first) {
			if a := b.answer(got.Run); a.Outcome != Cancelled {
				t.Errorf("%s: %+v", got.Run, a)
			}
		}
		if b.state(other.Run) != run.Running {
			t.Error("another conversation was stopped too")
		}
		out := b.out(first.Conversation)
		if n := strings.Count(strings.Join(out, "\n"), "Stopped, as asked."); n != 3 {
			t.Errorf("3 turns were stopped and the conversation was told of %d: %q", n, out)
		}
		if a := b.ask("main", "and on"); a.Reply != "re: and on" {
			t.Errorf("the next message: %+v", a)
		}
		b.tell("other", "/stop")
		b.answer(other.Run)
	})
}

func (b *bench) state(id string) run.State {
	b.t.Helper()
	rec, _, err := b.Runs.Get(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return rec.State
}

func TestControlMessagesAreTakenOnce(t *testing.T) {
	t.Parallel()
	each(t, setup{}, func(t *testing.T, b *bench) {
		in := inbound("main", "/new")
		in.Key = "k"
		first, err := b.Intake(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		again, err := b.Intake(t.Context(), in)
		if err != nil || !again.Duplicate || again.Notice != first.Notice || again.Event != first.Event {
			t.Errorf("%+v and then %+v, %v", first, again, err)
		}
		if out := b.out(first.Conversation); !slices.Equal(out, []string{first.Notice}) {
			t.Errorf("told %q", out)
		}
	})
}

func TestNewForgetsTheContextAndItsLabelAndDeletesNothing(t *testing.T) {
	t.Parallel()
	seen := func(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
		text, n := asked(req)
		if text == "look" && n == 0 {
			return wants("t.far")
		}
		return said(fmt.Sprint(len(req.Messages)))
	}
	each(t, setup{main: seen}, func(t *testing.T, b *bench) {
		b.ask("main", "look")
		second := b.tell("main", "a")
		if a := b.answer(second.Run); a.Reply != "3" {
			t.Errorf("the second turn saw %s messages", a.Reply)
		}
		if snap := b.snap(second.Run); !snap.Label.Tainted() {
			t.Errorf("the label of the first turn is lost: %v", snap.Label)
		}
		rows := b.count("SELECT count(*) FROM history")
		b.tell("main", "/new")
		third := b.tell("main", "b")
		if a := b.answer(third.Run); a.Reply != "1" {
			t.Errorf("after /new the turn saw %s messages", a.Reply)
		}
		if snap := b.snap(third.Run); snap.Label.Tainted() || !slices.Contains(snap.Label.Sources, label.Operator) {
			t.Errorf("after /new the label is %v", snap.Label)
		}
		if n := b.count("SELECT count(*) FROM history"); n != rows+2 {
			t.Errorf("history went from %d rows to %d", rows, n)
		}
	})
}

func TestYesDecidesTheOneOpenQuestionWhileItsTurnWaits(t *testing.T) {
	t.Parallel()
	each(t, setup{main: once("t.ask")}, func(t *testing.T, b *bench) {
		for _, c := range []struct {
			word, said string
			effects    int
			state      approval.State
		}{{"Yes!", "Approved: ", 1, approval.Used}, {"n", "Refused: ", 0, approval.Denied}} {
			before := b.did("t.ask")
			turn := b.tell("main", "do it "+c.word)
			q := b.parked(turn.Run)
			if got := b.tell("main", "/status"); !strings.Contains(got.Notice, q.ID) {
				t.Errorf("status tells of no question: %q", got.Notice)
			}
			got := b.tell("main", c.word)
			if got.Run != "" || got.Notice != c.said+q.Summary {
				t.Errorf("%s: %+v", c.word, got)
			}
			if a := b.answer(turn.Run); a.Outcome != Completed || a.Reply != "done" {
				t.Errorf("%s: %+v", c.word, a)
			}
			if n := b.did("t.ask") - before; n != c.effects {
				t.Errorf("%s: %d effects", c.word, n)
			}
			if now := b.approval(q.ID); now.State != c.state || now.Resolver != "operator" {
				t.Errorf("%s: the question is %s by %s", c.word, now.State, now.Resolver)
			}
		}
	})
}

func TestYesWithNothingOpenIsAMessage(t *testing.T) {
	t.Parallel()
	sqlite(t, setup{}, func(t *testing.T, b *bench) {
		if a := b.ask("main", "yes"); a.Reply != "re: yes" {
			t.Errorf("%+v", a)
		}
	})
}

func TestYesWithSeveralOpenAsksWhich(t *testing.T) {
	t.Parallel()
	each(t, setup{main: once("t.ask"), hold: time.Millisecond}, func(t *testing.T, b *bench) {
		var ids []string
		for i := range 2 {
			a := b.ask("main", fmt.Sprint("do it ", i))
			if a.Outcome != ParkedTurn || len(a.Approvals) != 1 {
				t.Fatalf("%+v", a)
			}
			ids = append(ids, a.Approvals[0])
		}
		got := b.tell("main", "yes")
		if got.Run != "" || !strings.Contains(got.Notice, "approve 1 ") || !strings.Contains(got.Notice, "approve 2 ") {
			t.Errorf("%+v", got)
		}
		if got := b.tell("main", "approve 3"); got.Run != "" || !strings.Contains(got.Notice, "no open question 3") {
			t.Errorf("%+v", got)
		}
		if n := b.count("SELECT count(*) FROM approvals WHERE state = 'pending'"); n != 2 {
			t.Errorf("%d questions are still open", n)
		}
		b.tell("main", "Deny 1")
		if now := b.approval(ids[0]); now.State != approval.Denied {
			t.Errorf("the first is %s", now.State)
		}
		// The other keeps its number: whoever answers an old list does not mean another question.
		if got := b.tell("main", "approve 1"); got.Run != "" || b.approval(ids[1]).State != approval.Pending {
			t.Errorf("%+v", got)
		}
		b.tell("main", "approve 2")
		b.answer(CallRun(b.approval(ids[1])))
		if n := b.did("t.ask"); n != 1 {
			t.Errorf("%d effects", n)
		}
	})
}

// A yes that comes too late is taken and answered, not refused for ever.
func TestYesToAQuestionThatHasExpired(t *testing.T) {
	t.Parallel()
	each(t, setup{main: once("t.ask"), poll: time.Hour}, func(t *testing.T, b *bench) {
		turn := b.tell("main", "do it")
		q := b.parked(turn.Run)
		err := b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE approvals SET expires = 1")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := b.Intake(t.Context(), inbound("main", "yes"))
		if err != nil || got.Run != "" || !strings.Contains(got.Notice, "expired") || !strings.Contains(got.Notice, q.Summary) {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := b.Approvals.ExpireOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a := b.answer(turn.Run); a.Outcome != Completed || b.did("t.ask") != 0 {
			t.Errorf("%+v, %d effects", a, b.did("t.ask"))
		}
	})
}

func (b *bench) approval(id string) approval.Approval {
	b.t.Helper()
	a, err := b.Approvals.Get(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

func TestAMistypedControlMessageIsNotForTheModel(t *testing.T) {
	t.Parallel()
	b := open(t, dbtest.SQLite(t), setup{main: retell("t.put")})
	got := b.tell("main", "/stpo")
	if got.Run != "" || !strings.Contains(got.Notice, "/stop") || len(b.effects()) != 0 {
		t.Errorf("%+v, effects %v", got, b.effects())
	}
	if got := b.tell("main", "/etc/hosts says what?"); got.Run == "" {
		t.Errorf("a message that begins with a path became %+v", got)
	}
}
