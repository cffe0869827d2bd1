package karmax

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	"github.com/ombud-run/ombud/internal/channel/local"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/loops"
	"github.com/ombud-run/ombud/internal/memory"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/recipe"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/schedule"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
	toolmemory "github.com/ombud-run/ombud/internal/tools/memory"
	"github.com/ombud-run/ombud/internal/tools/notify"
	"github.com/ombud-run/ombud/internal/tools/remind"
	"github.com/ombud-run/ombud/internal/tools/web"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/internal/vault"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(asVictim); spec != "" {
		os.Exit(victim(spec))
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what has to come.
const patience = 60 * time.Second

// brain is a model of a test: it answers what it was told last.
type brain func(prompt string) (string, error)

func (brain) Name() string { return "brain" }

func (b brain) Generate(_ context.Context, req model.Request, _ model.Sink) (model.Response, error) {
	said := ""
	for _, m := range slices.Backward(req.Messages) {
		if m.Role == model.User {
			said = m.Text()
			break
		}
	}
	text, err := b(said)
	return model.Response{Provider: "brain", Model: "brain-1", Text: text, Stop: model.StopEnd, Usage: model.Usage{Input: 1, Output: 1}}, err
}

func (b brain) For(string) agent.Model { return agent.Model{Provider: b, Name: "brain-1"} }

type nothingRecalled struct{}

func (nothingRecalled) RecallFor(context.Context, string, string, int) ([]agent.Fact, string, error) {
	return nil, "", nil
}

// grants are what a test gave beside the roles.
type grants map[string]policy.Held

func (g grants) For(_ context.Context, subject, _ string) (policy.Held, error) {
	return g[subject], nil
}

// house is recipes with all they work with, on one store.
type house struct {
	fatal func(args ...any)
	dir   string
	db    *db.DB
	runs  *run.Engine
	lib   *recipe.Library
	work  *recipe.Work
	times *trigger.Triggers
	tools *tool.Registry
	apr   *approval.Approvals
	mem   *memory.Memory
	box   *outbox.Outbox
	log   *eventlog.Log
	d     loops.Deps
	plans *schedule.Schedules
	stops []func()

	mu      sync.Mutex
	told    []string            // to the operator
	asked   []string            // of the model
	tasks   []string            // of the coding agent
	puts    []string            // inputs of the tool t.put
	report  string              // its answer
	reply   func(string) string // the model's
	at      func(where string)  // called at each place where a process may die
	effect  func(text string)   // what an effect does outside
	retried time.Duration
}

