package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to come.
const patience = 30 * time.Second

// brain is a model in the test: it answers a request.
type brain func(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error)

func (brain) Name() string { return "brain" }

func (b brain) Generate(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error) {
	resp, err := b(ctx, req, sink)
	resp.Provider, resp.Model = "brain", "brain-1"
	return resp, err
}

// said answers with a text.
func said(text string) (model.Response, error) {
	return model.Response{Text: text, Stop: model.StopEnd, Usage: model.Usage{Input: 10, Output: 5}}, nil
}

// wants answers with calls, each "tool" or "tool {input}".
func wants(calls ...string) (model.Response, error) {
	resp := model.Response{Stop: model.StopCalls, Usage: model.Usage{Input: 10, Output: 5}}
	for i, c := range calls {
		name, input, _ := strings.Cut(c, " ")
		resp.Calls = append(resp.Calls, model.NewCall(fmt.Sprintf("c%d", i), name, input))
	}
	return resp, nil
}

// asked returns the message a request is about and how many answers it holds already.
func asked(req model.Request) (text string, answers int) {
	last := -1
	for i, m := range req.Messages {
		if m.Role == model.User && !strings.HasPrefix(m.Text(), "[ombud]") {
			last, text = i, m.Text()
		}
	}
	for _, m := range req.Messages[last+1:] {
		if m.Role == model.Assistant {
			answers++
		}
	}
	return text, answers
}

// results are the texts of the newest tool results in a request.
func results(req model.Request) (out []string) {
	for _, m := range slices.Backward(req.Messages) {
		if m.Role != model.Tool {
			continue
		}
		for _, p := range m.Parts {
			out = append(out, p.Result.Text)
		}
		return out
	}
	return nil
}

// echo is the plainest model.
func echo(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
	text, _ := asked(req)
	return said("re: " + text)
}

// once wants the calls first and then says "done".
func once(calls ...string) brain {
	return func(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
		if _, n := asked(req); n == 0 {
			return wants(calls...)
		}
		return said("done")
	}
}

// table of models by role.
type byRole map[string]brain

func (b byRole) For(role string) Model {
	if p, ok := b[role]; ok {
		return Model{Provider: p, Name: "brain-1"}
	}
	return Model{Provider: b["main"], Name: "brain-1"}
}

// noMemory recalls what it was given, whatever is asked.
type noMemory struct{ facts []Fact }

func (m noMemory) RecallFor(context.Context, string, string, int) ([]Fact, string, error) {
	return m.facts, "", nil
}

// setup is what a test may choose.
type setup struct {
	main, summary brain
	cfg           Config
	hold, poll    time.Duration // of approvals
	budget        budget.Config
	prices        []model.Override
	facts         []Fact
	authority     Authority
	vault         *vault.Vault
	sender        outbox.Sender
	idle          bool // the loops are not started
}

// bench is a whole agent on one store, with tools that count what they do.
type bench struct {
	t  testing.TB
	db *db.DB
	*Agents
	audit *audit.Audit

	mu    sync.Mutex
	calls map[string]int
	done  []string // effects, in order

	flying, most atomic.Int32
	gate         chan struct{} // t.gated waits for it
	stopped      sync.Once
}

// did counts the calls of a tool.
func (b *bench) did(tool string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.calls[tool]
}

func (b *bench) effects() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.done)
}

