// Package shell is the tool shell.exec: it runs one program with its arguments.
// There is no shell in between, so nothing in an argument is ever interpreted.
//
// Only programs on an allow list run. The list is resolved when the daemon starts,
// to the real file; what an input names must be one of those files under the name
// it was listed by. So no spelling of a path and no wrapper (env, timeout, sh -c,
// busybox …) reaches a program that is not listed. A listed program that is known to
// start others (env, find, git, make, an interpreter) opens that door: besides its own
// scope a call of it needs all of shell.exec, so a rule that denies one program denies
// them too. Which program starts others is known from a list; one that is not on it
// is granted with all it can do by the operator who lists it.
//
// The program runs behind walls ([confine.ShellProfile]): it may change the working
// directory and nothing else, reads programs, libraries and what the configuration
// opens, and has no network unless that gives it one. Its environment is made only
// from the configuration; its standard input is /dev/null or the given text. When
// its time is up, the call is cancelled or nobody reads on, everything of it gets
// SIGTERM and 3 s later SIGKILL; what it left behind when it ended is killed as well,
// in whatever session or process group that is. Where it cannot be confined it does
// not run, unless the operator has chosen so. What it was refused is in the result
// and in the audit log.
package shell

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

const (
	defaultTimeout = 60 * time.Second
	maxTimeout     = 300 * time.Second
	grace          = 3 * time.Second // between SIGTERM and SIGKILL
	maxOutput      = 4 << 20         // bytes kept of one call
	maxArguments   = 128 << 10       // bytes of all arguments together
)

// Guard refuses files that no grant opens. Its paths are absolute.
type Guard interface {
	Read(path string) error
}

var _ Guard = (*guard.Sensitive)(nil)

// Launcher starts programs behind walls.
type Launcher interface {
	Start(ctx context.Context, s confine.Spec) (*confine.Job, error)
}

var _ Launcher = (*confine.Launcher)(nil)

// Config says what may run and how.
type Config struct {
	Allow []string // programs, by name or absolute path; default none
	Path  []string // where names are looked up; default /usr/local/bin, /usr/bin, /bin
	Env   []string // the whole environment, KEY=value, besides PATH and LANG
	Dir   string   // an existing directory, absolute; a call's cwd is in it

	Network confine.Network // default none
	Read    []string        // directories and files it may read besides; absolute
}

// Shell is the tool.
type Shell struct {
	programs []program
	missing  []string
	dir      string // resolved
	env      []string
	files    Guard
	launcher Launcher
	network  confine.Network
	read     []string
}

// New resolves the allow list.
func New(cfg Config, g Guard, l Launcher) (*Shell, error) {
	dir, err := filepath.EvalSymlinks(cfg.Dir)
	if err != nil || !filepath.IsAbs(dir) {
		return nil, fault.New(fault.Config, "the working directory %q of shell.exec must be an existing absolute one", cfg.Dir)
	}
	path := cfg.Path
	if len(path) == 0 {
		path = []string{"/usr/local/bin", "/usr/bin", "/bin"}
	}
	s := &Shell{dir: dir, files: g, launcher: l, network: cfg.Network, read: cfg.Read}
	for _, entry := range cfg.Allow {
		p, found, err := lookUp(entry, path)
		if err != nil {
			return nil, err
		}
		if !found {
			s.missing = append(s.missing, entry)
			continue
		}
		s.programs = append(s.programs, p)
	}
	s.env = append([]string{"PATH=" + strings.Join(path, string(filepath.ListSeparator)), "LANG=C.UTF-8"}, cfg.Env...)
	return s, nil
}

// Missing returns the entries of the allow list that were not found on this
// machine. They can run only after a restart.
func (s *Shell) Missing() []string { return s.missing }

// Register makes the tool known to r.
func (s *Shell) Register(r *tool.Registry) error { return r.Add(s.definition(), s.run) }

const schema = `{"type":"object","additionalProperties":false,"required":["argv"],"properties":{
"argv":{"type":"array","minItems":1,"maxItems":512,"items":{"type":"string","maxLength":65536},"description":"program and its arguments, one string each; no shell syntax"},
"cwd":{"type":"string","maxLength":4096,"description":"directory to run in, relative to the working directory"},
"stdin":{"type":"string","maxLength":1048576,"description":"text for standard input, default none"},
"timeout_s":{"type":"integer","minimum":1,"maximum":300,"description":"seconds it may take, default 60"}}}`

type input struct {
	Argv    []string `json:"argv"`
	Cwd     string   `json:"cwd"`
	Stdin   string   `json:"stdin"`
	Timeout int      `json:"timeout_s"`
}

func (s *Shell) definition() tool.Definition {
	return tool.Definition{
		Name: "shell.exec",
		Description: "Run one program with arguments, without a shell: no pipes, no globs, no variables. Output and errors come " +
			"together, then a last line in brackets says how it ended. Programs that may run: " + s.allowed(),
		Input: json.RawMessage(schema), Kind: tool.Effect, Irreversible: true, Repeat: tool.AtMostOnce,
		Timeout: maxTimeout + 2*grace, MaxOutput: maxOutput, Source: label.Untrusted("shell"),
		Scopes: func(raw json.RawMessage) ([]scope.Scope, error) {
			c, err := s.plan(raw)
			if err != nil {
				return nil, err
			}
			need, err := scope.Of("shell.exec", c.program.path)
			if err != nil {
				return nil, err
			}
			if c.program.runsOthers() {
				return []scope.Scope{need, scope.Must("shell.exec")}, nil
			}
			return []scope.Scope{need}, nil
		},
		// A program can talk to anybody it likes, now or by a file it leaves.
		Destination: func(raw json.RawMessage) tool.Destination {
			in, _ := tool.Decode[input](raw) // validated
			return tool.Destination{Readers: label.Anyone, Name: "whatever " + tool.Show(in.Argv[0]) + " talks to"}
		},
		Touches: func(raw json.RawMessage) []string {
			c, err := s.plan(raw)
			if err != nil {
				return nil // it will not run
			}
			return []string{c.dir, s.dir} // it starts in the one and may write in all of the other
		},
		Summary: summary,
	}
}

