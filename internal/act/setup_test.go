package act

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/blob"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program is the input of a test run: the calls it makes, in order. An input is a
// string here, because it may be anything but JSON.
type program struct {
	Calls    []planned `json:"calls"`
	Approved string    `json:"approved"` // an approval to make the first call by
}

type planned struct{ Step, Tool, Input string }

// bench is everything a call passes through, with real parts only.
type bench struct {
	t         testing.TB
	db        *db.DB
	vault     *vault.Vault
	log       *eventlog.Log
	audit     *audit.Audit
	tools     *tool.Registry
	approvals *approval.Approvals
	blobs     *blob.Store
	kinds     *run.Kinds
	act       *Act
	tune      func(*Authority) // changes what the calls are made with; nil: nothing
	*run.Engine

	mu      sync.Mutex
	results map[string]Result // by run/step
	calls   map[string]int    // by tool: how often its handler was called
}

func setup(t testing.TB, d *db.DB, tune ...func(*approval.Options)) *bench {
	t.Helper()
	v, err := vault.OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	b := &bench{t: t, db: d, vault: v, results: map[string]Result{}, calls: map[string]int{}, kinds: run.NewKinds()}
	b.log = eventlog.NewLog(d, v, quiet, eventlog.Options{})
	b.audit = audit.New(d, v, "test", quiet)
	if err := b.audit.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.blobs = blob.New(d, v)
	o := approval.Options{OnResolved: func(ctx context.Context, tx *db.Tx, a approval.Approval) error {
		return b.WakeTx(ctx, tx, a.Run, run.ForApproval, a.ID)
	}}
	for _, f := range tune {
		f(&o)
	}
	b.approvals = approval.New(d, v, b.log, o)
	b.newTools()
	if err := b.kinds.Add(run.Kind{Name: "calls", TellUnknown: true, Handle: b.handle}); err != nil {
		t.Fatal(err)
	}
	b.boot()
	t.Cleanup(func() {
		b.halt()
		if err := b.act.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		b.proved()
		if err := b.audit.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// newTools empties the registry, as a daemon of another version would.
func (b *bench) newTools() {
	var invoker *tool.Invoker
	b.tools, invoker = tool.NewRegistry(slog.New(slog.DiscardHandler))
	b.act = New(Deps{
		DB: b.db, Vault: b.vault, Log: b.log, Audit: b.audit, Tools: b.tools, Invoker: invoker, Approvals: b.approvals,
		Budget: budget.New(b.db, budget.Config{}), Blobs: b.blobs,
	})
}

// boot starts an engine, as a new process would.
func (b *bench) boot() {
	b.t.Helper()
	b.Engine = run.New(b.db, b.vault, b.log, b.kinds, run.Options{Poll: 20 * time.Millisecond})
	if err := b.Open(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) halt() {
	if err := b.Stop(context.Background()); err != nil {
		b.t.Error(err)
	}
}

// proved checks what law 9 says of everything that was done.
func (b *bench) proved() {
	b.t.Helper()
	ctx := context.Background()
	if _, err := b.Verify(ctx); err != nil {
		b.t.Error(err)
	}
	if _, err := audit.Verify(ctx, b.db, b.vault.Keys()); err != nil {
		b.t.Error(err)
	}
	if _, err := audit.VerifyRefs(ctx, b.db, b.refs(ctx)); err != nil {
		b.t.Error(err)
	}
}

func (b *bench) refs(ctx context.Context) iter.Seq2[audit.Ref, error] {
	return func(yield func(audit.Ref, error) bool) {
		err := b.StepAudits(ctx, func(_, _ string, ref run.AuditRef) error {
			if !yield(audit.Ref(ref), nil) {
				return errors.New("enough")
			}
			return nil
		})
		if err != nil {
			yield(audit.Ref{}, err)
		}
	}
}

// authority may use tool:free, must ask for tool:ask and secrets, and nothing else.
func (b *bench) authority() *Authority {
	auto, err := policy.NewAutonomy(policy.Assisted, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return &Authority{
		Subject: "agent:test", Agent: "test", Conversation: "conv_1", Tier: policy.Trusted, Autonomy: auto,
		Grants: policy.NewLayer("test", []policy.Rule{
			{Effect: policy.Allow, Scope: scope.Must("tool:free")}, {Effect: policy.Ask, Scope: scope.Must("tool:ask")},
			{Effect: policy.Ask, Scope: scope.Must("secret")},
		}),
	}
}

func (b *bench) handle(ctx context.Context, r *run.Run) ([]byte, error) {
	var p program
	if err := json.Unmarshal(r.Input(), &p); err != nil {
		return nil, err
	}
	for i, c := range p.Calls {
		c := Call{Step: c.Step, Tool: c.Tool, Input: json.RawMessage(c.Input), Authority: b.authority()}
		if b.tune != nil {
			b.tune(c.Authority)
		}
		var res Result
		var err error
		if p.Approved != "" && i == 0 {
			apr, e := b.approvals.Get(ctx, p.Approved)
			if e != nil {
				return nil, e
			}
			res, err = b.act.CallApproved(ctx, r, c, apr)
		} else {
			res, err = b.act.Call(ctx, r, c)
		}
		if err != nil {
			return nil, err
		}
		b.mu.Lock()
		b.results[r.ID()+"/"+c.Step] = res
		b.mu.Unlock()
	}
	return nil, nil
}

// define is a usable definition; its scope is the field "as" of the input.
func define(name string) tool.Definition {
	return tool.Definition{
		Name: name, Description: "for tests", Kind: tool.Effect, Timeout: time.Minute, MaxOutput: 1 << 20, Source: label.Own,
		Input: json.RawMessage(`{"type":"object","properties":{"as":{"type":"string"},"n":{"type":"integer"}},"required":["as"],"additionalProperties":false}`),
		Scopes: func(input json.RawMessage) ([]scope.Scope, error) {
			var in struct{ As string }
			if err := json.Unmarshal(input, &in); err != nil {
				return nil, err
			}
			s, err := scope.Parse("tool:" + in.As)
			return []scope.Scope{s}, err
		},
		Summary: func(input json.RawMessage) string { return name + " " + string(input) },
	}
}

// add makes a tool known; its calls are counted.
func (b *bench) add(d tool.Definition, h tool.Handler) {
	b.t.Helper()
	err := b.tools.Add(d, func(ctx context.Context, in tool.Invocation) (tool.Output, error) {
		b.mu.Lock()
		b.calls[d.Name]++
		b.mu.Unlock()
		return h(ctx, in)
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func text(s string) tool.Handler {
	return func(context.Context, tool.Invocation) (tool.Output, error) { return tool.Output{Text: s}, nil }
}

func (b *bench) called(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[name]
}

func to(step, name, input string) planned { return planned{step, name, input} }

func (b *bench) start(calls ...planned) string {
	b.t.Helper()
	return b.startWith(program{Calls: calls})
}

func (b *bench) startWith(p program) string {
	b.t.Helper()
	id, err := b.Start(b.t.Context(), run.Spec{Kind: "calls", Actor: "agent:test", Input: p})
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

// do makes calls in a run of their own and returns the results in order.
func (b *bench) do(calls ...planned) []Result {
	b.t.Helper()
	return b.end(b.start(calls...), calls...)
}

func (b *bench) end(id string, calls ...planned) []Result {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	rec, err := b.Wait(ctx, id)
	if err != nil || rec.State != run.Completed {
		b.t.Fatalf("run is %s: %s %s %v", rec.State, rec.ErrorClass, rec.Error, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []Result
	for _, c := range calls {
		out = append(out, b.results[id+"/"+c.Step])
	}
	return out
}

// asked waits until a run asks for an approval and returns it.
func (b *bench) asked(id string) approval.Approval {
	b.t.Helper()
	for range 2000 {
		list, err := b.approvals.List(b.t.Context(), approval.Filter{Run: id, State: approval.Pending})
		if err != nil {
			b.t.Fatal(err)
		}
		if rec, _, err := b.Get(b.t.Context(), id); err == nil && rec.State == run.Waiting && len(list) == 1 {
			return list[0]
		}
		tick(b.t)
	}
	b.t.Fatalf("run %s never asked", id)
	return approval.Approval{}
}

// tick passes a moment between two looks at a store that tells nobody.
func tick(t testing.TB) {
	t.Helper()
	timer := time.NewTimer(5 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}

func (b *bench) decide(a approval.Approval, d approval.Decision) {
	b.t.Helper()
	if _, err := b.approvals.Resolve(b.t.Context(), a.ID, approval.Reply{Decision: d, Note: "said so"}, "operator"); err != nil {
		b.t.Fatal(err)
	}
}

// entries returns the audit entries of a kind, for the whole store.
func (b *bench) entries(kind string) (out []audit.Entry) {
	b.t.Helper()
	err := b.db.Read(b.t.Context(), func(ctx context.Context, q db.Q) error {
		texts, err := db.All(ctx, q, db.Column[string], "SELECT entry FROM audit ORDER BY chain, seq LIMIT 1000")
		for _, text := range texts {
			var e struct {
				Kind, Subject, Tool, Outcome, Reason, Run, Step string
				Scopes                                          []string
				Count                                           int64
			}
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				return err
			}
			if e.Kind == kind {
				out = append(out, audit.Entry{Kind: e.Kind, Subject: e.Subject, Tool: e.Tool, Outcome: e.Outcome, Reason: e.Reason,
					Run: e.Run, Step: e.Step, Count: e.Count})
			}
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *bench) step(id, name string) *run.Step {
	b.t.Helper()
	_, steps, err := b.Get(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, s := range steps {
		if s.Name == name {
			return s
		}
	}
	b.t.Fatalf("run %s has no step %s", id, name)
	return nil
}

func (b *bench) events(kind string) int {
	b.t.Helper()
	evs, err := b.log.Read(b.t.Context(), 0, 1000, eventlog.Filter{Kinds: []string{kind}})
	if err != nil {
		b.t.Fatal(err)
	}
	return len(evs)
}

func expect(t testing.TB, r Result, s Status, in ...string) {
	t.Helper()
	if r.Status != s {
		t.Errorf("status %s, want %s: %s", r.Status, s, r.Text)
	}
	for _, part := range in {
		if !strings.Contains(r.Text, part) {
			t.Errorf("text %q does not say %q", r.Text, part)
		}
	}
}
