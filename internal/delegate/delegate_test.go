package delegate

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
)

func TestACallIsWhatItsCodingAgentSays(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := open(t, d)
		res := h.call(CallTool, callInput{Prompt: "what is it?", Harness: "claude"})
		if res.Status != act.OK || !strings.Contains(res.Text, "42") || !strings.Contains(res.Text, "$0.001,") {
			t.Errorf("the call came to %+v", res)
		}
		if !res.Label.Tainted() {
			t.Errorf("what a coding agent says is not ours: %s", res.Label)
		}
		x, rep := h.last()
		if x.Outcome != "completed" || x.MicroUSD != 1000 || !x.Priced || x.Tries != 1 || rep.Session != x.Session {
			t.Errorf("the row is %+v", x)
		}
		if spent, reserved, possible, unknown := h.spent(); spent != 1000 || reserved+possible+unknown != 0 {
			t.Errorf("booked are %d, held %d, possible %d, unknown %d", spent, reserved, possible, unknown)
		}
		if n := len(h.events(KindCompleted)); n != 1 {
			t.Errorf("%d ends were told", n)
		}
		got := h.stage.started()[0]
		if got.Write || got.Permit != nil || got.MCP != nil || got.NewSession == "" || got.Prompt != "what is it?" || got.Dir != h.cfg.Workspace {
			t.Errorf("the program was given %+v", got)
		}
		if rec, steps, err := h.Runs.Get(t.Context(), x.Run); err != nil || rec.Cost != 1000 || len(steps) != 2 {
			t.Errorf("the run cost %d in %d steps, %v", rec.Cost, len(steps), err)
		}
	})
}

func TestWhatEndsInTheBackgroundWakesItsConversationOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := open(t, d)
		going := make(chan struct{})
		h.stage.play(func(ctx context.Context, task child.Task) (harness.Record, error) {
			select {
			case <-going:
				return done(task, "42", 1000), nil
			case <-ctx.Done():
				return harness.Record{Outcome: harness.Killed}, nil
			}
		})
		res := h.call(CallTool, callInput{Prompt: "take long", Background: true})
		if res.Status != act.OK || !strings.HasPrefix(res.Text, "begun as run_") {
			t.Fatalf("the call came to %+v", res)
		}
		h.halt() // whoever began it has ended, and so does the daemon
		h.boot()
		close(going)
		x, _ := h.last()
		if x.Outcome != "completed" {
			t.Errorf("the row is %+v", x)
		}
		woken := h.events("told.woken")
		if len(woken) != 1 || !strings.Contains(string(woken[0].Data), "42") || !strings.Contains(string(woken[0].Data), "take long") {
			t.Errorf("woken by %v", woken)
		}
		if ends := h.events(KindCompleted); len(ends) != 1 || woken[0].Cause != ends[0].ID {
			t.Errorf("%d ends were told", len(ends))
		}
	})
}

func TestADelegationGoesOnByItsSession(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := open(t, d)
		began := make(chan struct{}, 8)
		h.stage.play(func(ctx context.Context, task child.Task) (harness.Record, error) {
			if task.Session == "" {
				began <- struct{}{}
				<-ctx.Done()
				return harness.Record{Outcome: harness.Killed}, nil
			}
			return done(task, "went on", 1500), nil
		})
		id := h.begin(CallTool, callInput{Prompt: "build it", Harness: "claude"})
		<-began
		h.halt()
		h.boot()
		if res := h.end(id); res.Status != act.OK || !strings.Contains(res.Text, "went on") {
			t.Fatalf("the call came to %+v", res)
		}
		tasks := h.stage.started()
		if len(tasks) != 2 || tasks[1].Session != tasks[0].NewSession || !strings.Contains(tasks[1].Prompt, "interrupted") || !strings.HasSuffix(tasks[1].Prompt, "build it") {
			t.Errorf("it went on with %+v", tasks[1])
		}
		x, _ := h.last()
		if x.Tries != 2 || x.MicroUSD != 1500 || x.Priced || x.Possible == 0 { // the first start may have used something
			t.Errorf("the row is %+v", x)
		}
		if spent, reserved, possible, unknown := h.spent(); spent != 1500 || reserved != 0 || possible != x.Possible || unknown != 1 {
			t.Errorf("booked are %d, held %d, possible %d, unknown %d", spent, reserved, possible, unknown)
		}
		if n := len(h.events(KindCompleted)); n != 1 {
			t.Errorf("%d ends were told", n)
		}
	})
}