// openHouse opens a house in a directory.
func openHouse(ctx context.Context, d *db.DB, dir string, fatal func(args ...any)) *house {
	h := &house{db: d, dir: dir, fatal: fatal, report: "a fine digest", at: func(string) {}, effect: func(string) {}, retried: time.Millisecond}
	must := func(err error) {
		if err != nil {
			fatal(err)
		}
	}
	v, err := vault.New([]byte(strings.Repeat("k", vault.KeySize)))
	must(err)
	quiet := slog.New(slog.DiscardHandler)
	h.log = eventlog.NewLog(d, v, quiet, eventlog.Options{})
	kinds := run.NewKinds()
	h.runs = run.New(d, v, h.log, kinds, run.Options{Poll: 20 * time.Millisecond, Grace: 2 * time.Second, Home: "test"})
	book := audit.New(d, v, h.runs.Node(), quiet)
	senders := outbox.NewSenders()
	must(senders.AddTx(local.Name, local.Channel{}))
	h.box = outbox.New(d, v, h.log, senders, outbox.Options{Poll: 20 * time.Millisecond})
	h.apr = approval.New(d, v, h.log, approval.Options{Poll: 50 * time.Millisecond, OnResolved: func(ctx context.Context, tx *db.Tx, a approval.Approval) error {
		if ours, err := h.d.DecidedTx(ctx, tx, a, h.work.Actor); ours || err != nil {
			return err
		}
		return h.d.Agents.Decided(ctx, tx, a)
	}})
	spend := budget.New(d, budget.Config{})
	var invoker *tool.Invoker
	h.tools, invoker = tool.NewRegistry(quiet)
	h.mem = memory.NewMemory(d, v, h.log, memory.Options{})
	egress, err := guard.NewEgress(guard.EgressConfig{AllowPrivate: true})
	must(err)
	client := guard.HTTPClient(guard.HTTPConfig{Egress: egress})
	must(toolmemory.New(h.mem, func(string) string { return agent.Default }).Register(h.tools))
	must(remind.New(h.runs, time.UTC).Register(h.tools))
	must(web.New(client, "test", nil).Register(h.tools))
	must(loops.NewTools(&h.d).Register(h.tools))
	must(h.tools.Add(tool.Definition{
		Name: "t.put", Description: "test", Kind: tool.Effect, Timeout: 10 * time.Second, MaxOutput: 1 << 20, Source: label.Own, Repeat: tool.AtMostOnce,
		Input:  json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{"text":{"type":"string"},"n":{"type":"integer"},"loud":{"type":"boolean"}}}`),
		Scopes: func(json.RawMessage) ([]scope.Scope, error) { return []scope.Scope{scope.Must("tool:free")}, nil },
		Destination: func(json.RawMessage) tool.Destination {
			return tool.Destination{Readers: label.OperatorOnly, Name: "test"}
		},
		Summary: func(in json.RawMessage) string { return "put " + string(in) },
	}, func(_ context.Context, in tool.Invocation) (tool.Output, error) {
		h.note(&h.puts, string(in.Input))
		h.effect("put " + string(in.Input))
		return tool.Output{Text: "done"}, nil
	}))
	must(notify.New(func(ctx context.Context, tx *db.Tx, cause, text string) error {
		tx.AfterCommit(func() { h.note(&h.told, text) })
		return h.d.Agents.NoticeTx(ctx, tx, cause, text)
	}).Register(h.tools))
	prices, err := model.NewCatalog()
	must(err)
	blobs := blob.New(d, v)
	door := act.New(act.Deps{
		DB: d, Vault: v, Log: h.log, Audit: book, Tools: h.tools, Invoker: invoker, Approvals: h.apr, Budget: spend, Blobs: blobs,
	})
	roles, err := policy.LoadRoles("/ws", nil)
	must(err)
	assistant, err := roles.Get(policy.RoleAssistant)
	must(err)
	level, err := policy.NewAutonomy(policy.Assisted, nil)
	must(err)
	held := grants{}
	mind := brain(func(prompt string) (string, error) {
		h.note(&h.asked, prompt)
		h.at("model")
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.reply != nil {
			return h.reply(prompt), nil
		}
		return "an answer", nil
	})
	agents, err := agent.New(agent.Deps{
		DB: d, Vault: v, Log: h.log, Runs: h.runs, Act: door, Tools: h.tools, Approvals: h.apr, Budget: spend, Outbox: h.box,
		Memory: nothingRecalled{}, Authority: held, Models: mind, Prices: prices,
	}, agent.Config{}, agent.Identity{Name: agent.Default, Role: assistant, Grants: assistant.Grants("agent:main"), Autonomy: level})
	must(err)
	h.plans = schedule.New(d, v, h.log, h.runs, func(ctx context.Context, tx *db.Tx, f schedule.Firing) (string, error) {
		return h.times.Fire(ctx, tx, f)
	}, schedule.Options{})
	h.times = trigger.New(d, v, h.log, h.runs, h.plans, trigger.Options{Tell: agents.NoticeTx})
	h.d = loops.Deps{
		DB: d, Vault: v, Log: h.log, Runs: h.runs, Act: door, Agents: agents, Approvals: h.apr, Blobs: blobs, Triggers: h.times,
		Held: held, Usual: policy.Assisted,
	}
	h.d.Delegate = func(ctx context.Context, tx *db.Tx, parent string, t loops.Task) (string, error) {
		return h.runs.StartTx(ctx, tx, run.Spec{Kind: "delegation", Name: t.Subject, Parent: parent, Actor: t.Subject, Input: t})
	}
	role, err := roles.Get(policy.RoleRecipe)
	must(err)
	h.lib = recipe.New(recipe.Deps{
		DB: d, Vault: v, Log: h.log, Targets: h.times, Foreign: Recipe, Tell: agents.NoticeTx, Logger: quiet,
		Mount: func(name string) string { return map[string]string{"opened": "open"}[name] },
	}, recipe.Options{Dir: dir})
	h.work = recipe.NewWork(h.lib, h.d, role, spend, func(name string) json.RawMessage {
		def, err := h.tools.Get(name)
		if err != nil {
			return nil
		}
		return def.Input
	})
	kind := h.work.Kind()
	kind.Backoff = func(int) time.Duration { return h.retried }
	for _, k := range append(agents.Kinds(), kind, loops.CallKind(h.d, h.work.Actor, spend), loops.SendKind(h.d), h.delegation()) {
		must(kinds.Add(k))
	}
	must(book.Start(ctx))
	must(h.apr.Start(ctx))
	must(h.box.Start(ctx))
	_, err = h.lib.Load(ctx)
	must(err)
	must(h.runs.Open(ctx))
	must(h.log.Start(ctx, h.times.Subscription(), remind.OnFired(agents.SayTx)))
	h.stops = []func(){
		h.log.Stop, func() { must(h.runs.Stop(context.Background())) }, h.box.Stop, h.apr.Stop,
		func() { must(door.Stop(context.Background())) }, func() { must(book.Stop(context.Background())) }, client.CloseIdleConnections,
	}
	return h
}

func (h *house) stop() {
	for _, stop := range h.stops {
		stop()
	}
	h.stops = nil
}

func (h *house) note(list *[]string, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*list = append(*list, text)
}

func (h *house) have(list *[]string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(*list)
}

// delegation stands in for a coding agent. It keeps the rules of the real thing: the task
// is a run of its own, its result is what it printed, which may be a refusal or nothing
// although it ended well, and whoever it read it may have obeyed.
func (h *house) delegation() run.Kind {
	return run.Kind{Name: "delegation", Heard: true, Handle: func(ctx context.Context, r *run.Run) ([]byte, error) {
		var task loops.Task
		if err := json.Unmarshal(r.Input(), &task); err != nil {
			return nil, err
		}
		return r.Step(ctx, "work", run.Policy{Kind: run.AtMostOnce}, func(context.Context) (json.RawMessage, error) {
			h.note(&h.tasks, task.Prompt)
			h.effect("harness")
			h.mu.Lock()
			text := h.report
			h.mu.Unlock()
			return json.Marshal(loops.Report{Text: text})
		})
	}}
}

// each runs a test in a house on each kind of store, with the given recipes.
func each(t *testing.T, files map[string]string, test func(t *testing.T, h *house)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		h := openHouse(t.Context(), d, shelf(t, files), func(args ...any) { t.Helper(); t.Fatal(args...) })
		t.Cleanup(h.stop)
		test(t, h)
	})
}

// shelf is a directory with recipes.
func shelf(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// start starts a recipe by hand.
func (h *house) start(t *testing.T, name, payload string) string {
	t.Helper()
	id, err := h.times.Manual(t.Context(), recipe.Subject(name), json.RawMessage(payload), "operator")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// end waits for the end of a run, and says yes to whatever it asks.
func (h *house) end(t *testing.T, id string) run.Record {
	t.Helper()
	var rec run.Record
	h.until(t, func() bool {
		list, err := h.apr.List(t.Context(), approval.Filter{State: approval.Pending, Run: id, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range list {
			if _, err := h.apr.Resolve(t.Context(), a.ID, approval.Reply{Decision: approval.Approve}, "operator"); err != nil {
				t.Log(err)
			}
		}
		rec, _, err = h.runs.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return rec.State.Ended() || rec.State == run.Uncertain
	})
	return rec
}

func (h *house) until(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); {
		if time.Now().After(deadline) {
			t.Fatal("it does not come")
		}
		<-time.After(5 * time.Millisecond)
	}
}

// good wants a recipe to come to a good end.
func (h *house) good(t *testing.T, name, payload string) run.Record {
	t.Helper()
	rec := h.end(t, h.start(t, name, payload))
	if rec.State != run.Completed {
		t.Fatalf("%s is %s: %s", name, rec.State, rec.Error)
	}
	return rec
}

// steps are the names of what a run has recorded.
func (h *house) steps(t *testing.T, id string) []string {
	t.Helper()
	_, steps, err := h.runs.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range steps {
		out = append(out, s.Name)
	}
	return out
}

// site is a server of the web in the test; it counts what it is asked.
type site struct {
	*httptest.Server
	mu   sync.Mutex
	hits []string
}

func newSite(t *testing.T, body string) *site {
	s := &site{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hits = append(s.hits, fmt.Sprint(r.Method, " ", r.URL.Path))
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return s
}
