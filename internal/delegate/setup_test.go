package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/blob"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/checkpoint"
	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/harness/keyproxy"
	"github.com/ombud-run/ombud/internal/job"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

// TestMain lets the test binary be the launcher of checks.
func TestMain(m *testing.M) {
	if code, ok := confine.Launched(os.Args); ok {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

// house is delegations with all they work with, on one store. The programs are played.
type house struct {
	t         testing.TB
	db        *db.DB
	vault     *vault.Vault
	log       *eventlog.Log
	audit     *audit.Audit
	kinds     *run.Kinds
	approvals *approval.Approvals
	tools     *tool.Registry
	budget    *budget.Budget
	act       *act.Act
	jobs      *job.Jobs
	deps      Deps
	cfg       Config
	stage     *stage
	keys      *keyproxy.Broker
	*Service
	deaf   atomic.Int32                               // 1: conversations hear nothing, 2: nobody does
	damage func(ctx context.Context, tx *db.Tx) error // done in the commit that ends a run, before the delegations see it

	mu     sync.Mutex
	parent *act.Authority
}

// stage plays the programs. Each start of one is handed to the script of the test.
type stage struct {
	mu      sync.Mutex
	script  func(ctx context.Context, t child.Task) (harness.Record, error)
	tasks   []child.Task
	targets []child.Target // that were probed
	login   child.Login
	active  map[string]int // sessions with a program at work, by the id the program knows
	most    int            // programs at once in one session
}

func (s *stage) Run(ctx context.Context, t child.Task) (harness.Record, error) {
	key := t.Session
	if key == "" {
		key = t.NewSession
	}
	s.mu.Lock()
	s.tasks = append(s.tasks, t)
	s.active[key]++
	s.most = max(s.most, s.active[key])
	script := s.script
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.active[key]--
		s.mu.Unlock()
	}()
	return script(ctx, t)
}

func (s *stage) Probe(_ context.Context, t child.Target) (child.Probe, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets = append(s.targets, t)
	return child.Probe{Version: "2.1.332", Login: s.login}, nil
}

func (s *stage) started() []child.Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]child.Task(nil), s.tasks...)
}

func (s *stage) probed() []child.Target {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]child.Target(nil), s.targets...)
}

