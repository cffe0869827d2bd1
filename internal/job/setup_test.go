package job

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/act"
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

// bench is everything a job's call passes through, with real parts only.
type bench struct {
	t         testing.TB
	db        *db.DB
	vault     *vault.Vault
	log       *eventlog.Log
	chain     *audit.Audit
	kinds     *run.Kinds
	approvals *approval.Approvals
	act       *act.Act
	tools     *tool.Registry
	*Jobs

	mu     sync.Mutex
	parent *act.Authority // what the parent may do now
	calls  map[string]int // by tool
	hosts  map[string]*host
}

// host is a run that works until it is let go, as one with a process does.
type host struct {
	run    chan *run.Run
	let    chan struct{}
	letOne sync.Once
}

func setup(t testing.TB, d *db.DB, tune ...func(*approval.Options)) *bench {
	t.Helper()
	v, err := vault.OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	b := &bench{t: t, db: d, vault: v, kinds: run.NewKinds(), calls: map[string]int{}, hosts: map[string]*host{}}
	b.log = eventlog.NewLog(d, v, quiet, eventlog.Options{})
	chain := audit.New(d, v, "test", quiet)
	b.chain = chain
	if err := chain.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := approval.Options{OnApproving: func(ctx context.Context, tx *db.Tx, a approval.Approval) error {
		return b.ApprovingTx(ctx, tx, a)
	}, OnResolved: func(ctx context.Context, tx *db.Tx, a approval.Approval) error {
		if ours, err := b.DecidedTx(ctx, tx, a); ours || err != nil {
			return err
		}
		return b.Runs.WakeTx(ctx, tx, a.Run, run.ForApproval, a.ID)
	}}
	for _, f := range tune {
		f(&o)
	}
	b.approvals = approval.New(d, v, b.log, o)
	var invoker *tool.Invoker
	b.tools, invoker = tool.NewRegistry(quiet)
	spend := budget.New(d, budget.Config{})
	b.act = act.New(act.Deps{
		DB: d, Vault: v, Log: b.log, Audit: chain, Tools: b.tools, Invoker: invoker, Approvals: b.approvals, Budget: spend, Blobs: blob.New(d, v),
	})
	b.parent = authority(t)
	b.addTools()
	b.Jobs = New(Deps{
		DB: d, Vault: v, Log: b.log, Act: b.act, Tools: b.tools, Approvals: b.approvals, Budget: spend,
		Parent: func(context.Context, string, string, policy.Tier) (*act.Authority, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.parent, nil
		},
	})
	for _, k := range []run.Kind{b.Kind(), {Name: "host", Handle: b.host}} {
		if err := b.kinds.Add(k); err != nil {
			t.Fatal(err)
		}
	}
	b.boot()
	t.Cleanup(func() {
		b.halt()
		if _, err := b.Runs.Verify(context.Background()); err != nil {
			t.Error(err)
		}
		if err := b.act.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if err := chain.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// boot starts an engine, as a new process would.
func (b *bench) boot() {
	b.t.Helper()
	b.Runs = run.New(b.db, b.vault, b.log, b.kinds, run.Options{Poll: 20 * time.Millisecond, Grace: 50 * time.Millisecond})
	if err := b.Runs.Open(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) halt() {
	if err := b.Runs.Stop(context.Background()); err != nil {
		b.t.Error(err)
	}
}

func (b *bench) hostOf(name string) *host {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hosts[name] == nil {
		b.hosts[name] = &host{run: make(chan *run.Run, 8), let: make(chan struct{})}
	}
	return b.hosts[name]
}

func (b *bench) host(ctx context.Context, r *run.Run) ([]byte, error) {
	h := b.hostOf(r.Record().Name)
	h.run <- r
	select {
	case <-h.let:
		return nil, nil
	case <-ctx.Done():
	}
	return nil, context.Cause(ctx)
}

// work starts a run that works until it is let go.
func (b *bench) work(name string) *run.Run {
	b.t.Helper()
	_, err := b.Runs.Start(b.t.Context(), run.Spec{Kind: "host", Name: name, Key: "conv_" + name, Actor: "agent:main"})
	if err != nil {
		b.t.Fatal(err)
	}
	return <-b.hostOf(name).run
}

func (b *bench) let(r *run.Run) {
	b.t.Helper()
	h := b.hostOf(r.Record().Name)
	h.letOne.Do(func() { close(h.let) })
	if _, err := b.Runs.Wait(b.t.Context(), r.ID()); err != nil {
		b.t.Fatal(err)
	}
}

// issue makes a job that has all its parent has.
func (b *bench) issue(r *run.Run, tune ...func(*Spec)) (Job, string) {
	b.t.Helper()
	s := Spec{Subject: "harness:test", Parent: b.parent, Label: label.Of(label.Operator, label.OperatorOnly)}
	for _, f := range tune {
		f(&s)
	}
	job, token, err := b.Issue(b.t.Context(), r.ID(), s)
	if err != nil {
		b.t.Fatal(err)
	}
	return job, token
}

func (b *bench) called(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[name]
}

func (b *bench) parentMay(change func(*act.Authority)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := *b.parent
	change(&next)
	b.parent = &next
}

func rule(effect policy.Effect, text string) policy.Rule {
	return policy.Rule{Effect: effect, Scope: scope.Must(text)}
}

// authority is that of a parent that may take notes, but for the secret ones, has
// to ask before it posts, and reads the web.
func authority(t testing.TB) *act.Authority {
	t.Helper()
	auto, err := policy.NewAutonomy(policy.Assisted, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &act.Authority{
		Subject: "agent:main", Agent: "main", Conversation: "conv_1", Readers: label.OperatorOnly, Tier: policy.Trusted, Autonomy: auto,
		Standing: []scope.Scope{scope.Must("tool:post.public")},
		Grants: policy.NewLayer("grants of agent:main", []policy.Rule{
			rule(policy.Allow, "tool:note.*"), rule(policy.Deny, "tool:note.secret"), rule(policy.Ask, "tool:post.*"), rule(policy.Allow, "tool:page"),
		}),
	}
}

// addTools adds note (an effect), post (asks) and page (what others wrote). The
// input's "as" is the part of the scope after the name of the tool.
func (b *bench) addTools() {
	b.t.Helper()
	add := func(name string, change func(*tool.Definition)) {
		d := tool.Definition{
			Name: name, Description: "for tests", Kind: tool.Effect, Timeout: time.Minute, MaxOutput: 1 << 20, Source: label.Own,
			Input: json.RawMessage(`{"type":"object","properties":{"as":{"type":"string"}},"required":["as"],"additionalProperties":false}`),
			Scopes: func(input json.RawMessage) ([]scope.Scope, error) {
				var in struct{ As string }
				if err := json.Unmarshal(input, &in); err != nil || in.As == "" {
					panic("an input that does not fit the schema") // as a tool may
				}
				s, err := scope.Parse("tool:" + name + "." + in.As)
				return []scope.Scope{s}, err
			},
			Summary: func(input json.RawMessage) string { return name + " " + string(input) },
		}
		change(&d)
		err := b.tools.Add(d, func(context.Context, tool.Invocation) (tool.Output, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.calls[name]++
			return tool.Output{Text: name + " done"}, nil
		})
		if err != nil {
			b.t.Fatal(err)
		}
	}
	add("note", func(*tool.Definition) {})
	add("post", func(*tool.Definition) {})
	add("page", func(d *tool.Definition) {
		d.ReadOnly, d.Repeat, d.Source = true, tool.Repeatable, label.Untrusted("web:example.com")
		d.Input = json.RawMessage(`{"type":"object","additionalProperties":false}`)
		d.Scopes = func(json.RawMessage) ([]scope.Scope, error) { return []scope.Scope{scope.Must("tool:page")}, nil }
	})
}

func (b *bench) call(token, name, as, key string) (Answer, error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	input := json.RawMessage(`{"as":"` + as + `"}`)
	if as == "" {
		input = nil
	}
	return b.Call(ctx, Request{Token: token, Tool: name, Input: input, Key: key})
}

// got makes a call and expects it to end like this.
func (b *bench) got(want act.Status, token, name, as, key string) act.Result {
	b.t.Helper()
	ans, err := b.call(token, name, as, key)
	if err != nil {
		b.t.Fatal(err)
	}
	if ans.Result.Status != want {
		b.t.Fatalf("%s %s is %s, want %s: %s", name, as, ans.Result.Status, want, ans.Result.Text)
	}
	return ans.Result
}
