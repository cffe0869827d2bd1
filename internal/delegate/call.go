package delegate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/job"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// runInput is what the call of harness.run is decided and recorded by. The prompt is in
// the input of its run.
type runInput struct {
	Use     string `json:"use"`
	Harness string `json:"harness"`
	Model   string `json:"model,omitempty"`
	Session string `json:"session"`
	Dir     string `json:"dir"`
	Write   bool   `json:"write,omitempty"`
	Limit   int64  `json:"limit_micro_usd,omitempty"`
}

const runSchema = `{"type":"object","additionalProperties":false,"required":["use","harness","session","dir"],"properties":{"use":{"type":"string","minLength":1,"maxLength":200},
"harness":{"type":"string","minLength":1,"maxLength":64},"model":{"type":"string","maxLength":200},
"session":{"type":"string","minLength":1,"maxLength":64},"dir":{"type":"string","minLength":1,"maxLength":4096},
"write":{"type":"boolean"},"limit_micro_usd":{"type":"integer","minimum":0}}}`

// runDefinition is harness.run, the one effect of a delegation. Met again after a crash it
// goes on with its session. To whom it tells something was decided with the task.
func (s *Service) runDefinition() tool.Definition {
	return tool.Definition{
		Name: RunTool, Description: "Runs a coding agent.", Input: json.RawMessage(runSchema), Within: true,
		Kind: tool.Effect, Repeat: tool.Repeatable, Resumes: true, Timeout: maxSeconds*time.Second + outlive, Grace: 30 * time.Second,
		MaxOutput: 256 << 10, Source: label.Untrusted("harness"),
		Destination: func(json.RawMessage) tool.Destination { return tool.Destination{Nobody: true} },
		Scopes: func(raw json.RawMessage) ([]scope.Scope, error) {
			in, err := tool.Decode[runInput](raw)
			if err != nil {
				return nil, err
			}
			use, err := scope.Parse(in.Use)
			return []scope.Scope{use}, err
		},
		Summary: func(raw json.RawMessage) string {
			in, _ := tool.Decode[runInput](raw) // validated
			return "run " + Route{in.Harness, in.Model}.String() + " in " + tool.Show(in.Dir)
		},
	}
}

// work is one start of a program.
type work struct {
	run, step string
	t         Task
	h         Harness
	x         Session
	try       int
	token     string
	owner     confine.Owner
	state     string // directory of the harness
	agent     string // whose budget pays
	notes     []string
}

func (w *work) note(format string, args ...any) {
	w.notes = append(w.notes, fmt.Sprintf(format, args...))
}

