package injection

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
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
	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/memory"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/tools/clock"
	toolfs "github.com/ombud-run/ombud/internal/tools/fs"
	toolmemory "github.com/ombud-run/ombud/internal/tools/memory"
	"github.com/ombud-run/ombud/internal/tools/remind"
	"github.com/ombud-run/ombud/internal/tools/result"
	"github.com/ombud-run/ombud/internal/tools/shell"
	"github.com/ombud-run/ombud/internal/tools/web"
	"github.com/ombud-run/ombud/internal/vault"
)

// TestMain: this program is also what the launcher of a job executes.
func TestMain(m *testing.M) {
	if code, ok := confine.Launched(os.Args); ok {
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

const patience = time.Minute

// weak is how a house is weakened for the mutation run. Its zero value is the
// house as it is shipped.
type weak struct {
	decide    func(*policy.Input) policy.Decision
	tell      func(label.Label, policy.Destination) policy.Decision
	sensitive *guard.Sensitive
	facts     func(*memory.Memory) toolmemory.Facts
	allow     []string // granted and standing besides
	ask       []string // granted, but asked about
	level     policy.Level
	files     toolfs.Labels
}

// house is a whole agent with the real tools and a small world outside.
type house struct {
	t         testing.TB
	db        *db.DB
	workspace string
	*agent.Agents
	approvals *approval.Approvals
	memory    *memory.Memory
	events    *eventlog.Log
	act       *act.Act
	brain     *brain

	mu    sync.Mutex
	world []string          // what reached the outside, in order
	pages map[string]string // by URL

	decision approval.Decision // on what is asked; refused by default
}

// answering sets how the questions of the turns to come are answered.
func (h *house) answering(d approval.Decision) { h.decision = d }

func (h *house) happened(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.world = append(h.world, what)
}

func (h *house) outside() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.world)
}

func (h *house) page(url, body string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pages[url] = body
}

// RoundTrip is the network: it knows the pages, and notes who was asked for what.
func (h *house) RoundTrip(req *http.Request) (*http.Response, error) {
	h.mu.Lock()
	body, known := h.pages[req.URL.String()]
	h.mu.Unlock()
	if !known {
		h.happened("fetch " + req.URL.String())
		body = "thanks"
	}
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"text/html; charset=utf-8"}}, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// granted is all that an operator can give to an agent, given: nothing of it asks.
var granted = []string{
	"fs.read:{workspace}/**", "fs.list:{workspace}/**", "fs.metadata:{workspace}/**", "fs.write:{workspace}/**", "fs.delete:{workspace}/**",
	"net.fetch", "shell.exec", "email.send", "calendar.read", "memory.read", "memory.write", "memory.forget", "time.read", "remind.read", "remind.write",
}

// standing answers every question that a level or a role could have.
type standing []scope.Scope

func (s standing) For(context.Context, string, string) (policy.Held, error) {
	return policy.Held{Standing: s}, nil
}

// found lets agents ask the memory for what fits a message, as a daemon does.
type found struct{ *memory.Memory }

func (f found) RecallFor(ctx context.Context, name, text string, limit int) (out []agent.Fact, index string, err error) {
	got, err := f.Recall(ctx, name, text, limit)
	for _, h := range got.Hits {
		out = append(out, agent.Fact{Text: h.Text, Label: h.Label})
	}
	return out, index, err
}

type models struct{ main, summary model.Provider }

func (m models) For(role string) agent.Model {
	if role == "summary" {
		return agent.Model{Provider: m.summary}
	}
	return agent.Model{Provider: m.main}
}

type quiet struct{}

func (quiet) SendTx(context.Context, *db.Tx, outbox.Item) (outbox.Receipt, error) {
	return outbox.Receipt{}, nil
}