func (s *stage) play(script func(ctx context.Context, t child.Task) (harness.Record, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

// answers is a script that says text at once and costs so much in its session.
func answers(text string, cost int64) func(context.Context, child.Task) (harness.Record, error) {
	return func(_ context.Context, t child.Task) (harness.Record, error) {
		return done(t, text, cost), nil
	}
}

// done is the record of a program that counts over its session, as claude does.
func done(t child.Task, text string, cost int64) harness.Record {
	session := t.Session
	if session == "" {
		session = t.NewSession
	}
	return harness.Record{
		CLI: t.CLI, Session: session, Model: "lab-1", Outcome: harness.Completed, Text: text,
		Cost: harness.Cost{Known: true, Cumulative: true, MicroUSD: cost}, Usage: harness.Usage{Known: true, Input: 100, Output: 7},
	}
}

// plainGit is git without walls.
type plainGit struct{ t testing.TB }

func (p plainGit) Run(ctx context.Context, c checkpoint.Command) error {
	path, err := exec.LookPath("git")
	if err != nil {
		p.t.Error("git is needed for these tests: ", err)
		return err
	}
	cmd := exec.CommandContext(ctx, path, c.Args...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Dir, append([]string{"PATH=/usr/bin:/bin"}, c.Env...), c.Stdin, c.Stdout, c.Stderr
	err = cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return checkpoint.ExitError{How: exit.String()}
	}
	return err
}

// listeners stand in for the agents: what they are told is an event of the store, so it
// is there once or not at all.
type listeners struct{ h *house }

func (l listeners) ConversationIn(_ context.Context, _ db.Q, id string) (agent.Conversation, error) {
	if id != "conv_1" {
		return agent.Conversation{}, fault.New(fault.NotFound, "no conversation %s", id)
	}
	return agent.Conversation{ID: id, Address: agent.Local("main"), Agent: agent.Default}, nil
}

func (l listeners) told(ctx context.Context, tx *db.Tx, kind, cause, text string) error {
	_, err := l.h.log.AppendTx(ctx, tx, eventlog.New{Stream: "told", Kind: kind, Actor: "test", Cause: cause, Data: map[string]string{"text": text}, Expect: eventlog.Any})
	return err
}

func (l listeners) IntakeTx(ctx context.Context, tx *db.Tx, in agent.Inbound) (agent.Accepted, error) {
	if !in.Within.Label.Tainted() || in.Cause == "" || in.Audience != label.OperatorOnly {
		l.h.t.Errorf("a wake of %q with the label %s, read by %q", in.Cause, in.Within.Label, in.Audience)
	}
	if l.h.deaf.Load() > 0 {
		return agent.Accepted{}, fault.New(fault.Internal, "the conversation is damaged")
	}
	return agent.Accepted{}, l.told(ctx, tx, "told.woken", in.Cause, in.Text)
}

func (l listeners) NoticeTx(ctx context.Context, tx *db.Tx, cause, text string) error {
	if l.h.deaf.Load() > 1 {
		return fault.New(fault.Internal, "the conversation is damaged")
	}
	return l.told(ctx, tx, "told.notice", cause, text)
}

func rule(effect policy.Effect, text string) policy.Rule {
	return policy.Rule{Effect: effect, Scope: scope.Must(text)}
}

func open(t testing.TB, d *db.DB, tune ...func(*Config)) *house {
	t.Helper()
	v, err := vault.OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	h := &house{t: t, db: d, vault: v, kinds: run.NewKinds(), keys: keyproxy.New(keyproxy.Config{}), stage: &stage{login: child.LoginYes, active: map[string]int{}, script: answers("42", 1000)}}
	h.log = eventlog.NewLog(d, v, quiet, eventlog.Options{})
	h.audit = audit.New(d, v, "test", quiet)
	if err := h.audit.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.approvals = approval.New(d, v, h.log, approval.Options{OnResolved: func(ctx context.Context, tx *db.Tx, a approval.Approval) error {
		if ours, err := h.jobs.DecidedTx(ctx, tx, a); ours || err != nil {
			return err
		}
		return h.Runs.WakeTx(ctx, tx, a.Run, run.ForApproval, a.ID)
	}})
	var invoker *tool.Invoker
	h.tools, invoker = tool.NewRegistry(quiet)
	h.budget = budget.New(d, budget.Config{Instance: budget.Limits{Day: budget.At(10_000_000)}})
	h.act = act.New(act.Deps{
		DB: d, Vault: v, Log: h.log, Audit: h.audit, Tools: h.tools, Invoker: invoker, Approvals: h.approvals, Budget: h.budget, Blobs: blob.New(d, v),
	})
	work := filepath.Join(home, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	h.mayUse(rule(policy.Allow, "harness"), rule(policy.Allow, "fs.read:"+home+"/**"), rule(policy.Allow, "fs.write:"+home+"/**"))
	h.cfg = Config{
		Harnesses: []Harness{
			{Name: "claude", CLI: harness.Claude, Program: "/usr/bin/true"}, {Name: "codex", CLI: harness.Codex, Program: "/usr/bin/true", Model: "gpt-5.5"},
			{Name: "pi", CLI: harness.Pi, Missing: "it is not installed"},
		},
		Time: time.Hour, Quiet: time.Minute, Budget: budget.At(5_000_000), Home: "home_test",
		State: filepath.Join(home, "state"), Trees: filepath.Join(home, "trees"), Workspace: work, Program: "/usr/bin/true", Socket: "/run/agent.sock",
	}
	for _, f := range tune {
		f(&h.cfg)
	}
	h.Service = New(&h.deps, h.cfg)
	h.jobs = job.New(job.Deps{
		DB: d, Vault: v, Log: h.log, Act: h.act, Tools: h.tools, Approvals: h.approvals, Budget: h.budget, Parent: h.authorityOf,
	})
	if err := h.Register(h.tools); err != nil {
		t.Fatal(err)
	}
	kind := h.RunKind()
	ended := kind.Ended
	kind.Ended = func(ctx context.Context, tx *db.Tx, rec run.Record) error {
		if h.damage != nil {
			if err := h.damage(ctx, tx); err != nil {
				return err
			}
		}
		return ended(ctx, tx, rec)
	}
	for _, k := range []run.Kind{h.jobs.Kind(), kind, h.ApplyKind(h.operators), {Name: "turn", TellUnknown: true, Heard: true, Handle: h.turn}} {
		if err := h.kinds.Add(k); err != nil {
			t.Fatal(err)
		}
	}
	h.boot()
	t.Cleanup(func() {
		h.halt()
		if err := h.keys.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if _, err := h.Runs.Verify(context.Background()); err != nil {
			t.Error(err)
		}
		if err := h.act.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if _, err := audit.Verify(context.Background(), d, v.Keys()); err != nil {
			t.Error(err)
		}
		if err := h.audit.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return h
}

// mayUse is what whoever gives work may do.
func (h *house) mayUse(rules ...policy.Rule) {
	auto, err := policy.NewAutonomy(policy.Assisted, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parent = &act.Authority{
		Subject: "agent:main", Agent: "main", Conversation: "conv_1", Readers: label.OperatorOnly, Tier: policy.Trusted, Autonomy: auto,
		Grants: policy.NewLayer("grants of agent:main", rules),
	}
}

func (h *house) authorityOf(_ context.Context, subject, _ string, _ policy.Tier) (*act.Authority, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := *h.parent
	out.Subject = subject
	return &out, nil
}

func (h *house) operators(string) (*act.Authority, error) {
	auto, err := policy.NewAutonomy(policy.Assisted, nil)
	write := scope.Must("git.write")
	return &act.Authority{
		Subject: Operator, Tier: policy.Trusted, Autonomy: auto, Standing: []scope.Scope{write},
		Grants: policy.NewLayer("operator", []policy.Rule{{Scope: write, Effect: policy.Allow}}),
	}, err
}

// boot starts an engine, as a new process would.
func (h *house) boot() {
	h.t.Helper()
	engine := run.New(h.db, h.vault, h.log, h.kinds, run.Options{Poll: 20 * time.Millisecond, Grace: 5 * time.Second})
	h.jobs.Runs = engine
	h.deps = Deps{
		DB: h.db, Vault: h.vault, Log: h.log, Runs: engine, Act: h.act, Jobs: h.jobs, Budget: h.budget, Agents: listeners{h}, Starter: h.stage, Keys: h.keys, Git: plainGit{h.t},
		Authority: h.authorityOf, Logger: slog.New(slog.DiscardHandler),
	}
	if err := engine.Open(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) halt() {
	if err := h.Runs.Stop(context.Background()); err != nil {
		h.t.Error(err)
	}
}

// asked is what a turn of the tests does: one call.
type asked struct {
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input"`
}

func (h *house) turn(ctx context.Context, r *run.Run) ([]byte, error) {
	var in asked
	if err := json.Unmarshal(r.Input(), &in); err != nil {
		return nil, err
	}
	auth, err := h.authorityOf(ctx, "agent:main", "conv_1", policy.Trusted)
	if err != nil {
		return nil, err
	}
	res, err := h.act.Call(ctx, r, act.Call{Step: "tool/1", Tool: in.Tool, Input: in.Input, Authority: auth, Label: label.Of(label.Operator, label.OperatorOnly)})
	if err != nil {
		return nil, err
	}
	return json.Marshal(res)
}

// begin starts a turn that makes one call.
func (h *house) begin(name string, input callInput) string {
	h.t.Helper()
	raw, err := json.Marshal(input)
	if err != nil {
		h.t.Fatal(err)
	}
	id, err := h.Runs.Start(h.t.Context(), run.Spec{Kind: "turn", Name: "main", Actor: "test", Input: asked{name, raw}})
	if err != nil {
		h.t.Fatal(err)
	}
	return id
}

// end waits for a turn and returns what its call came to.
func (h *house) end(id string) (res act.Result) {
	h.t.Helper()
	rec, err := h.Runs.Wait(h.t.Context(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	if rec.State != run.Completed {
		h.t.Fatalf("turn %s is %s: %s", id, rec.State, rec.Error)
	}
	if err := json.Unmarshal(rec.Result, &res); err != nil {
		h.t.Fatal(err)
	}
	return res
}

func (h *house) call(name string, input callInput) act.Result {
	h.t.Helper()
	return h.end(h.begin(name, input))
}

// last is the newest delegation, once it has ended.
func (h *house) last() (Delegation, Report) {
	h.t.Helper()
	list, err := h.List(h.t.Context(), 1)
	if err != nil || len(list) == 0 {
		h.t.Fatalf("no delegation: %v", err)
	}
	rec, err := h.Runs.Wait(h.t.Context(), list[0].Run)
	if err != nil {
		h.t.Fatal(err)
	}
	x, _, _, err := h.Get(h.t.Context(), list[0].Run)
	if err != nil {
		h.t.Fatal(err)
	}
	var rep Report
	if rec.State == run.Completed {
		if err := json.Unmarshal(rec.Result, &rep); err != nil {
			h.t.Fatal(err)
		}
	}
	return x, rep
}

// events counts those of a kind.
func (h *house) events(kind string) []eventlog.Event {
	h.t.Helper()
	list, err := h.log.Read(h.t.Context(), 0, 1000, eventlog.Filter{Kinds: []string{kind}})
	if err != nil {
		h.t.Fatal(err)
	}
	return list
}

// spent is what the budget has booked today.
func (h *house) spent() (spent, reserved, possible, unknown int64) {
	h.t.Helper()
	var room budget.Headroom
	err := h.db.Read(h.t.Context(), func(ctx context.Context, q db.Q) (err error) {
		room, err = h.budget.Left(ctx, q, "main", "")
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	l := room.Levels[0]
	return l.Spent, l.Reserved, l.Possible, l.Unknown
}

// question waits for the one open question.
func (h *house) question() approval.Approval {
	h.t.Helper()
	woken, stop := h.Runs.Watch()
	defer stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := h.approvals.List(h.t.Context(), approval.Filter{State: approval.Pending})
		if err != nil {
			h.t.Fatal(err)
		}
		if len(list) == 1 {
			return list[0]
		}
		select {
		case <-woken:
		case <-tick.C:
		case <-h.t.Context().Done():
			h.t.Fatal("nobody asked")
		}
	}
}

func (h *house) decide(a approval.Approval, d approval.Decision) {
	h.t.Helper()
	if _, err := h.approvals.Resolve(h.t.Context(), a.ID, approval.Reply{Decision: d}, "operator"); err != nil {
		h.t.Fatal(err)
	}
}
