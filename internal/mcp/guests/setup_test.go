package guests

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
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
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is everything a client's call passes through, with real parts only; what was
// granted is a map.
type bench struct {
	t         testing.TB
	db        *db.DB
	vault     *vault.Vault
	log       *eventlog.Log
	chain     *audit.Audit
	approvals *approval.Approvals
	act       *act.Act
	tools     *tool.Registry
	spend     *budget.Budget
	*Clients

	mu      sync.Mutex
	granted map[string]policy.Held
	calls   map[string]int // by tool
	gate    chan struct{}  // the tool slow waits for it
}

func each(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { f(t, setup(t, d)) })
}

func setup(t testing.TB, d *db.DB, tune ...func(*approval.Options)) *bench {
	t.Helper()
	v, err := vault.OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	b := &bench{t: t, db: d, vault: v, granted: map[string]policy.Held{}, calls: map[string]int{}, gate: make(chan struct{})}
	b.log = eventlog.NewLog(d, v, quiet, eventlog.Options{})
	b.chain = audit.New(d, v, "test", quiet)
	if err := b.chain.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := approval.Options{OnResolved: func(ctx context.Context, tx *db.Tx, a approval.Approval) error {
		return b.Runs.WakeTx(ctx, tx, a.Run, run.ForApproval, a.ID)
	}}
	for _, f := range tune {
		f(&o)
	}
	b.approvals = approval.New(d, v, b.log, o)
	var invoker *tool.Invoker
	b.tools, invoker = tool.NewRegistry(quiet)
	b.spend = budget.New(d, budget.Config{})
	b.act = act.New(act.Deps{
		DB: d, Vault: v, Log: b.log, Audit: b.chain, Tools: b.tools, Invoker: invoker, Approvals: b.approvals, Budget: b.spend, Blobs: blob.New(d, v),
	})
	b.addTools()
	b.boot()
	t.Cleanup(func() {
		b.halt()
		if _, err := b.Runs.Verify(context.Background()); err != nil {
			t.Error(err)
		}
		if err := b.act.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if err := b.chain.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// boot begins as a new process would.
func (b *bench) boot() {
	b.t.Helper()
	usual, err := policy.NewAutonomy(policy.Assisted, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	c := New(Deps{
		DB: b.db, Vault: b.vault, Log: b.log, Audit: b.chain, Act: b.act, Tools: b.tools, Approvals: b.approvals, Budget: b.spend, Granted: b, Usual: usual,
	})
	kinds := run.NewKinds()
	if err := kinds.Add(c.Kind()); err != nil {
		b.t.Fatal(err)
	}
	c.Runs = run.New(b.db, b.vault, b.log, kinds, run.Options{Poll: 20 * time.Millisecond, Grace: 50 * time.Millisecond})
	b.Clients = c
	if err := c.Runs.Open(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) halt() {
	if err := b.Runs.Stop(context.Background()); err != nil {
		b.t.Error(err)
	}
}

// For implements Granted.
func (b *bench) For(_ context.Context, subject, _ string) (policy.Held, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.granted[subject], nil
}

// may makes the rules of a client; each is an effect and a scope.
func (b *bench) may(name string, rules ...string) {
	b.t.Helper()
	var h policy.Held
	for _, r := range rules {
		effect, text, _ := strings.Cut(r, " ")
		e := map[string]policy.Effect{"allow": policy.Allow, "ask": policy.Ask, "deny": policy.Deny}[effect]
		h.Rules = append(h.Rules, policy.Rule{Effect: e, Scope: scope.Must(text)})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.granted[Prefix+name] = h
}

// add makes a client that may do something and returns its token.
func (b *bench) add(name string, rules ...string) string {
	b.t.Helper()
	_, token, err := b.Add(b.t.Context(), name, "operator")
	if err != nil {
		b.t.Fatal(err)
	}
	b.may(name, rules...)
	return token
}

// addTools adds note (needs memory.write:AS and tells nobody), look (read-only), post
// (tells anybody), secretly (for what works by itself), slow (waits) and shell (a scope no
// client can hold).
func (b *bench) addTools() {
	b.t.Helper()
	add := func(name, needs string, change func(*tool.Definition)) {
		d := tool.Definition{
			Name: name, Description: "for tests", Kind: tool.Effect, Timeout: time.Minute, MaxOutput: 1 << 20, Source: label.Own,
			Input: json.RawMessage(`{"type":"object","properties":{"as":{"type":"string"}},"required":["as"],"additionalProperties":false}`),
			Scopes: func(input json.RawMessage) ([]scope.Scope, error) {
				var in struct{ As string }
				if err := json.Unmarshal(input, &in); err != nil || in.As == "" {
					panic("an input that does not fit the schema") // as a tool may
				}
				s, err := scope.Parse(strings.ReplaceAll(needs, "AS", in.As))
				return []scope.Scope{s}, err
			},
			Summary:     func(input json.RawMessage) string { return name + " " + string(input) },
			Destination: func(json.RawMessage) tool.Destination { return tool.Destination{Nobody: true} },
		}
		change(&d)
		err := b.tools.Add(d, func(ctx context.Context, _ tool.Invocation) (tool.Output, error) {
			b.mu.Lock()
			b.calls[name]++
			b.mu.Unlock()
			if name == "slow" {
				select {
				case <-b.gate:
				case <-ctx.Done():
				}
			}
			return tool.Output{Text: name + " done"}, nil
		})
		if err != nil {
			b.t.Fatal(err)
		}
	}
	add("note", "memory.write:AS", func(*tool.Definition) {})
	add("look", "memory.read:AS", func(d *tool.Definition) { d.ReadOnly, d.Repeat = true, tool.Repeatable })
	add("post", "net.fetch:https://AS.example/", func(d *tool.Definition) { d.Destination = nil })
	add("own.secretly", "memory.read:AS", func(d *tool.Definition) { d.Within = true })
	add("own.lent", "memory.read:AS", func(d *tool.Definition) {
		d.Lent, d.Kind, d.Timeout = true, tool.Local, 0
		d.Timeout = time.Minute
	})
	add("own.only", "memory.read:AS", func(d *tool.Definition) { d.Only = "agent:main" })
	add("slow", "memory.write:AS", func(*tool.Definition) {})
	add("shell", "shell.exec:/bin/AS", func(*tool.Definition) {})
}

func (b *bench) called(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[name]
}

func (b *bench) call(client, name, as, key string) (wire.JobCallResult, error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	return b.Call(ctx, Request{Client: client, Tool: name, Input: json.RawMessage(`{"as":"` + as + `"}`), Key: key})
}

// got makes a call and expects it to end like this.
func (b *bench) got(want, client, name, as, key string) wire.JobCallResult {
	b.t.Helper()
	res, err := b.call(client, name, as, key)
	if err != nil {
		b.t.Fatal(err)
	}
	if res.Status != want {
		b.t.Fatalf("%s %s is %s, want %s: %s", name, as, res.Status, want, res.Text)
	}
	return res
}
