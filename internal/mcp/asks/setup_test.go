package asks

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/blob"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/job"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/mcp/client"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a run that calls a tool of a server, mcp.py.greet, which asks what a test says.
type bench struct {
	t         testing.TB
	db        *db.DB
	vault     *vault.Vault
	log       *eventlog.Log
	approvals *approval.Approvals
	tools     *tool.Registry
	act       *act.Act
	runs      *run.Engine
	jobs      *job.Jobs
	hide      redact.Redactor
	*Service

	mu       sync.Mutex
	auth     *act.Authority
	question client.Asked
	answers  []client.Answer
	errs     []error
	asked    []agent.Question
	said     model.Response
	cost     int64
}

func setup(t testing.TB, d *db.DB) *bench {
	t.Helper()
	v, err := vault.OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	b := &bench{t: t, db: d, vault: v, said: model.Response{Text: "seven", Model: "a-model", Stop: model.StopEnd}, cost: 12}
	b.log = eventlog.NewLog(d, v, quiet, eventlog.Options{})
	chain := audit.New(d, v, "test", quiet)
	if err := chain.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.approvals = approval.New(d, v, b.log, approval.Options{Hide: &b.hide, OnResolved: func(ctx context.Context, tx *db.Tx, a approval.Approval) error {
		if ours, err := b.jobs.DecidedTx(ctx, tx, a); ours || err != nil {
			return err
		}
		return b.runs.WakeTx(ctx, tx, a.Run, run.ForApproval, a.ID)
	}})
	var invoker *tool.Invoker
	b.tools, invoker = tool.NewRegistry(quiet)
	spend := budget.New(d, budget.Config{})
	b.act = act.New(act.Deps{
		DB: d, Vault: v, Log: b.log, Audit: chain, Tools: b.tools, Invoker: invoker, Approvals: b.approvals, Budget: spend, Blobs: blob.New(d, v), Hide: &b.hide,
	})
	b.may("mcp.call:py/*")
	kinds := run.NewKinds()
	b.runs = run.New(d, v, b.log, kinds, run.Options{Poll: 20 * time.Millisecond})
	b.jobs = job.New(job.Deps{
		DB: d, Vault: v, Log: b.log, Runs: b.runs, Act: b.act, Tools: b.tools, Approvals: b.approvals, Budget: spend, Hide: &b.hide,
		Parent: func(context.Context, string, string, policy.Tier) (*act.Authority, error) { return b.authority(), nil },
	})
	b.Service = New(&Deps{Runs: b.runs, Jobs: b.jobs, Budget: spend, Models: b, Hide: &b.hide, Logger: quiet})
	if err := errors.Join(b.Register(b.tools), b.tools.Add(greeting(), b.greet)); err != nil {
		t.Fatal(err)
	}
	for _, k := range []run.Kind{b.jobs.Kind(), b.Kind(), {Name: "turn", TellUnknown: true, Handle: b.turn}} {
		if err := kinds.Add(k); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.runs.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.runs.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if _, err := b.runs.Verify(context.Background()); err != nil {
			t.Error(err)
		}
		if err := errors.Join(b.act.Stop(context.Background()), chain.Stop(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return b
}

// may sets what the agent may do: what is listed, and nothing else.
func (b *bench) may(allow ...string) {
	auto, err := policy.NewAutonomy(policy.Assisted, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	var rules []policy.Rule
	for _, text := range allow {
		r := policy.Rule{Effect: policy.Allow}
		if text[0] == '!' {
			r.Effect, text = policy.Deny, text[1:]
		}
		r.Scope = scope.Must(text)
		rules = append(rules, r)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.auth = &act.Authority{
		Subject: "agent:main", Agent: "main", Conversation: "conv_1", Readers: label.OperatorOnly, Tier: policy.Trusted, Autonomy: auto,
		Grants: policy.NewLayer("grants of agent:main", rules),
	}
}

func (b *bench) authority() *act.Authority {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.auth
}

func greeting() tool.Definition {
	return tool.Definition{
		Name: "mcp.py.greet", Description: "for tests", Kind: tool.Effect, ReadOnly: true, Repeat: tool.Repeatable, Timeout: time.Minute, Asks: time.Hour, MaxOutput: 1 << 20,
		Source: label.Untrusted("mcp:py"), Input: json.RawMessage(`{"type":"object"}`),
		Scopes: func(json.RawMessage) ([]scope.Scope, error) {
			return []scope.Scope{scope.Must("mcp.call:py/greet")}, nil
		},
		Summary: func(json.RawMessage) string { return "greet" },
	}
}

// greet asks, as a server would within its call.
func (b *bench) greet(ctx context.Context, in tool.Invocation) (tool.Output, error) {
	b.mu.Lock()
	q := b.question
	b.mu.Unlock()
	q.Server, q.Tool, q.Call = "py", "greet", in
	asked, done := in.Asking(ctx)
	defer done()
	a, err := b.Ask(asked, q)
	b.mu.Lock()
	b.answers, b.errs = append(b.answers, a), append(b.errs, err)
	b.mu.Unlock()
	return tool.Output{Text: "greeted"}, nil
}

func (b *bench) turn(ctx context.Context, r *run.Run) ([]byte, error) {
	_, err := b.act.Call(ctx, r, act.Call{Step: "tool/0.0", Tool: "mcp.py.greet", Input: json.RawMessage(`{}`), Authority: b.authority()})
	return nil, err
}

// Respond plays a model.
func (b *bench) Respond(ctx context.Context, r *run.Run, q agent.Question) (model.Response, error) {
	b.mu.Lock()
	b.asked = append(b.asked, q)
	said, cost := b.said, b.cost
	b.mu.Unlock()
	_, err := r.Do(ctx, run.StepSpec{Name: q.Step, Kind: "model", Policy: run.Policy{Kind: run.Noted}}, func(context.Context) run.Outcome {
		return run.Outcome{State: run.Done, Cost: cost, CostKnown: true}
	})
	return said, err
}

// begin starts a run whose call asks q.
func (b *bench) begin(q client.Asked) string {
	b.t.Helper()
	b.mu.Lock()
	b.question = q
	b.mu.Unlock()
	id, err := b.runs.Start(b.t.Context(), run.Spec{Kind: "turn", Name: "main", Key: "conv_1", Actor: "agent:main"})
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

// end waits for the run and returns what was answered.
func (b *bench) end(id string) client.Answer {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	rec, err := b.runs.Wait(ctx, id)
	if err != nil {
		b.t.Fatalf("the run is %s: %v", rec.State, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.answers) == 0 || b.errs[len(b.errs)-1] != nil {
		b.t.Fatalf("%+v, %v", b.answers, b.errs)
	}
	return b.answers[len(b.answers)-1]
}

const patience = 30 * time.Second

// open waits for the question.
func (b *bench) open() approval.Approval {
	b.t.Helper()
	deadline := time.After(patience)
	for {
		list, err := b.approvals.List(b.t.Context(), approval.Filter{State: approval.Pending})
		if err != nil {
			b.t.Fatal(err)
		}
		if len(list) == 1 {
			return list[0]
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			b.t.Fatalf("%d questions", len(list))
		}
	}
}

// said is a call of mcp.elicit with what was filled in.
func said(name string) tool.Invocation {
	raw, err := json.Marshal(map[string]string{"name": name})
	if err != nil {
		panic(err)
	}
	return tool.Invocation{Said: raw}
}

// judged is a policy that says one thing.
func judged(e policy.Effect) func(scope.Scope) policy.Decision {
	return func(scope.Scope) policy.Decision {
		return policy.Decision{Effect: e, Reasons: []policy.Reason{{Effect: e, Code: policy.CodeRule}}}
	}
}