// perform is the handler of harness.run.
func (s *Service) perform(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[runInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	w, err := s.prepare(ctx, inv)
	if err != nil {
		return tool.Output{}, err
	}
	rec, err := s.start(ctx, &w, in.Limit)
	if err != nil {
		return tool.Output{}, err
	}
	if ctx.Err() != nil { // its program was ended with it: nothing it said is an answer, but what it cost is
		if err := s.keep(context.WithoutCancel(ctx), w.run, Kept{Record: rec, Tree: w.x.Body.Tree, Try: w.try}); err != nil {
			s.Logger.Error("keep what a coding agent told when it was ended", "run", w.run, "error", err)
		}
		return tool.Output{}, fault.New(fault.Cancelled, "%s was ended: %w", w.h.Name, context.Cause(ctx))
	}
	rep, kept, err := s.report(ctx, &w, rec)
	if err != nil {
		return tool.Output{}, err
	}
	if err := s.keep(ctx, w.run, kept); err != nil {
		return tool.Output{}, err
	}
	raw, err := json.Marshal(rep)
	if err != nil {
		return tool.Output{}, fault.New(fault.Internal, "the report of %s: %w", w.run, err)
	}
	from := label.Join(inv.Label, label.Of(label.Untrusted("harness:"+w.h.Name), label.OperatorOnly))
	return tool.Output{JSON: raw, Label: &from, CostMicroUSD: rep.MicroUSD, Reserved: true}, nil
}

// prepare looks up what a run is to do and makes the places it works in.
func (s *Service) prepare(ctx context.Context, inv tool.Invocation) (w work, err error) {
	rec, _, err := s.Runs.Get(ctx, inv.Run)
	if err != nil {
		return w, err
	}
	w = work{run: inv.Run, step: inv.Step}
	if err := json.Unmarshal(rec.Input, &w.t); err != nil {
		return w, fault.New(fault.Internal, "input of %s: %w", inv.Run, err)
	}
	w.owner = confine.Owner{Subject: "harness:" + w.t.Harness, Tool: RunTool, Run: inv.Run, Step: inv.Step}
	// What was admitted when it was begun may not be now.
	if w.h, _, _, err = s.Resolve(Want{w.t.Harness, w.t.Model}); err != nil {
		return w, err
	}
	if err := s.DB.Read(ctx, func(ctx context.Context, q db.Q) error { w.x, err = s.session(ctx, q, w.t.Session); return err }); err != nil {
		return w, err
	}
	if w.x.Body.Home != s.cfg.Home {
		return w, fault.New(fault.Unavailable, "session %s is kept by another machine or another home", w.x.ID).WithHint("begin a new one here")
	}
	w.state = s.StateOf(w.h)
	if err := os.MkdirAll(w.state, 0o700); err != nil {
		return w, fault.New(fault.Permission, "make the directory of %s: %w", w.h.Name, err)
	}
	// What was decided on was this directory, and not one that a link leads to since.
	if real, err := filepath.EvalSymlinks(w.t.Dir); err != nil || real != w.t.Dir {
		return w, fault.New(fault.Conflict, "%s is not the directory any more that it was when the task was given", w.t.Dir)
	}
	auth, err := s.authority(ctx, w.t)
	if err == nil {
		err = s.keptOut(auth, w.t)
	}
	if err != nil {
		return w, err
	}
	if w.t.Write && !w.x.Body.Tree.There() {
		tree, err := s.plant(ctx, w.owner, w.x.ID, w.t.Dir)
		if err != nil {
			return w, err
		}
		if w.x, err = s.change(ctx, w.x.ID, func(x *Session) { x.Body.Tree = tree }); err != nil {
			return w, err
		}
	}
	return w, s.ready(ctx, &w)
}

// probed is what a program told about itself, and when.
type probed struct {
	child.Probe
	at time.Time
}

// believe is how long that is believed. A login that is missing is asked for again each time.
const believe = 10 * time.Minute

// ready refuses a program that is not logged in.
func (s *Service) ready(ctx context.Context, w *work) error {
	p, err := s.Probe(ctx, w.h)
	if err != nil {
		return err
	}
	for _, warning := range p.Warning {
		w.note("%s", warning.Detail)
	}
	if p.Login == child.LoginNo {
		return fault.New(fault.Unavailable, "%s is not logged in: %s", w.h.Name, fault.Cut(p.Detail, 200)).
			WithHint("ombud harness login %s, or a key: ombud secret set NAME and harnesses.%s.api_key: secret:NAME", w.h.Name, w.h.Name)
	}
	return nil
}

// Probe asks a program for its version and login, or tells what it said a moment ago.
func (s *Service) Probe(ctx context.Context, h Harness) (child.Probe, error) {
	s.mu.Lock()
	last, was := s.probed[h.Name]
	s.mu.Unlock()
	if was && last.Login != child.LoginNo && time.Since(last.at) < believe {
		return last.Probe, nil
	}
	return s.ProbeNow(ctx, h)
}

// ProbeNow asks a program for its version and login.
func (s *Service) ProbeNow(ctx context.Context, h Harness) (child.Probe, error) {
	if h.Program == "" {
		return child.Probe{}, fault.New(fault.Unavailable, "%s is not on this machine: %s", h.Name, h.Missing)
	}
	env, err := s.probeEnv(ctx, h)
	if err != nil {
		return child.Probe{}, err
	}
	state := s.StateOf(h)
	if err := os.MkdirAll(state, 0o700); err != nil {
		return child.Probe{}, fault.New(fault.Permission, "make the directory of %s: %w", h.Name, err)
	}
	p, err := s.Starter.Probe(ctx, child.Target{
		CLI: h.CLI, Program: h.Program, Args0: h.Args, State: state, Env: env, BaseURL: h.BaseURL, Held: h.KeyHeld(),
		Owner: confine.Owner{Subject: "harness:" + h.Name, Tool: RunTool},
	})
	if err != nil {
		return p, err
	}
	s.mu.Lock()
	s.probed[h.Name] = probed{p, time.Now()}
	s.mu.Unlock()
	return p, nil
}

// start issues the job of a run, starts its program and waits for its end.
func (s *Service) start(ctx context.Context, w *work, most int64) (harness.Record, error) {
	var err error
	if w.try, err = s.begin(ctx, w.run); err != nil {
		return harness.Record{}, err
	}
	// What an earlier start asked is asked again by this one: nobody is to be asked twice at once.
	if err := s.Jobs.EndOf(ctx, w.run, "its program died with the daemon"); err != nil {
		return harness.Record{}, err
	}
	parent, err := s.authority(ctx, w.t)
	if err != nil {
		return harness.Record{}, err
	}
	parent.Unattended, w.agent = w.t.Unattended, parent.Agent
	tools := w.t.Tools
	if tools == nil {
		tools = []string{} // nil would be all of them
	}
	j, token, err := s.Jobs.Issue(ctx, w.run, job.Spec{
		Subject: "harness:" + w.h.Name, Parent: parent, Tools: tools, Label: w.t.Label, Life: 24 * time.Hour, Calls: maxCalls,
	})
	if err != nil {
		return harness.Record{}, err
	}
	w.token = token
	rec, err := s.attempt(ctx, w, most)
	return rec, errors.Join(err, s.Jobs.End(context.WithoutCancel(ctx), j.ID, "its program has ended"))
}

// maxCalls bounds the questions and calls of one start of a program.
const maxCalls = 2000

// attempt runs the program. A session that was begun by an earlier try of this run and that
// the program knows nothing of is begun anew: it died before it kept anything.
func (s *Service) attempt(ctx context.Context, w *work, most int64) (harness.Record, error) {
	a, err := s.access(ctx, w.run, w.h, w.t.Model)
	if err != nil {
		return harness.Record{}, err
	}
	defer a.end()
	t, done, err := s.task(ctx, w, most, a)
	if err != nil {
		return harness.Record{}, err
	}
	defer done()
	// Its session may be known to us and not to it: it died, or was ended, before it kept anything.
	again := t.Session != "" && (w.try > 1 || child.TakesSession(t) && (!w.x.Body.Usage.Known || w.x.Body.Usage.Partial))
	if w.try > 1 { // also in a new session: its program may have worked before we knew of the first
		t.Prompt = "You were interrupted while you worked on the task below. Look at what is done already and go on with it.\n\n" + t.Prompt
	}
	run, end := context.WithCancelCause(ctx)
	defer end(nil)
	m, err := s.meter(ctx, w, most, end)
	if err != nil {
		return harness.Record{}, err
	}
	t.Spent = func(name string, u harness.Usage, c harness.Cost) { m.spent(context.WithoutCancel(ctx), name, u, c) }
	rec, err := s.Starter.Run(run, t)
	m.ended(&rec)
	if err != nil || rec.Outcome != harness.NotStarted || !again || ctx.Err() != nil {
		return rec, err
	}
	w.note("the session it had begun before it was interrupted is lost; it began anew")
	t.Session, t.NewSession = "", ""
	// What it counts over its session begins anew too.
	if w.x, err = s.change(ctx, w.x.ID, func(x *Session) { x.Body.MicroUSD, x.Body.Usage = 0, harness.Usage{} }); err != nil {
		return rec, err
	}
	if child.TakesSession(t) {
		t.NewSession = uuid.NewString()
		if err := s.know(ctx, w, t.NewSession); err != nil {
			return rec, err
		}
	}
	rec, err = s.Starter.Run(run, t)
	m.ended(&rec)
	return rec, err
}

// know records the program's own id of the session.
func (s *Service) know(ctx context.Context, w *work, native string) error {
	if native == "" || native == w.x.Body.Native {
		return nil
	}
	x, err := s.change(ctx, w.x.ID, func(x *Session) { x.Body.Native = native })
	if err == nil {
		w.x = x
	}
	return err
}

// advice is what every program is told beside its task.
const advice = "You work for ombud, without anybody at a terminal: ask no questions, and end with a short report of what you did and found. " +
	"Leave what you change in the files of the working tree: do not commit, push or make branches."

// task is what the program is started with.
func (s *Service) task(ctx context.Context, w *work, most int64, a access) (t child.Task, done func(), err error) {
	t = child.Task{
		CLI: w.h.CLI, Program: w.h.Program, Args0: w.h.Args, Model: w.t.Model, Prompt: w.t.Prompt, System: advice, Dir: w.t.Dir, Write: w.t.Write,
		State: w.state, Env: a.env, BaseURL: a.base, Held: a.held, Stands: a.stands, Wall: s.limit(w.t), Quiet: s.cfg.Quiet, BudgetMicroUSD: most, Owner: w.owner,
		Started: func(native string) {
			if err := s.know(context.WithoutCancel(ctx), w, native); err != nil {
				s.Logger.Error("keep the session of a coding agent", "run", w.run, "error", err)
			}
		},
	}
	if p, err := s.Probe(ctx, w.h); err == nil {
		t.Version = p.Version
	}
	if w.t.Write {
		if t.Dir, err = w.x.Body.Tree.place(); err != nil {
			return t, nil, err
		}
		t.Permit = func(ctx context.Context, a child.Ask) child.Answer { return s.leave(ctx, *w, a) }
	}
	t.Session = w.x.Body.Native
	if t.Session == "" && child.TakesSession(t) {
		t.NewSession = uuid.NewString()
		if err := s.know(ctx, w, t.NewSession); err != nil {
			return t, nil, err
		}
	}
	if tree := w.x.Body.Tree; w.t.Write {
		t.Change, t.Read = []string{tree.Path}, []string{tree.Common} // git reads there what the worktree is of
	}
	if len(w.t.Tools) == 0 {
		return t, func() {}, nil
	}
	return s.lend(t, w)
}

// lend gives the program ombud's tools by a server of MCP. Its token is in a file that only
// this run can read, and only while it works.
func (s *Service) lend(t child.Task, w *work) (child.Task, func(), error) {
	s.sweep(w.state)
	f, err := os.CreateTemp(w.state, tokenFile)
	if err != nil {
		return t, nil, fault.New(fault.Permission, "a file for the token of %s: %w", w.run, err)
	}
	done := func() {
		if err := os.Remove(f.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Logger.Warn("remove the token of a job", "run", w.run, "error", err)
		}
	}
	if _, err = f.WriteString(w.token); err == nil {
		err = f.Close()
	}
	if err != nil {
		done()
		return t, nil, fault.New(fault.Permission, "write the token of %s: %w", w.run, err)
	}
	t.Sockets, t.Read = append(t.Sockets, s.cfg.Socket), append(t.Read, f.Name())
	t.MCP = &child.MCP{Command: s.cfg.Program, Args: []string{"mcp", "serve", "--socket", s.cfg.Socket, "--token-file", f.Name()}}
	return t, done, nil
}

// tokenFile begins the name of a file with the token of a job.
const tokenFile = ".job-"

// sweep removes, the first time here, the tokens that were left when a daemon was killed.
func (s *Service) sweep(state string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.swept[state] {
		return
	}
	s.swept[state] = true
	left, err := filepath.Glob(filepath.Join(state, tokenFile+"*"))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		s.Logger.Warn("remove the tokens of jobs that have ended", "error", err)
	}
}

// forget deletes what a harness keeps of a session, by the program's own id of it.
func (s *Service) forget(w *work) error {
	native := w.x.Body.Native
	if len(native) < 16 { // too short to be told from other names
		return fault.New(fault.Unavailable, "what %s remembers of %s cannot be found by its id", w.h.Name, w.x.ID)
	}
	root, err := os.OpenRoot(w.state) // another session's program may be at work there, and move what is walked
	if err != nil {
		return fault.New(fault.Permission, "what %s remembers: %w", w.h.Name, err)
	}
	defer func() { _ = root.Close() }() // nothing was written to it
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.Contains(d.Name(), native) {
			return nil //nolint:nilerr // what cannot be read is not its transcript
		}
		if err := root.RemoveAll(path); err != nil {
			return err
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
}
