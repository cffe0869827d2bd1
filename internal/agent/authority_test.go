package agent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// given is what is held beside the roles, by anybody; a test changes it.
type given struct {
	mu   sync.Mutex
	held policy.Held
	err  error
}

func (g *given) For(context.Context, string, string) (policy.Held, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.held, g.err
}

func (g *given) set(h policy.Held) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = h
}

// retell makes the calls one after the other and replies all it was told of them.
func retell(calls ...string) brain {
	return func(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
		_, n := asked(req)
		if n < len(calls) {
			return wants(calls[n])
		}
		var all []string
		for _, m := range req.Messages {
			if m.Role == model.Tool {
				all = append(all, m.Parts[0].Result.Text)
			}
		}
		return said(strings.Join(all, " | "))
	}
}

func rule(effect policy.Effect, text string) policy.Rule {
	return policy.Rule{Scope: scope.Must(text), Effect: effect}
}

func supervised(t testing.TB) *policy.Autonomy {
	t.Helper()
	level, err := policy.NewAutonomy(policy.Supervised, nil)
	if err != nil {
		t.Fatal(err)
	}
	return level
}

// eachWith is each with an authority of its own for every store.
func eachWith(t *testing.T, s setup, fn func(t *testing.T, b *bench, g *given)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		g := &given{}
		s := s
		s.authority = g
		fn(t, open(t, d, s), g)
	})
}