func TestASessionThatNobodyKeptIsBegunAnew(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	began := make(chan struct{}, 1)
	h.stage.play(func(ctx context.Context, task child.Task) (harness.Record, error) {
		switch {
		case task.Session != "":
			return harness.Record{Outcome: harness.NotStarted, Error: "No conversation found"}, nil
		case len(h.stage.started()) == 1:
			began <- struct{}{}
			<-ctx.Done()
			return harness.Record{Outcome: harness.Killed}, nil
		}
		return done(task, "anew", 100), nil
	})
	id := h.begin(CallTool, callInput{Prompt: "build it", Harness: "claude"})
	<-began
	h.halt()
	h.boot()
	if res := h.end(id); !strings.Contains(res.Text, "anew") || !strings.Contains(res.Text, "lost") {
		t.Errorf("the call came to %+v", res)
	}
	tasks := h.stage.started()
	if last := tasks[len(tasks)-1]; !strings.Contains(last.Prompt, "interrupted") || !strings.HasSuffix(last.Prompt, "build it") || last.NewSession == tasks[0].NewSession {
		t.Errorf("it was begun anew with %+v", last)
	}
}

// A program that chooses the id of its session may have worked before it was known.
func TestAProgramIsToldThatItWasInterruptedAlsoInANewSession(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	began := make(chan struct{}, 1)
	h.stage.play(func(ctx context.Context, task child.Task) (harness.Record, error) {
		if len(h.stage.started()) == 1 {
			began <- struct{}{}
			<-ctx.Done()
			return harness.Record{Outcome: harness.Killed}, nil
		}
		return done(task, "went on", 100), nil
	})
	id := h.begin(CallTool, callInput{Prompt: "build it", Harness: "codex"})
	<-began
	h.halt()
	h.boot()
	h.end(id)
	tasks := h.stage.started()
	if len(tasks) != 2 || tasks[0].Prompt != "build it" || tasks[1].Session != "" || !strings.Contains(tasks[1].Prompt, "interrupted") {
		t.Errorf("it was started with %+v", tasks)
	}
}

func TestTwoRunsNeverShareASessionAtOnce(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	h.call(CallTool, callInput{Prompt: "begin", Harness: "claude"})
	x, _ := h.last()
	cost := int64(1000)
	var mu sync.Mutex
	h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
		mu.Lock()
		defer mu.Unlock()
		cost += 500
		return done(task, "more", cost), nil
	})
	var turns []string
	for range 8 {
		turns = append(turns, h.begin(CallTool, callInput{Prompt: "more", Session: x.Session}))
	}
	for _, id := range turns {
		if res := h.end(id); res.Status != act.OK {
			t.Errorf("%+v", res)
		}
	}
	if h.stage.most != 1 {
		t.Errorf("%d programs were at work in one session", h.stage.most)
	}
	if spent, _, _, _ := h.spent(); spent != 5000 {
		t.Errorf("the session cost 5000 in all, booked are %d", spent)
	}
	for _, task := range h.stage.started()[1:] {
		if task.Session == "" || task.NewSession != "" {
			t.Errorf("%+v", task)
		}
	}
}

