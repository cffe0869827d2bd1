package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/supervise"
)

// Launcher starts programs; it is a *confine.Launcher.
type Launcher interface {
	Start(ctx context.Context, s confine.Spec) (*confine.Job, error)
}

// Command is one call of the git program.
type Command struct {
	Profile confine.Profile
	Owner   confine.Owner
	Dir     string
	Args    []string // without "git"
	Env     []string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
}

// Git runs git. The error of a git that ran and failed is an ExitError.
type Git interface {
	Run(ctx context.Context, c Command) error
}

// ExitError is how a git that failed ended.
type ExitError struct{ How string }

func (e ExitError) Error() string { return e.How }

// ErrNoGit is why there is no checkpoint on a machine without git.
var ErrNoGit = fault.New(fault.Unavailable, "git is not on this machine")

// Program is git as a confined job.
type Program struct {
	launcher Launcher
	path     string
}

var _ Git = (*Program)(nil)

// Directories git is looked for in.
var programDirs = []string{"/usr/local/bin", "/usr/bin", "/bin", "/opt/homebrew/bin", "/opt/local/bin"}

// NewProgram returns the machine's git, to be run by launcher.
func NewProgram(l Launcher) *Program {
	p := &Program{launcher: l}
	for _, dir := range programDirs {
		path := filepath.Join(dir, "git")
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			p.path = path
			break
		}
	}
	return p
}

// Run runs git and returns when it and everything it started is gone.
func (p *Program) Run(ctx context.Context, c Command) error {
	if p.path == "" {
		return ErrNoGit
	}
	job, err := p.launcher.Start(ctx, confine.Spec{
		Path: p.path, Args: append([]string{"git"}, c.Args...), Env: append([]string{"PATH=" + strings.Join(programDirs, ":")}, c.Env...),
		Dir: c.Dir, Stdin: c.Stdin, Stdout: c.Stdout, Stderr: c.Stderr, Profile: c.Profile, Owner: c.Owner,
	})
	if err != nil {
		return err
	}
	select {
	case <-job.Done():
	case <-ctx.Done():
		job.Kill()
	}
	exit, err := job.Wait()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case exit.Code != 0 || exit.Signal != "":
		return ExitError{exit.String()}
	}
	return nil
}

// overrides take from a repository's config, and the operator's, whatever would run
// a program, write elsewhere or change what git answers.
var overrides = []string{
	"core.fsmonitor=false", "core.hooksPath=" + os.DevNull, "core.untrackedCache=false", "core.splitIndex=false", "core.logAllRefUpdates=false",
	"core.sshCommand=false", "core.askPass=false", "core.gitProxy=false", "core.pager=cat", "core.looseCompression=1", "core.warnAmbiguousRefs=false",
	"core.filesRefLockTimeout=2000", "core.packedRefsTimeout=5000",
	"protocol.allow=never", "credential.helper=", "gc.auto=0", "maintenance.auto=false", "advice.objectNameWarning=false",
	"index.threads=1", "pack.threads=1", "diff.ignoreSubmodules=all", "diff.external=", "diff.renames=false", "diff.orderFile=",
}

// environment is the whole of git's, but for PATH.
func (r *repo) environment() []string {
	home := r.home
	if home == "" {
		home = filepath.Join(r.private, "none")
	}
	return SafeEnv(home, r.gitDir, r.top)
}

const maxStderr = 4 << 10

// git runs git in the repository. What goes wrong is told in git's own words.
func (r *repo) git(ctx context.Context, c gitCall) error {
	args := SafeArgs(c.config...)
	env := r.environment()
	if c.ownIndex {
		env = append(env, "GIT_INDEX_FILE="+r.index())
	}
	stderr := &supervise.Tail{Most: maxStderr}
	cmd := Command{
		Profile: r.profile(), Owner: r.owner, Dir: r.top, Args: append(args, c.args...), Env: env, Stdin: c.in, Stdout: c.out, Stderr: stderr,
	}
	err := r.runner.Run(ctx, cmd)
	if exit, ok := errors.AsType[ExitError](err); ok {
		said := strings.TrimSpace(stderr.String())
		if said == "" {
			said = exit.How
		}
		return fault.New(fault.Unavailable, "git %s: %s: %w", c.args[0], said, err)
	}
	return err
}

type gitCall struct {
	args     []string
	config   []string // further overrides
	ownIndex bool
	in       io.Reader
	out      io.Writer
}

// ask is git with its whole answer.
func (r *repo) ask(ctx context.Context, c gitCall) ([]byte, error) {
	var out bytes.Buffer
	c.out = &out
	err := r.git(ctx, c)
	return out.Bytes(), err
}

func (r *repo) profile() confine.Profile {
	p := confine.GitProfile(r.top)
	p.Write = append(p.Write, r.gitDir, r.commonDir, r.private)
	return p
}