func (s *Shell) allowed() string {
	if len(s.programs) == 0 {
		return "none"
	}
	names := make([]string, 0, len(s.programs))
	for _, p := range s.programs {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// command is a call that may run, down to the file and the directory.
type command struct {
	program program
	args    []string // without the program
	dir     string
	env     []string
	stdin   string
	timeout time.Duration
}

func (s *Shell) plan(raw json.RawMessage) (command, error) {
	in, err := tool.Decode[input](raw)
	if err != nil {
		return command{}, err
	}
	p, err := s.find(in.Argv[0])
	if err != nil {
		return command{}, err
	}
	dir, err := s.workIn(in.Cwd)
	if err != nil {
		return command{}, err
	}
	if err := s.checkArguments(in.Argv[1:], dir); err != nil {
		return command{}, err
	}
	c := command{program: p, args: in.Argv[1:], dir: dir, env: s.env, stdin: in.Stdin, timeout: defaultTimeout}
	if in.Timeout > 0 {
		c.timeout = min(time.Duration(in.Timeout)*time.Second, maxTimeout)
	}
	return c, nil
}

func (s *Shell) workIn(cwd string) (string, error) {
	if !filepath.IsAbs(cwd) {
		cwd = filepath.Join(s.dir, cwd)
	}
	dir, err := filepath.EvalSymlinks(cwd)
	if err != nil {
		return "", fault.New(fault.NotFound, "there is no directory %s to run in", tool.Show(cwd))
	}
	if rel, err := filepath.Rel(s.dir, dir); err != nil || !filepath.IsLocal(rel) {
		return "", fault.New(fault.Denied, "%s is outside the working directory", tool.Show(cwd))
	}
	return dir, s.files.Read(dir)
}

// checkArguments refuses arguments that plainly name a guarded file. It is a help
// against accidents and simple attempts; confinement is what holds.
func (s *Shell) checkArguments(args []string, dir string) error {
	total := 0
	for _, arg := range args {
		total += len(arg)
		if strings.ContainsRune(arg, 0) {
			return fault.New(fault.Invalid, "an argument holds a NUL byte: %s", tool.Show(arg))
		}
		for _, path := range pathsIn(arg) {
			if !filepath.IsAbs(path) {
				path = filepath.Join(dir, path)
			}
			if err := s.readable(filepath.Clean(path)); err != nil {
				return err
			}
		}
	}
	if total > maxArguments {
		return fault.New(fault.Invalid, "the arguments have %d bytes together, at most %d", total, maxArguments)
	}
	return nil
}

func (s *Shell) readable(path string) error {
	if err := s.files.Read(path); err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil || real == path {
		return nil //nolint:nilerr // not a file, or the same
	}
	return s.files.Read(real)
}

// maxPaths bounds what is looked at of one argument.
const maxPaths = 32

// pathsIn returns what in an argument may be a path: all of it, what stands behind
// a separator as in --file=x, user:x, @x, and from the first slash on as in -f/x.
func pathsIn(arg string) []string {
	if arg == "" {
		return nil
	}
	paths := []string{arg}
	if i := strings.IndexByte(arg, '/'); i > 0 {
		paths = append(paths, arg[i:])
	}
	for i := 0; i < len(arg)-1 && len(paths) < maxPaths; i++ {
		if strings.IndexByte("=:@,;", arg[i]) >= 0 {
			paths = append(paths, arg[i+1:])
		}
	}
	return slices.DeleteFunc(paths, func(p string) bool { return len(p) > 4096 })
}

func (s *Shell) run(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	c, err := s.plan(inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	if err := ctx.Err(); err != nil {
		return tool.Output{}, err
	}
	out, err := s.start(ctx, c, confine.Owner{Subject: inv.Subject, Tool: "shell.exec", Run: inv.Run, Step: inv.Step})
	if err != nil {
		return tool.Output{}, err
	}
	return tool.Output{Reader: out}, nil
}

const maxSummary = 1000 // bytes

func summary(raw json.RawMessage) string {
	in, _ := tool.Decode[input](raw) // validated; nothing to show gives "run"
	var b strings.Builder
	b.WriteString("run")
	for i, arg := range in.Argv {
		shown := tool.Show(arg)
		if strings.ContainsAny(arg, " \"'") && shown == arg {
			shown = fmt.Sprintf("%q", arg)
		}
		if b.Len()+len(shown) > maxSummary {
			fmt.Fprintf(&b, " … and %d more arguments", len(in.Argv)-i)
			break
		}
		b.WriteString(" " + shown)
	}
	if in.Cwd != "" {
		b.WriteString(" in " + tool.Show(in.Cwd))
	}
	if in.Stdin != "" {
		fmt.Fprintf(&b, " with %d bytes of input", len(in.Stdin))
	}
	return b.String()
}