func TestASessionIsItsOwners(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	other := Session{ID: "ses_of_another", Harness: "claude", Body: SessionBody{Subject: "agent:main", Conversation: "conv_2", Home: h.cfg.Home, Dir: h.cfg.Workspace}}
	far := Session{ID: "ses_elsewhere", Harness: "claude", Body: SessionBody{Subject: "agent:main", Conversation: "conv_1", Home: "home_2", Dir: h.cfg.Workspace}}
	err := h.DB.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if err := h.saveSession(ctx, tx, other); err != nil {
			return err
		}
		return h.saveSession(ctx, tx, far)
	})
	if err != nil {
		t.Fatal(err)
	}
	for want, in := range map[string]callInput{
		"no session":            {Prompt: "x", Session: other.ID},
		"is one of claude":      {Prompt: "x", Session: far.ID, Harness: "codex"},
		"works in":              {Prompt: "x", Session: far.ID, Dir: filepath.Dir(h.cfg.Workspace)},
		"kept by another":       {Prompt: "x", Session: far.ID},
		`no session "ses_none"`: {Prompt: "x", Session: "ses_none"},
	} {
		if res := h.call(CallTool, in); res.Status == act.OK || !strings.Contains(res.Text, want) {
			t.Errorf("want %q, the call came to %s %s", want, res.Status, res.Text)
		}
	}
	if n := len(h.stage.started()); n != 0 {
		t.Errorf("%d programs were started", n)
	}
}

func TestWhatARouteRefusesIsNeverGivenToAnother(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
		r := done(task, "", 10)
		r.Outcome, r.Reason = harness.Refused, "refusal"
		return r, nil
	})
	res := h.call(CallTool, callInput{Prompt: "x", Harness: "claude"})
	if res.Status != act.OK || !strings.Contains(res.Text, "claude/lab-1: refused") {
		t.Errorf("%+v", res)
	}
	if tasks := h.stage.started(); len(tasks) != 1 || tasks[0].CLI != harness.Claude {
		t.Errorf("%d programs were started", len(tasks))
	}
	var told completed
	if err := json.Unmarshal(h.events(KindCompleted)[0].Data, &told); err != nil || told.Status != "failed" || told.Outcome != "refused" {
		t.Errorf("told is %+v, %v", told, err)
	}
}

func TestAProgramThatIsNotLoggedInIsNotStarted(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	h.stage.login = child.LoginNo
	res := h.call(CallTool, callInput{Prompt: "x", Harness: "claude"})
	if res.Status != act.Failed || res.Class != fault.Unavailable || !strings.Contains(res.Text, "not logged in") {
		t.Errorf("%+v", res)
	}
	if x, _ := h.last(); x.Outcome != "failed" || x.Tries != 0 || len(h.stage.started()) != 0 {
		t.Errorf("%+v", x)
	}
	if spent, reserved, possible, unknown := h.spent(); spent+reserved+possible+unknown != 0 {
		t.Errorf("booked are %d, held %d, possible %d, unknown %d", spent, reserved, possible, unknown)
	}
}

func TestWhatACancelledProgramMayHaveCostIsHeld(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	began := make(chan struct{})
	h.stage.play(func(ctx context.Context, _ child.Task) (harness.Record, error) {
		close(began)
		<-ctx.Done()
		return harness.Record{Outcome: harness.Killed}, nil
	})
	h.call(CallTool, callInput{Prompt: "x", Background: true})
	<-began
	list, err := h.List(t.Context(), 1)
	if err == nil {
		err = h.Runs.Cancel(t.Context(), list[0].Run, "operator", "enough")
	}
	if err != nil {
		t.Fatal(err)
	}
	if x, _ := h.last(); x.Outcome != "cancelled" {
		t.Errorf("%+v", x)
	}
	if spent, reserved, possible, _ := h.spent(); spent != 0 || reserved != 0 || possible != 5_000_000 {
		t.Errorf("booked are %d, held %d, possible %d", spent, reserved, possible)
	}
	if n := len(h.events("told.woken")); n != 1 {
		t.Errorf("told %d times", n)
	}
}

func TestACostNobodyKnowsIsCounted(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
		r := done(task, "42", 0)
		r.Cost = harness.Cost{}
		return r, nil
	})
	if res := h.call(CodexTool, callInput{Prompt: "x"}); !strings.Contains(res.Text, "cost unknown") {
		t.Errorf("%+v", res)
	}
	if spent, reserved, possible, unknown := h.spent(); spent+reserved+possible != 0 || unknown != 1 {
		t.Errorf("booked are %d, held %d, possible %d, unknown %d", spent, reserved, possible, unknown)
	}
}