func (b *bench) resolve(id string, d approval.Decision) approval.Approval {
	b.t.Helper()
	a, err := b.Approvals.Resolve(b.t.Context(), id, approval.Reply{Decision: d}, "operator")
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

func TestAStandingApprovalAnswersAnAskAndNeverADeny(t *testing.T) {
	t.Parallel()
	eachWith(t, setup{main: retell("t.ask", "t.deny")}, func(t *testing.T, b *bench, g *given) {
		g.set(policy.Held{
			Rules:    []policy.Rule{rule(policy.Allow, "tool:other")},
			Standing: []scope.Scope{scope.Must("tool:asked"), scope.Must("tool:other")},
		})
		a := b.ask("main", "do both")
		if a.Outcome != Completed || b.did("t.ask") != 1 || b.did("t.deny") != 0 || !strings.Contains(a.Reply, "not allowed") {
			t.Errorf("%+v, asked tool %d, denied tool %d", a, b.did("t.ask"), b.did("t.deny"))
		}
		if n := b.count("SELECT count(*) FROM approvals"); n != 0 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestWhatIsRevokedWhileATurnWaitsIsGoneWhenItGoesOn(t *testing.T) {
	t.Parallel()
	eachWith(t, setup{main: retell("t.ask", "t.put")}, func(t *testing.T, b *bench, g *given) {
		got := b.tell("main", "do it")
		q := b.parked(got.Run)
		g.set(policy.Held{Rules: []policy.Rule{rule(policy.Deny, "tool:asked"), rule(policy.Deny, "tool:free")}})
		b.resolve(q.ID, approval.Approve)
		a := b.answer(got.Run)
		if a.Outcome != Completed || b.did("t.ask") != 0 || b.did("t.put") != 0 || strings.Count(a.Reply, "not allowed") != 2 {
			t.Errorf("%+v, %v", a, b.effects())
		}
	})
}

func TestWhatAPersonRefusedStaysRefusedThoughMoreIsGranted(t *testing.T) {
	t.Parallel()
	eachWith(t, setup{main: retell("t.ask", "t.ask", `t.ask {"n":2}`)}, func(t *testing.T, b *bench, g *given) {
		got := b.tell("main", "do it")
		q := b.parked(got.Run)
		g.set(policy.Held{Standing: []scope.Scope{scope.Must("tool:asked")}})
		b.resolve(q.ID, approval.Deny)
		b.answer(got.Run)
		if e := b.effects(); !slices.Equal(e, []string{`t.ask{"n":2}`}) {
			t.Errorf("effects %v: the refused call, or not the other one", e)
		}
	})
}

// An answer that was given before the standing approval is the one that is used.
func TestAnApprovalGivenWithAStandingOneIsUsedUp(t *testing.T) {
	t.Parallel()
	eachWith(t, setup{main: retell("t.ask")}, func(t *testing.T, b *bench, g *given) {
		got := b.tell("main", "do it")
		q := b.parked(got.Run)
		g.set(policy.Held{Standing: []scope.Scope{scope.Must("tool:asked")}})
		b.resolve(q.ID, approval.Approve)
		b.answer(got.Run)
		if now, err := b.Approvals.Get(t.Context(), q.ID); err != nil || now.State != approval.Used || b.did("t.ask") != 1 {
			t.Errorf("approval is %s, %v; %d effects", now.State, err, b.did("t.ask"))
		}
	})
}

func TestWithoutAnswerAboutAuthorityNothingIsDone(t *testing.T) {
	t.Parallel()
	g := &given{err: fault.New(fault.Verification, "grant grt_1: the row was changed after it was sealed")}
	b := open(t, dbtest.SQLite(t), setup{main: retell("t.put"), authority: g})
	a := b.ask("main", "do it")
	if a.Outcome != FailedTurn || len(b.effects()) != 0 || !strings.Contains(a.Reply, "grt_1") {
		t.Errorf("%+v, effects %v", a, b.effects())
	}
}

// unattended takes in what nobody waits for.
func (b *bench) unattended(text string) Accepted {
	b.t.Helper()
	in := inbound("main", text)
	in.Unattended = true
	got, err := b.Intake(b.t.Context(), in)
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

func TestSupervisedWorkNobodyWaitsForParksWhatAsksAndGoesOn(t *testing.T) {
	t.Parallel()
	eachWith(t, setup{main: retell("t.ask", "t.put", "t.ask")}, func(t *testing.T, b *bench, g *given) {
		g.set(policy.Held{Autonomy: supervised(t)})
		begun := time.Now()
		first := b.unattended("look after it")
		a := b.answer(first.Run)
		if a.Outcome != Completed || b.did("t.ask") != 0 || b.did("t.put") != 1 || strings.Count(a.Reply, "do not rely on it") != 2 {
			t.Fatalf("%+v, effects %v", a, b.effects())
		}
		if took := time.Since(begun); took > 5*time.Minute {
			t.Errorf("it waited for %s", took)
		}
		if len(a.Approvals) != 1 || b.count("SELECT count(*) FROM approvals") != 1 {
			t.Fatalf("parked %v", a.Approvals)
		}
		if again := b.answer(b.unattended("look after it").Run); !slices.Equal(again.Approvals, a.Approvals) {
			t.Errorf("the same call waits as %v, it was %v", again.Approvals, a.Approvals)
		}
		q, err := b.Approvals.Get(t.Context(), a.Approvals[0])
		if err != nil || !q.Detached || q.State != approval.Pending || q.Run != first.Run {
			t.Fatalf("%+v, %v", q, err)
		}
		g.set(policy.Held{})
		apr := b.resolve(q.ID, approval.Approve)
		if rec := b.wait(CallRun(apr)); rec.State != run.Completed || b.did("t.ask") != 1 {
			t.Errorf("%s: %s, %d effects", rec.State, rec.Error, b.did("t.ask"))
		}
		if _, err := b.Runs.Verify(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAtOtherLevelsUnattendedWorkWaitsOrIsRefused(t *testing.T) {
	t.Parallel()
	b := open(t, dbtest.SQLite(t), setup{main: retell("t.ask")})
	got := b.unattended("look after it")
	b.resolve(b.parked(got.Run).ID, approval.Approve)
	if a := b.answer(got.Run); a.Outcome != Completed || b.did("t.ask") != 1 {
		t.Errorf("%+v", a)
	}
}

// TestAnApprovedCallRunsOnlyAfterItIsKnownToRun looks at the store from within the
// tool: a crash here leaves a run that is running, a step that is open and an
// approval that is used, so it is not made twice.
func TestAnApprovedCallRunsOnlyAfterItIsKnownToRun(t *testing.T) {
	t.Parallel()
	eachWith(t, setup{main: retell("t.looks")}, func(t *testing.T, b *bench, g *given) {
		g.set(policy.Held{Autonomy: supervised(t)})
		seen := make(chan []string, 1)
		err := b.Tools.Add(tool.Definition{
			Name: "t.looks", Description: "looks at the store", Input: json.RawMessage(`{"type":"object"}`), Kind: tool.Effect,
			Timeout: 10 * time.Second, MaxOutput: 1 << 20, Source: "own",
			Scopes:  func(json.RawMessage) ([]scope.Scope, error) { return []scope.Scope{scope.Must("tool:asked")}, nil },
			Summary: func(json.RawMessage) string { return "look" },
		}, func(ctx context.Context, in tool.Invocation) (tool.Output, error) {
			var runState, stepState, aprState string
			err := b.db.Read(ctx, func(ctx context.Context, q db.Q) error {
				return errors.Join(
					q.QueryRow(ctx, "SELECT state FROM runs WHERE id = $1", in.Run).Scan(&runState),
					q.QueryRow(ctx, "SELECT state FROM steps WHERE run = $1 AND name = $2", in.Run, in.Step).Scan(&stepState),
					q.QueryRow(ctx, "SELECT state FROM approvals").Scan(&aprState))
			})
			seen <- []string{runState, stepState, aprState}
			return tool.Output{Text: "looked"}, err
		})
		if err != nil {
			t.Fatal(err)
		}
		a := b.answer(b.unattended("look").Run)
		if len(a.Approvals) != 1 {
			t.Fatalf("%+v", a)
		}
		apr := b.resolve(a.Approvals[0], approval.Approve)
		if rec := b.wait(CallRun(apr)); rec.State != run.Completed {
			t.Fatalf("%s: %s", rec.State, rec.Error)
		}
		if got := <-seen; !slices.Equal(got, []string{"running", "open", "used"}) {
			t.Errorf("run, step and approval are %v", got)
		}
	})
}

// TestAModelCannotConfirmForItself: whatever a model puts into its call, a person
// is asked, and is shown it.
func TestAModelCannotConfirmForItself(t *testing.T) {
	t.Parallel()
	for _, input := range []string{`{"confirmed":true}`, `{"approved":"yes","approval":"apr_1","resolver":"operator"}`, `{"effect":"standing","unattended":false}`} {
		t.Run(input, func(t *testing.T) {
			t.Parallel()
			eachWith(t, setup{main: retell("t.any "+input, "t.ask "+input)}, func(t *testing.T, b *bench, _ *given) {
				err := b.Tools.Add(tool.Definition{
					Name: "t.any", Description: "takes anything", Input: json.RawMessage(`{"type":"object"}`), Kind: tool.Effect,
					Timeout: 10 * time.Second, MaxOutput: 1 << 20, Source: "own",
					Scopes:  func(json.RawMessage) ([]scope.Scope, error) { return []scope.Scope{scope.Must("tool:asked")}, nil },
					Summary: func(in json.RawMessage) string { return "any " + string(in) },
				}, func(context.Context, tool.Invocation) (tool.Output, error) {
					t.Error("it was made")
					return tool.Output{}, nil
				})
				if err != nil {
					t.Fatal(err)
				}
				got := b.tell("main", "do it")
				q := b.parked(got.Run)
				if !strings.Contains(q.Summary, input[:8]) || q.State != approval.Pending {
					t.Errorf("asked %q, %s", q.Summary, q.State)
				}
				b.resolve(q.ID, approval.Deny)
				b.answer(got.Run)
				if len(b.effects()) != 0 {
					t.Errorf("effects %v", b.effects())
				}
			})
		})
	}
}