func newVault(t testing.TB) *vault.Vault {
	t.Helper()
	v, err := vault.OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// open puts an agent on a store and starts it.
func open(t testing.TB, d *db.DB, s setup) *bench {
	t.Helper()
	b := &bench{t: t, db: d, calls: map[string]int{}, gate: make(chan struct{})}
	if s.vault == nil {
		s.vault = newVault(t)
	}
	if s.poll == 0 {
		s.poll = 50 * time.Millisecond
	}
	if s.main == nil {
		s.main = echo
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	quiet := slog.New(slog.DiscardHandler)
	events := eventlog.NewLog(d, s.vault, quiet, eventlog.Options{})
	kinds := run.NewKinds()
	runs := run.New(d, s.vault, events, kinds, run.Options{Poll: 20 * time.Millisecond, Grace: 2 * time.Second})
	b.audit = audit.New(d, s.vault, runs.Node(), quiet)
	senders := outbox.NewSenders()
	must(senders.AddTx("local", rows{}))
	if s.sender != nil {
		must(senders.Add("chat", s.sender))
	}
	box := outbox.New(d, s.vault, events, senders, outbox.Options{Poll: 20 * time.Millisecond})
	approvals := approval.New(d, s.vault, events, approval.Options{
		Hold: s.hold, Poll: s.poll,
		OnResolved: func(ctx context.Context, tx *db.Tx, a approval.Approval) error { return b.Decided(ctx, tx, a) },
	})
	spend := budget.New(d, s.budget)
	registry, invoker := tool.NewRegistry(quiet)
	b.addTools(registry)
	prices, err := model.NewCatalog(s.prices...)
	must(err)
	door := act.New(act.Deps{
		DB: d, Vault: s.vault, Log: events, Audit: b.audit, Tools: registry, Invoker: invoker, Approvals: approvals,
		Budget: spend, Blobs: blob.New(d, s.vault),
	})
	models := byRole{"main": s.main}
	if s.summary != nil {
		models["summary"] = s.summary
	}
	b.Agents, err = New(Deps{
		DB: d, Vault: s.vault, Log: events, Runs: runs, Act: door, Tools: registry, Approvals: approvals, Budget: spend,
		Outbox: box, Memory: noMemory{s.facts}, Authority: s.authority, Models: models, Prices: prices,
	}, s.cfg, tester(t))
	must(err)
	for _, k := range b.Kinds() {
		must(kinds.Add(k))
	}
	must(b.audit.Start(t.Context()))
	must(approvals.Start(t.Context()))
	must(box.Start(t.Context()))
	if !s.idle {
		must(runs.Open(t.Context()))
	}
	t.Cleanup(b.stop)
	return b
}

// stop ends the loops, in the order a daemon does.
func (b *bench) stop() {
	b.stopped.Do(func() {
		ctx := context.Background()
		if err := b.Runs.Stop(ctx); err != nil {
			b.t.Error(err)
		}
		b.Outbox.Stop()
		b.Approvals.Stop()
		if err := b.Act.Stop(ctx); err != nil {
			b.t.Error(err)
		}
		if err := b.audit.Stop(ctx); err != nil {
			b.t.Error(err)
		}
	})
}

// rows is the local channel.
type rows struct{}

func (rows) SendTx(context.Context, *db.Tx, outbox.Item) (outbox.Receipt, error) {
	return outbox.Receipt{}, nil
}

// tester may use the free tools, is asked about the others, and nothing else.
func tester(t testing.TB) Identity {
	t.Helper()
	roles, err := policy.LoadRoles(t.TempDir(), []policy.RoleSpec{{Name: "tester", Allow: []string{"tool:free"}, Ask: []string{"tool:asked"}}})
	if err != nil {
		t.Fatal(err)
	}
	role, err := roles.Get("tester")
	if err != nil {
		t.Fatal(err)
	}
	level, err := policy.NewAutonomy(policy.Assisted, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Identity{Name: Default, Role: role, Grants: role.Grants("agent:main"), Autonomy: level}
}

// addTools: look reads, put has an effect, ask has one a person is asked about,
// deny is never allowed, big is long, fail fails, gated waits for the gate, far
// is read-only and written by a stranger.
func (b *bench) addTools(r *tool.Registry) {
	add := func(name, need string, readOnly bool, h func(ctx context.Context, in tool.Invocation) (tool.Output, error)) {
		b.t.Helper()
		source := label.Own
		if strings.HasSuffix(name, "far") {
			source = label.Untrusted("far")
		}
		err := r.Add(tool.Definition{
			Name: name, Description: "test", Input: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"additionalProperties":false}`),
			Kind: tool.Effect, ReadOnly: readOnly, Timeout: 10 * time.Second, MaxOutput: 1 << 20, Source: source,
			Scopes:  func(json.RawMessage) ([]scope.Scope, error) { return []scope.Scope{scope.Must("tool:" + need)}, nil },
			Summary: func(in json.RawMessage) string { return name + " " + string(in) },
			Form:    forms[name],
		}, func(ctx context.Context, in tool.Invocation) (tool.Output, error) {
			most := b.flying.Add(1)
			defer b.flying.Add(-1)
			for old := b.most.Load(); most > old && !b.most.CompareAndSwap(old, most); old = b.most.Load() {
			}
			b.mu.Lock()
			b.calls[name]++
			b.done = append(b.done, name+string(in.Input))
			b.mu.Unlock()
			return h(ctx, in)
		})
		if err != nil {
			b.t.Fatal(err)
		}
	}
	text := func(_ context.Context, in tool.Invocation) (tool.Output, error) {
		return tool.Output{Text: in.Step + string(in.Input)}, nil
	}
	add("t.look", "free", true, text)
	add("t.put", "free", false, text)
	add("t.ask", "asked", false, text)
	add("t.form", "free", false, func(_ context.Context, in tool.Invocation) (tool.Output, error) {
		return tool.Output{Text: "said " + string(in.Said)}, nil
	})
	add("t.confirm", "free", false, func(_ context.Context, in tool.Invocation) (tool.Output, error) {
		return tool.Output{Text: "said " + string(in.Said)}, nil
	})
	add("t.askfar", "asked", true, text)
	add("t.deny", "other", false, text)
	add("t.far", "free", true, text)
	add("t.same", "free", false, func(context.Context, tool.Invocation) (tool.Output, error) { return tool.Output{Text: "as ever"}, nil })
	add("t.big", "free", true, func(context.Context, tool.Invocation) (tool.Output, error) {
		return tool.Output{Reader: io.NopCloser(strings.NewReader(strings.Repeat("0123456789abcdef", 16<<10)))}, nil
	})
	broken := func(context.Context, tool.Invocation) (tool.Output, error) {
		return tool.Output{}, fmt.Errorf("it broke")
	}
	add("t.fail", "free", false, broken)
	add("t.askfail", "asked", false, broken)
	add("t.gated", "free", true, func(ctx context.Context, in tool.Invocation) (tool.Output, error) {
		select {
		case <-b.gate:
		case <-ctx.Done():
			return tool.Output{}, ctx.Err()
		}
		return text(ctx, in)
	})
}

func inbound(conversation, text string) Inbound {
	return Inbound{
		Address: Local(conversation), Title: conversation, Sender: "operator", Text: text,
		Source: label.Operator, Audience: label.OperatorOnly, Tier: policy.Trusted, Control: true,
	}
}

// tell takes a message in that has to be taken.
func (b *bench) tell(conversation, text string) Accepted {
	b.t.Helper()
	got, err := b.Intake(b.t.Context(), inbound(conversation, text))
	if err != nil {
		b.t.Fatalf("intake of %.40q: %v", text, err)
	}
	return got
}

func (b *bench) wait(id string) run.Record {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	rec, err := b.Runs.Wait(ctx, id)
	if err != nil {
		b.t.Fatalf("run %s is %s: %v", id, rec.State, err)
	}
	return rec
}

// answer waits for a turn and returns how it ended.
func (b *bench) answer(id string) Answer {
	b.t.Helper()
	got, ok := OutcomeOf(b.wait(id))
	if !ok {
		b.t.Fatalf("run %s has ended without an outcome", id)
	}
	return got
}

// ask tells something and waits for the answer.
func (b *bench) ask(conversation, text string) Answer {
	b.t.Helper()
	return b.answer(b.tell(conversation, text).Run)
}

// until waits for a condition that is looked at whenever a run may have moved.
func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	woken, stop := b.Runs.Watch()
	defer stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	over := time.NewTimer(patience)
	defer over.Stop()
	for !ok() {
		select {
		case <-woken:
		case <-tick.C:
		case <-over.C:
			b.t.Fatalf("it did not come: %s", what)
		}
	}
}

// parked waits until a turn asks a person and returns the question.
func (b *bench) parked(id string) approval.Approval {
	b.t.Helper()
	var open []approval.Approval
	b.until("a question of "+id, func() bool {
		rec, _, err := b.Runs.Get(b.t.Context(), id)
		if err != nil {
			b.t.Fatal(err)
		}
		if open, err = b.Approvals.List(b.t.Context(), approval.Filter{Run: id, State: approval.Pending}); err != nil {
			b.t.Fatal(err)
		}
		return rec.State == run.Waiting && len(open) > 0
	})
	return open[0]
}

// out lists what was said to a conversation, in order.
func (b *bench) out(conversation string) (texts []string) {
	b.t.Helper()
	items, err := b.Outbox.List(b.t.Context(), outbox.Filter{Conversation: conversation, Limit: 1000})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, it := range slices.Backward(items) {
		texts = append(texts, it.Text)
	}
	return texts
}

// events lists the events of a kind, oldest first.
func (b *bench) events(kinds ...string) (out []eventlog.Event) {
	b.t.Helper()
	for after := int64(0); ; {
		page, err := b.Log.Read(b.t.Context(), after, 1000, eventlog.Filter{Kinds: kinds})
		if err != nil {
			b.t.Fatal(err)
		}
		if len(page) == 0 {
			return out
		}
		out, after = append(out, page...), page[len(page)-1].Position
	}
}

// count asks the store for one number.
func (b *bench) count(query string, args ...any) (n int64) {
	b.t.Helper()
	err := b.db.Read(b.t.Context(), func(ctx context.Context, q db.Q) error { return q.QueryRow(ctx, query, args...).Scan(&n) })
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// each runs fn on an agent on every store.
func each(t *testing.T, s setup, fn func(t *testing.T, b *bench)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		fn(t, open(t, d, s))
	})
}

// nothing is a chat that takes everything.
type nothing struct{}

func (nothing) Send(context.Context, outbox.Item) (outbox.Receipt, error) {
	return outbox.Receipt{}, nil
}

// snap is the context a turn began with, as recorded.
func (b *bench) snap(id string) (out Snapshot) {
	b.t.Helper()
	if err := json.Unmarshal(b.step(id, "context").Result, &out); err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *bench) step(id, name string) run.Step {
	b.t.Helper()
	_, steps, err := b.Runs.Get(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, s := range steps {
		if s.Name == name {
			return *s
		}
	}
	b.t.Fatalf("run %s has no step %s", id, name)
	return run.Step{}
}

// okCall is a call that was made.
func okCall(tool string) act.Result { return act.Result{Status: act.OK, Tool: tool} }

// sqlite is each for what the store makes no difference to.
func sqlite(t *testing.T, s setup, fn func(t *testing.T, b *bench)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		fn(t, open(t, dbtest.SQLite(t), s))
	})
}