func TestADelegationOverTheBudgetIsNotBegun(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	err := h.DB.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return h.budget.SpendTx(ctx, tx, budget.Reserve{Run: "run_before", Agent: "main"}, 9_000_000, true)
	})
	if err != nil {
		t.Fatal(err)
	}
	h.call(CallTool, callInput{Prompt: "x", Harness: "claude"})
	if got := h.stage.started()[0].BudgetMicroUSD; got != 1_000_000 {
		t.Errorf("it may cost %d, and 1000000 is left", got)
	}
	err = h.DB.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return h.budget.SpendTx(ctx, tx, budget.Reserve{Run: "run_before", Agent: "main"}, 2_000_000, true)
	})
	if err != nil {
		t.Fatal(err)
	}
	if res := h.call(CallTool, callInput{Prompt: "x", Harness: "claude"}); res.Class != fault.Denied || !strings.Contains(res.Text, "day") {
		t.Errorf("%+v", res)
	}
}

func TestWhoMayNotGiveWorkIsRefused(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	h.mayUse(rule(policy.Allow, "harness:claude"), rule(policy.Allow, "fs.read:"+h.cfg.Workspace+"/**"))
	for name, in := range map[string]callInput{
		"another harness":   {Prompt: "x", Harness: "codex"},
		"another directory": {Prompt: "x", Harness: "claude", Dir: filepath.Dir(h.cfg.Workspace)},
		"writing":           {Prompt: "x", Harness: "claude", Write: true},
	} {
		if res := h.call(CallTool, in); res.Status != act.Refused || res.Class != fault.Denied {
			t.Errorf("%s: %s %s", name, res.Status, res.Text)
		}
	}
	if res := h.call(CallTool, callInput{Prompt: "x", Harness: "claude"}); res.Status != act.OK {
		t.Errorf("%+v", res)
	}
}

func TestWhatAProgramAsksIsDecidedLikeACall(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		h := open(t, d)
		repo(t, h.cfg.Workspace)
		h.mayUse(rule(policy.Allow, "harness:claude"), rule(policy.Ask, "harness:claude/command"), rule(policy.Allow, "harness:claude/edit"),
			rule(policy.Allow, "fs.write:"+h.cfg.Workspace+"/**"))
		answers := make(chan child.Answer, 3)
		h.stage.play(func(ctx context.Context, task child.Task) (harness.Record, error) {
			answers <- task.Permit(ctx, child.Ask{ID: "1", Kind: child.KindEdit, Tool: "Write", Paths: []string{"a.txt"}, Input: json.RawMessage(`{}`)})
			answers <- task.Permit(ctx, child.Ask{ID: "2", Kind: child.KindFetch, Tool: "WebFetch", Title: "https://x.io", Input: json.RawMessage(`{}`)})
			answers <- task.Permit(ctx, child.Ask{ID: "3", Kind: child.KindCommand, Tool: "Bash", Command: "make", Input: json.RawMessage(`{"command":"make"}`)})
			return done(task, "42", 10), nil
		})
		for _, decision := range []approval.Decision{approval.Approve, approval.Deny} {
			id := h.begin(CallTool, callInput{Prompt: "x", Harness: "claude", Write: true})
			if a := <-answers; !a.Allow {
				t.Errorf("an edit: %+v", a)
			}
			if a := <-answers; a.Allow || a.Why == "" {
				t.Errorf("what no rule allows: %+v", a)
			}
			q := h.question()
			if q.Subject != "harness:claude" || q.Summary != "claude wants to run make (Bash)" {
				t.Errorf("asked is %q for %s", q.Summary, q.Subject)
			}
			h.decide(q, decision)
			if a := <-answers; a.Allow != (decision == approval.Approve) {
				t.Errorf("after %s: %+v", decision, a)
			}
			if res := h.end(id); res.Status != act.OK {
				t.Errorf("%+v", res)
			}
		}
	})
}