func open(t testing.TB, w weak) *house {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	d := dbtest.SQLite(t)
	place, err := filepath.EvalSymlinks(t.TempDir())
	must(err)
	v, err := vault.OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	must(err)
	log := slog.New(slog.DiscardHandler)
	h := &house{t: t, db: d, workspace: place, pages: map[string]string{}, brain: &brain{}, decision: approval.Deny}
	h.events = eventlog.NewLog(d, v, log, eventlog.Options{})
	kinds := run.NewKinds()
	runs := run.New(d, v, h.events, kinds, run.Options{Poll: 50 * time.Millisecond, Grace: 2 * time.Second})
	chain := audit.New(d, v, runs.Node(), log)
	senders := outbox.NewSenders()
	must(senders.AddTx("local", quiet{}))
	must(senders.AddTx("chat", quiet{}))
	box := outbox.New(d, v, h.events, senders, outbox.Options{})
	h.approvals = approval.New(d, v, h.events, approval.Options{
		OnResolved: func(ctx context.Context, tx *db.Tx, a approval.Approval) error { return h.Decided(ctx, tx, a) },
	})
	h.memory = memory.NewMemory(d, v, h.events, memory.Options{})
	registry, invoker := tool.NewRegistry(log)
	blobs, spend := blob.New(d, v), budget.New(d, budget.Config{})
	h.act = act.New(act.Deps{
		DB: d, Vault: v, Log: h.events, Audit: chain, Tools: registry, Invoker: invoker, Approvals: h.approvals, Budget: spend,
		Blobs: blobs, Decide: w.decide, Tell: w.tell,
	})
	root, err := guard.OpenRoot(place, w.sensitive)
	must(err)
	launcher, err := confine.New(confine.Options{Enforce: confine.EnforceBest})
	must(err)
	t.Cleanup(launcher.Close)
	sh, err := shell.New(shell.Config{Allow: []string{"cat", "touch"}, Dir: place}, guard.NewSensitive(nil, nil), launcher)
	must(err)
	var facts toolmemory.Facts = h.memory
	if w.facts != nil {
		facts = w.facts(h.memory)
	}
	if w.files == nil {
		w.files = toolfs.NewKept(d, v)
	}
	for _, r := range []interface{ Register(*tool.Registry) error }{
		toolfs.New(root, label.Untrusted("file"), w.files), sh, web.New(&http.Client{Transport: h}, "test", nil), toolmemory.New(facts, nil),
		clock.New(time.Now, time.UTC), remind.New(runs, time.UTC), result.New(blobs, h.act.Kept), outward{h},
	} {
		must(r.Register(registry))
	}
	allow := slices.DeleteFunc(append(slices.Clone(granted), w.allow...), func(s string) bool { return slices.Contains(w.ask, s) })
	roles, err := policy.LoadRoles(place, []policy.RoleSpec{{Name: "generous", Allow: allow, Ask: w.ask}})
	must(err)
	role, err := roles.Get("generous")
	must(err)
	level, err := policy.NewAutonomy(max(w.level, policy.Assisted), nil)
	must(err)
	var answers standing
	for _, s := range allow {
		need, err := scope.Parse(strings.ReplaceAll(s, "{workspace}", place))
		must(err)
		answers = append(answers, need)
	}
	prices, err := model.NewCatalog()
	must(err)
	h.Agents, err = agent.New(agent.Deps{
		DB: d, Vault: v, Log: h.events, Runs: runs, Act: h.act, Tools: registry, Approvals: h.approvals, Budget: spend, Outbox: box,
		Memory: found{h.memory}, Models: models{main: h.brain, summary: scribe{}}, Prices: prices, Authority: answers,
	}, agent.Config{Compact: 1}, agent.Identity{Name: agent.Default, Role: role, Grants: role.Grants("agent:main"), Autonomy: level})
	must(err)
	for _, k := range h.Kinds() {
		must(kinds.Add(k))
	}
	must(chain.Start(t.Context()))
	must(h.approvals.Start(t.Context()))
	must(box.Start(t.Context()))
	must(h.events.Start(t.Context(), remind.OnFired(h.SayTx)))
	must(runs.Open(t.Context()))
	t.Cleanup(func() {
		ctx := context.Background()
		must(runs.Stop(ctx))
		h.events.Stop()
		box.Stop()
		h.approvals.Stop()
		must(h.act.Stop(ctx))
		must(chain.Stop(ctx))
		must(root.Close())
	})
	return h
}

// outward is the tools of the test that reach outside.
type outward struct{ h *house }

