package delegate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// The tools of which a delegation is made.
const (
	CallTool   = "delegate.call"
	ClaudeTool = "claude_code.call" // KARMAX's names for the same
	CodexTool  = "codex.call"
	RunTool    = "harness.run"
	ApplyTool  = "delegate.apply"
)

// Bounds of a task.
const (
	maxPrompt  = 128 << 10
	maxChecks  = 8
	maxTools   = 64
	maxSeconds = 24 * 3600
)

const callSchema = `{"type":"object","additionalProperties":false,"required":["prompt"],"properties":{
"prompt":{"type":"string","minLength":1,"maxLength":131072,"description":"the whole task: the agent knows nothing of this conversation"},
"harness":{"type":"string","maxLength":64,"description":"claude, codex, gemini, opencode, pi or another that is set up; default the operator's"},
"model":{"type":"string","maxLength":200,"description":"a model of its vendor; default its own"},
"dir":{"type":"string","maxLength":4096,"description":"absolute directory it works in; default the workspace"},
"write":{"type":"boolean","description":"true: it may change files, in a git worktree of its own, and what it changed comes back as a patch; default false: it reads"},
"session":{"type":"string","maxLength":64,"description":"ses_… of an earlier delegation, to go on with it"},
"background":{"type":"boolean","description":"true: answers at once, and you are told when it has ended; take it for all that may take longer than a minute"},
"timeout_s":{"type":"integer","minimum":1,"maximum":86400,"description":"seconds it may work"},
"tools":{"type":"array","maxItems":64,"items":{"type":"string","minLength":1,"maxLength":128},"description":"tools of ombud it may use, names or name.*; default none"},
"checks":{"type":"array","maxItems":8,"items":{"type":"string","minLength":1,"maxLength":4096},"description":"commands that are run where it wrote, afterwards, such as go test ./..."}}}`

const karmaxSchema = `{"type":"object","additionalProperties":false,"required":["prompt"],"properties":{
"prompt":{"type":"string","minLength":1,"maxLength":131072,"description":"the whole task: the agent knows nothing of this conversation"},
"session_id":{"type":"string","maxLength":64,"description":"ses_… of an earlier call, to go on with it"},
"working_dir":{"type":"string","maxLength":4096,"description":"absolute directory it works in; default the workspace"},
"write":{"type":"boolean","description":"true: it may change files, in a git worktree of its own; default false"},
"ephemeral":{"type":"boolean","description":"true: what it remembers is deleted afterwards"},
"background":{"type":"boolean","description":"true: answers at once, and you are told when it has ended"}}}`

// callInput is the input of all three; each schema lets in what it knows.
type callInput struct {
	Prompt     string   `json:"prompt,omitempty"`
	Harness    string   `json:"harness,omitempty"`
	Model      string   `json:"model,omitempty"`
	Dir        string   `json:"dir,omitempty"`
	WorkingDir string   `json:"working_dir,omitempty"`
	Write      bool     `json:"write,omitempty"`
	Session    string   `json:"session,omitempty"`
	SessionID  string   `json:"session_id,omitempty"`
	Background bool     `json:"background,omitempty"`
	Ephemeral  bool     `json:"ephemeral,omitempty"`
	Seconds    int      `json:"timeout_s,omitempty"`
	Tools      []string `json:"tools,omitempty"`
	Checks     []string `json:"checks,omitempty"`
}

// Order is what is asked for, by whoever asks.
type Order struct {
	Want
	Task // Harness, Model, Why, Limit and what is empty of Session and Dir are filled in
}

func (in callInput) order(name harness.Name) Order {
	return Order{
		Want: Want{cmp.Or(in.Harness, string(name)), in.Model},
		Task: Task{
			Prompt: in.Prompt, Session: cmp.Or(in.Session, in.SessionID), Dir: cmp.Or(in.Dir, in.WorkingDir), Write: in.Write,
			Background: in.Background, Ephemeral: in.Ephemeral, Seconds: in.Seconds, Tools: in.Tools, Checks: in.Checks,
		},
	}
}