func TestAQuestionOfAProgramThatDiedIsWithdrawn(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	repo(t, h.cfg.Workspace)
	h.mayUse(rule(policy.Ask, "harness"), rule(policy.Allow, "fs.write:"+h.cfg.Workspace+"/**"))
	got := make(chan child.Answer, 2)
	h.stage.play(func(ctx context.Context, task child.Task) (harness.Record, error) {
		got <- task.Permit(ctx, child.Ask{ID: "1", Kind: child.KindEdit, Tool: "Write", Paths: []string{"a.txt"}, Input: json.RawMessage(`{}`)})
		if ctx.Err() != nil {
			return harness.Record{Outcome: harness.Killed}, nil //nolint:nilerr // a program that was ended has a record
		}
		return done(task, "42", 10), nil
	})
	id := h.begin(CallTool, callInput{Prompt: "x", Harness: "claude", Write: true})
	h.decide(h.question(), approval.Approve) // that it may be given at all
	first := h.question()
	h.halt()
	if a := <-got; a.Allow {
		t.Error("a program that was ended got leave")
	}
	h.boot()
	second := h.question()
	if second.ID == first.ID {
		t.Error("the question of the program that died is still open")
	}
	if was, err := h.approvals.Get(t.Context(), first.ID); err != nil || was.State == approval.Pending {
		t.Errorf("the first question is %s, %v", was.State, err)
	}
	h.decide(second, approval.Approve)
	if a := <-got; !a.Allow {
		t.Errorf("%+v", a)
	}
	if res := h.end(id); res.Status != act.OK {
		t.Errorf("%+v", res)
	}
}

func TestToolsAreLentByATokenThatEndsWithTheProgram(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	var file string
	h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
		args := strings.Join(task.MCP.Args, " ")
		file = task.MCP.Args[len(task.MCP.Args)-1]
		token, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(args, "mcp serve --socket /run/agent.sock --token-file ") {
			t.Errorf("the server is %q, %v", args, err)
		}
		if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("the token is in a file of mode %v, %v", st.Mode(), err)
		}
		offers, err := h.jobs.Offers(t.Context(), string(token))
		if err != nil || len(offers) != 1 || offers[0].Name != CodexTool {
			t.Errorf("offered are %v, %v", offers, err)
		}
		for _, out := range []string{PermitTool, RunTool, CallTool} {
			ans, err := h.jobs.Call(t.Context(), jobRequest(string(token), out))
			if err == nil && ans.Result.Status == act.OK {
				t.Errorf("%s could be called by its token", out)
			}
		}
		return done(task, "42", 10), nil
	})
	if res := h.call(CallTool, callInput{Prompt: "x", Harness: "claude", Tools: []string{"codex.*"}}); res.Status != act.OK {
		t.Errorf("%+v", res)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the token is still there: %v", err)
	}
}

func TestTheOperatorsTaskIsTheOperators(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t))
	repo(t, h.cfg.Workspace)
	var allowed []bool
	h.stage.play(func(ctx context.Context, task child.Task) (harness.Record, error) {
		allowed = nil
		for _, kind := range kinds {
			ctx, cancel := context.WithTimeout(ctx, 0)
			if kind == child.KindEdit {
				cancel()
				ctx, cancel = context.WithCancel(t.Context())
			}
			a := task.Permit(ctx, child.Ask{ID: kind, Kind: kind, Tool: "T", Title: "t", Input: json.RawMessage(`{}`)})
			allowed = append(allowed, a.Allow)
			cancel()
		}
		return done(task, "42", 10), nil
	})
	start := func(allow string) {
		t.Helper()
		var got Started
		err := h.DB.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
			got, err = h.StartTx(ctx, tx, Order{Want: Want{Harness: "claude"}, Task: Task{
				Prompt: "x", Subject: Operator, Conversation: "conv_1", Tier: policy.Trusted, Label: label.Of(label.Operator, label.OperatorOnly), Write: true, Allow: allow, Background: true,
			}}, "")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if rec, err := h.Runs.Wait(t.Context(), got.Run); err != nil || rec.State != run.Completed {
			t.Fatalf("%s: %s, %v", rec.State, rec.Error, err)
		}
	}
	h.mayUse(rule(policy.Allow, "harness"), rule(policy.Allow, "fs.write")) // what the roof gives the operator's tasks
	if start(AllowEdits); !allowed[0] || allowed[1] {
		t.Errorf("with edits allowed: %v of %v", allowed, kinds)
	}
	if n := len(h.events("told.notice")); n != 1 {
		t.Errorf("the operator was told %d times", n)
	}
}