func (o outward) Register(r *tool.Registry) error {
	type mail struct{ To, Text string }
	add := func(d tool.Definition, schema string, handle func(in mail) string) error {
		d.Description, d.Timeout, d.MaxOutput, d.Kind, d.Source = "test", time.Minute, 1<<20, tool.Effect, label.Own
		d.Input = json.RawMessage(schema)
		d.Summary = func(in json.RawMessage) string { return d.Name + " " + string(in) }
		return r.Add(d, func(_ context.Context, in tool.Invocation) (tool.Output, error) {
			m, err := tool.Decode[mail](in.Input)
			return tool.Output{Text: handle(m)}, err
		})
	}
	need := func(s string) func(json.RawMessage) ([]scope.Scope, error) {
		return func(json.RawMessage) ([]scope.Scope, error) { return []scope.Scope{scope.Must(s)}, nil }
	}
	const two = `{"type":"object","required":["to","text"],"properties":{"to":{"type":"string"},"text":{"type":"string"}},"additionalProperties":false}`
	const none = `{"type":"object","properties":{},"additionalProperties":false}`
	err := add(tool.Definition{
		Name: "mail.send",
		Scopes: func(in json.RawMessage) ([]scope.Scope, error) {
			m, err := tool.Decode[mail](in)
			if err != nil {
				return nil, err
			}
			s, err := scope.Of("email.send", m.To)
			return []scope.Scope{s}, err
		},
		Destination: func(in json.RawMessage) tool.Destination {
			m, _ := tool.Decode[mail](in)
			return tool.Destination{Name: m.To}
		},
	}, two, func(m mail) string {
		o.h.happened("mail " + m.To + " " + m.Text)
		return "sent"
	})
	if err == nil {
		err = add(tool.Definition{
			Name: "calendar.read", ReadOnly: true, Scopes: need("calendar.read"),
			Destination: func(json.RawMessage) tool.Destination { return tool.Destination{Nobody: true} },
		}, none, func(mail) string { return "Tuesday 14:00 dentist, at the secret place" })
	}
	if err == nil {
		err = add(tool.Definition{Name: "caps.grant", Scopes: need("caps.write")}, two, func(m mail) string {
			o.h.happened("grant " + m.To)
			return "granted"
		})
	}
	return err
}

// say takes a message of the operator on the machine itself.
func (h *house) say(conversation, text string) agent.Accepted {
	h.t.Helper()
	return h.take(agent.Inbound{
		Address: agent.Local(conversation), Title: conversation, Sender: "operator", Text: text,
		Source: label.Operator, Audience: label.OperatorOnly, Tier: policy.Trusted,
	})
}

// hear takes a message of somebody in a chat, whoever reads it.
func (h *house) hear(chat, who, text string) agent.Accepted {
	h.t.Helper()
	return h.take(agent.Inbound{
		Address: agent.Address{Channel: "chat", Chat: chat}, Title: chat, Sender: who, SenderName: who, Text: text,
		Source: label.Untrusted("chat:" + who), Tier: policy.SemiTrusted,
	})
}

func (h *house) take(in agent.Inbound) agent.Accepted {
	h.t.Helper()
	got, err := h.Intake(h.t.Context(), in)
	if err != nil {
		h.t.Fatalf("intake of %.60q: %v", in.Text, err)
	}
	return got
}

// end waits for a turn and answers whatever it asks meanwhile. It returns how the
// turn ended and what it asked.
func (h *house) end(id string) (agent.Answer, []approval.Approval) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	woken, stop := h.Runs.Watch()
	defer stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var asked []approval.Approval
	for {
		rec, _, err := h.Runs.Get(ctx, id)
		if err != nil {
			h.t.Fatal(err)
		}
		if answer, over := agent.OutcomeOf(rec); over {
			return answer, asked
		}
		if rec.State == run.Waiting {
			list, err := h.approvals.List(ctx, approval.Filter{Run: id, State: approval.Pending})
			if err != nil {
				h.t.Fatal(err)
			}
			for _, a := range list {
				if _, err := h.approvals.Resolve(ctx, a.ID, approval.Reply{Decision: h.decision}, "operator"); err == nil {
					asked = append(asked, a)
				}
			}
		}
		select {
		case <-woken:
		case <-tick.C:
		case <-ctx.Done():
			h.t.Fatalf("run %s did not end: %s", id, rec.State)
		}
	}
}

// calls are the results of a turn's calls, by tool, the last of each.
func (h *house) calls(id string) map[string]act.Result {
	h.t.Helper()
	_, steps, err := h.Runs.Get(h.t.Context(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	out := map[string]act.Result{}
	for _, s := range steps {
		var res act.Result
		if s.Kind == "tool" && json.Unmarshal(s.Result, &res) == nil {
			out[res.Tool+" "+s.Name] = res
		}
	}
	return out
}

func (h *house) snapshot(id string) (s agent.Snapshot) {
	h.t.Helper()
	_, steps, err := h.Runs.Get(h.t.Context(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, st := range steps {
		if st.Name == "context" {
			if err := json.Unmarshal(st.Result, &s); err != nil {
				h.t.Fatal(err)
			}
			return s
		}
	}
	h.t.Fatalf("run %s has no context", id)
	return s
}

func (h *house) write(name, content string) {
	h.t.Helper()
	full := filepath.Join(h.workspace, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(h.workspace, name))
	return err == nil
}

func task(toolName, format string, args ...any) string {
	return "do " + toolName + " " + fmt.Sprintf(format, args...)
}