// Register makes the tools known to r.
func (s *Service) Register(r *tool.Registry) error {
	err := errors.Join(
		r.Add(permitDefinition(), func(context.Context, tool.Invocation) (tool.Output, error) { return tool.Output{Text: "allowed"}, nil }),
		r.Add(s.runDefinition(), s.perform), r.Add(s.applyDefinition(), s.applied),
	)
	for _, alias := range []struct {
		name   string
		cli    harness.Name
		schema string
		says   string
	}{
		{CallTool, "", callSchema, "Gives a task to a coding agent, which reads and writes code, runs commands and answers with a report."},
		{ClaudeTool, harness.Claude, karmaxSchema, "Gives a task to Claude Code. delegate.call can do more."},
		{CodexTool, harness.Codex, karmaxSchema, "Gives a task to Codex. delegate.call can do more."},
	} {
		def := s.callDefinition(alias.cli)
		def.Name, def.Description, def.Input = alias.name, alias.says, json.RawMessage(alias.schema)
		err = errors.Join(err, r.Add(def, func(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
			return s.called(ctx, inv, alias.cli)
		}))
	}
	return err
}

// callDefinition is what all three have in common. To whom the task is told is left out:
// it may be told to anybody.
func (s *Service) callDefinition(cli harness.Name) tool.Definition {
	read := func(raw json.RawMessage) Order {
		in, _ := tool.Decode[callInput](raw) // validated
		return in.order(cli)
	}
	return tool.Definition{
		Kind: tool.Local, Timeout: 30 * time.Second, MaxOutput: 4 << 10, Source: label.Own,
		Scopes: func(raw json.RawMessage) ([]scope.Scope, error) { return s.needs(read(raw)) },
		Summary: func(raw json.RawMessage) string {
			o := read(raw)
			text := "give " + cmp.Or(o.Want.Harness, "a coding agent")
			if o.Write {
				text += ", which may write in a worktree,"
			}
			if o.Dir != "" {
				text += " in " + tool.Show(o.Dir)
			}
			if len(o.Tools) > 0 {
				text += " with the tools " + tool.ShowUpTo(strings.Join(o.Tools, ", "), maxAsked)
			}
			text += " the task: " + tool.ShowUpTo(o.Prompt, maxAsked/2)
			var checks strings.Builder
			for _, c := range o.Checks {
				checks.WriteString("; and run " + whole(c))
			}
			return text + checks.String()
		},
	}
}

// needs are the scopes of an order: the harness, the directory it reads or works from, and
// the running of commands, if it names checks.
func (s *Service) needs(o Order) ([]scope.Scope, error) {
	name := o.Want.Harness
	if h, _, err := s.pick(name); err == nil {
		name = h.Name
	}
	if name == "" {
		name = "default" // there is none here, which is said to whoever may give work at all
	}
	dir, err := s.place(o.Dir)
	if err != nil {
		return nil, err
	}
	use, err := scope.Of("harness", name)
	if err != nil {
		return nil, err
	}
	files, err := filesIn(dir, o.Write)
	if err != nil || len(o.Checks) == 0 {
		return []scope.Scope{use, files}, err
	}
	command, err := scope.Of("harness", name+"/"+child.KindCommand) // a check is one, whoever wants it
	return []scope.Scope{use, files, command}, err
}

// filesIn is the scope of all that is in a directory.
func filesIn(dir string, write bool) (scope.Scope, error) {
	if write {
		return under("fs.write", dir)
	}
	return under("fs.read", dir)
}

// under is the scope of a base for a directory and all below it.
func under(base, dir string) (scope.Scope, error) {
	top, err := scope.Of(base, dir) // whose text has every special character of the path escaped
	if err != nil {
		return top, err
	}
	return scope.Parse(strings.TrimSuffix(top.String(), "/") + "/**")
}

// place is the directory of an order: absolute, there, and without links.
func (s *Service) place(dir string) (string, error) {
	if dir == "" {
		dir = s.cfg.Workspace
	}
	if !filepath.IsAbs(dir) {
		return "", fault.New(fault.Invalid, "the directory %q is not absolute", fault.Cut(dir, 200))
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fault.New(fault.NotFound, "the directory %s cannot be worked in: %w", fault.Cut(dir, 200), err).WithHint("name one that is there")
	}
	if st, err := os.Stat(real); err != nil || !st.IsDir() {
		return "", fault.New(fault.Invalid, "%s is no directory", fault.Cut(dir, 200))
	}
	return real, nil
}

// called is the handler of delegate.call and its other names.
func (s *Service) called(ctx context.Context, inv tool.Invocation, cli harness.Name) (tool.Output, error) {
	in, err := tool.Decode[callInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	o := in.order(cli)
	o.Subject, o.Conversation, o.Readers, o.Tier, o.Label, o.Unattended = inv.Subject, inv.Conversation, inv.Readers, inv.Tier, inv.Label, inv.Unattended
	if err := s.mayGoOn(ctx, inv, o); err != nil {
		return tool.Output{}, err
	}
	started, err := s.StartTx(ctx, inv.Tx, o, inv.Run)
	if err != nil {
		return tool.Output{}, err
	}
	if !o.Background {
		return tool.Output{Awaits: started.Run}, nil
	}
	return tool.Output{Text: "begun as " + started.Run + " by " + started.Route.String() + " in session " + started.Session +
		"; you are told here when it has ended, so do not wait and do not begin it again"}, nil
}

// mayGoOn decides on the directory of a session whose order names none: the call was
// decided for another.
func (s *Service) mayGoOn(ctx context.Context, inv tool.Invocation, o Order) error {
	if o.Session == "" || o.Dir != "" {
		return nil
	}
	x, err := s.session(ctx, inv.Tx, o.Session)
	if err != nil {
		return err
	}
	need, err := filesIn(x.Body.Dir, o.Write)
	if err != nil {
		return err
	}
	if err := inv.Allows(ctx, need); err != nil {
		return fault.New(fault.ClassOf(err), "go on in the directory of %s: %w", x.ID, err).WithHint("name the directory of the session in the call, so that it can be asked about")
	}
	return nil
}

// Started is a delegation that was begun.
type Started struct {
	Run, Session string
	Route        Route
	Why          string
}

// StartTx begins a delegation in the caller's transaction: the decision that it may be was
// made. parent is the run that asks. Errors are those of Resolve; NotFound or Denied for a
// session that is not the caller's; Invalid for a directory that is none.
func (s *Service) StartTx(ctx context.Context, tx *db.Tx, o Order, parent string) (Started, error) {
	t := o.Task
	session := Session{ID: id.New("ses"), Created: tx.Now()}
	if t.Session != "" {
		var err error
		if session, err = s.session(ctx, tx, t.Session); err != nil {
			return Started{}, err
		}
		if err := goesOn(session, &o); err != nil {
			return Started{}, err
		}
		t.Dir = session.Body.Dir
	}
	h, route, why, err := s.Resolve(o.Want)
	if err != nil {
		return Started{}, err
	}
	if err := s.check(&t, h); err != nil {
		return Started{}, err
	}
	t.Harness, t.Model, t.Why, t.Session = h.Name, route.Model, why, session.ID
	if t.Use == "" {
		t.Use = "harness:" + h.Name
	}
	if s.cfg.Budget.Set {
		t.Limit = s.cfg.Budget.MicroUSD
	}
	session.Harness, session.Used = h.Name, tx.Now()
	if o.Session == "" {
		session.Body = SessionBody{Subject: t.Subject, Conversation: t.Conversation, Dir: t.Dir, Home: s.cfg.Home}
	}
	if err := s.saveSession(ctx, tx, session); err != nil {
		return Started{}, err
	}
	spec := run.Spec{Kind: Kind, Name: route.String(), Definition: "delegation.v1", Key: session.ID, Parent: parent, Actor: t.Subject, Input: t}
	if parent != "" {
		rec, err := s.Runs.RecordIn(ctx, tx, parent)
		if err != nil {
			return Started{}, err
		}
		spec.Cause = rec.Cause
	}
	if t.Background {
		spec.Parent = "" // nobody waits for it, so it does not end with whoever began it
	}
	runID, err := s.Runs.StartTx(ctx, tx, spec)
	if err != nil {
		return Started{}, err
	}
	err = s.insert(ctx, tx, Delegation{Run: runID, Session: session.ID, Harness: h.Name, Started: tx.Now(), Route: Routed{
		Model: t.Model, Why: why, Subject: t.Subject, Conversation: t.Conversation, Dir: t.Dir, Write: t.Write, Background: t.Background,
	}})
	return Started{runID, session.ID, route, why}, err
}

// goesOn reports whether an order may go on with a session. A session is its harness's.
func goesOn(x Session, o *Order) error {
	if o.Subject != Operator && (x.Body.Subject != o.Subject || x.Body.Conversation != o.Conversation) {
		return fault.New(fault.NotFound, "no session %q", fault.Cut(x.ID, 100)) // also its being there is not told
	}
	if x.Body.Dropped {
		return fault.New(fault.Conflict, "session %s is being forgotten", x.ID).WithHint("begin a new one; ombud delegate drop %s ends what was begun", x.ID)
	}
	if o.Want.Harness == "" {
		o.Want.Harness = x.Harness
	}
	if o.Want.Harness != x.Harness {
		return fault.New(fault.Invalid, "session %s is one of %s, not of %s", x.ID, x.Harness, o.Want.Harness)
	}
	if o.Dir != "" && filepath.Clean(o.Dir) != x.Body.Dir {
		return fault.New(fault.Invalid, "session %s works in %s", x.ID, x.Body.Dir).WithHint("leave the directory out")
	}
	return nil
}

// check refuses a task that cannot be done, and settles its directory.
func (s *Service) check(t *Task, h Harness) error {
	switch {
	case t.Prompt == "" || len(t.Prompt) > maxPrompt:
		return fault.New(fault.Invalid, "a task has 1 to %d bytes, this one has %d", maxPrompt, len(t.Prompt))
	case len(t.Checks) > 0 && !t.Write:
		return fault.New(fault.Invalid, "checks are run where something was written: set write too")
	case len(t.Checks) > 0 && s.cfg.Shell == "":
		return fault.New(fault.Unavailable, "no shell that could run checks is on this machine")
	case len(t.Checks) > maxChecks, len(t.Tools) > maxTools, t.Seconds < 0, t.Seconds > maxSeconds:
		return fault.New(fault.Invalid, "at most %d checks, %d tools and %d seconds", maxChecks, maxTools, maxSeconds)
	case t.Allow != "" && (t.Subject != Operator || !slices.Contains([]string{AllowEdits, AllowAll}, t.Allow)):
		return fault.New(fault.Invalid, "only the operator can allow %q in advance; it is edits or all", t.Allow)
	case t.Write && h.CLI == harness.Pi && t.Allow != AllowAll:
		return fault.New(fault.Denied, "pi asks nobody before it writes or runs something").
			WithHint("ombud delegate pi --write --allow all, behind its walls; or take one that asks")
	case len(t.Tools) > 0 && (s.cfg.Program == "" || s.cfg.Socket == ""):
		return fault.New(fault.Unavailable, "tools of ombud cannot be lent here")
	}
	dir, err := s.place(t.Dir)
	if err == nil && t.Session != "" && dir != t.Dir {
		return fault.New(fault.Conflict, "the directory %s of the session has become a link to elsewhere", t.Dir)
	}
	t.Dir = dir
	if err == nil && t.Write {
		_, err = placeOf(dir) // the rest of it needs git, which nobody runs in a transaction
	}
	return err
}
