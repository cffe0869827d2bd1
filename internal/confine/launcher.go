package confine

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
)

// Launcher starts jobs. It is safe for concurrent use.
type Launcher struct {
	o     Options
	log   *slog.Logger
	probe *probe

	settings settings

	mu     sync.Mutex
	jobs   map[*Job]struct{}
	closed bool
}

// New returns a Launcher. It starts nothing.
func New(o Options) (*Launcher, error) {
	if o.Exe == "" {
		o.Exe = defaultExe
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Enforce < EnforceStrict || o.Enforce > EnforceOff {
		return nil, fault.New(fault.Config, "enforcement %d is not known", o.Enforce)
	}
	l := &Launcher{o: o, log: o.Logger, jobs: map[*Job]struct{}{}}
	if l.o.System == nil {
		l.o.System = ownSystem(l)
	}
	l.probe = &probe{system: l.o.System}
	if _, err := l.resolve(o.Hide); err != nil {
		return nil, err
	}
	return l, nil
}

// Start starts a program. An error says that nothing of it ran. ctx bounds the
// start alone: end the job by its methods.
func (l *Launcher) Start(ctx context.Context, s Spec) (*Job, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := l.check(s)
	if err != nil {
		return nil, err
	}
	j, err := l.enter()
	if err != nil {
		return nil, err
	}
	if err := l.start(ctx, s, j); err != nil {
		l.leave(j)
		return nil, err
	}
	return j, nil
}

func (l *Launcher) enter() (*Job, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, fault.New(fault.Unavailable, "start a program: %w", errClosed)
	}
	j := newJob(id.New("proc"))
	l.jobs[j] = struct{}{}
	return j, nil
}

func (l *Launcher) leave(j *Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.jobs, j)
	select {
	case <-j.done:
	default:
		close(j.done)
	}
}

// Close ends every job and waits for them. Nothing starts afterwards.
func (l *Launcher) Close() {
	l.mu.Lock()
	l.closed = true
	jobs := make([]*Job, 0, len(l.jobs))
	for j := range l.jobs {
		jobs = append(jobs, j)
	}
	l.mu.Unlock()
	for _, j := range jobs {
		j.Kill()
	}
	for _, j := range jobs {
		<-j.Done()
	}
}

// maxArguments bounds what is sent to a launcher. The kernel takes less.
const maxArguments = 6 << 20

// check refuses what cannot be started, in words, and settles the paths.
func (l *Launcher) check(s Spec) (Spec, error) {
	show := func(path string) string { return strings.ToValidUTF8(path, "\uFFFD") }
	if !filepath.IsAbs(s.Path) {
		return s, fault.New(fault.Invalid, "run %s: the program's path is not absolute", show(s.Path))
	}
	if !filepath.IsAbs(s.Dir) {
		return s, fault.New(fault.Invalid, "run %s: the working directory %q is not absolute", show(s.Path), show(s.Dir))
	}
	if s.Stdin != nil && s.StdinPipe {
		return s, fault.New(fault.Invalid, "run %s: two standard inputs", show(s.Path))
	}
	size := 0
	for _, text := range slices.Concat([]string{s.Path, s.Dir}, s.Args, s.Env) {
		if strings.ContainsRune(text, 0) {
			return s, fault.New(fault.Invalid, "run %s: a NUL in its arguments, environment or paths", show(s.Path))
		}
		size += len(text) + 1
	}
	if size > maxArguments {
		return s, tooLong(s.Path)
	}
	if len(s.Args) == 0 {
		s.Args = []string{s.Path}
	}
	s.Grace = cmp.Or(s.Grace, 3*time.Second)
	var err error
	if s.Path, err = executable(s.Path); err != nil {
		return s, err
	}
	if err := directory(s.Path, s.Dir); err != nil {
		return s, err
	}
	p := &s.Profile
	p.Limits = p.Limits.defaults()
	p.Hide = slices.Concat(p.Hide, l.o.Hide) // looked up now: some of it may have come since
	for _, list := range []*[]string{&p.Read, &p.Write, &p.Hide, &p.UnixSockets} {
		if *list, err = l.resolve(*list); err != nil {
			return s, err
		}
	}
	return s, nil
}

func tooLong(path string) error {
	return fault.New(fault.Invalid, "run %s: the arguments and the environment are longer than the system takes; nothing ran", path).
		WithHint("put long input into a file or on standard input")
}

// executable returns a program's resolved path, or why it cannot be run.
func executable(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return path, fault.New(startClass(err), "run %s: %w; nothing ran", path, reason(err)).
			WithHint("check the program's name and that it is installed")
	}
	st, err := os.Stat(real)
	if err != nil {
		return path, fault.New(startClass(err), "run %s: %w; nothing ran", path, reason(err))
	}
	if !st.Mode().IsRegular() || runtime.GOOS != "windows" && st.Mode().Perm()&0o111 == 0 {
		return path, fault.New(fault.Permission, "run %s: it is not an executable file; nothing ran", path).
			WithHint("make it executable, or name the program that runs it")
	}
	return path, nil // under the name it was called by, which some programs look at
}

func directory(path, dir string) error {
	st, err := os.Stat(dir)
	if err != nil {
		return fault.New(startClass(err), "run %s in %s: %w; nothing ran", path, dir, reason(err)).
			WithHint("the working directory has to exist")
	}
	if !st.IsDir() {
		return fault.New(fault.Invalid, "run %s in %s: that is not a directory; nothing ran", path, dir)
	}
	return nil
}

// reason is what the system said, without the path that our message names.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

func startClass(err error) fault.Class {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.NotFound
	case errors.Is(err, fs.ErrPermission):
		return fault.Permission
	}
	return fault.Unavailable
}

// resolve makes a profile's paths real ones. What is not there is left out.
func (l *Launcher) resolve(paths []string) ([]string, error) {
	out := make([]string, 0, len(paths))
	for _, path := range paths {
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			if l.o.Home == "" {
				continue
			}
			path = filepath.Join(l.o.Home, rest)
		}
		if !filepath.IsAbs(path) {
			return nil, fault.New(fault.Invalid, "the path %q of a profile is not absolute", path)
		}
		real, err := filepath.EvalSymlinks(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return nil, fault.New(fault.Invalid, "the path %s of a profile: %w", path, err)
		}
		if !slices.Contains(out, real) {
			out = append(out, real)
		}
	}
	return out, nil
}

// probe asks the system what it can do and remembers the answers.
type probe struct {
	system System

	mu         sync.Mutex
	asked      time.Time
	landlock   int
	seccomp    bool
	namespaces error
}

// again is how long the refusal of namespaces is believed: it can have been for lack
// of memory or numbers.
const again = time.Minute

type abilities struct {
	landlock   int
	seccomp    bool
	namespaces error
}

func (p *probe) abilities() abilities {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked.IsZero() {
		p.landlock, p.seccomp = p.system.Landlock(), p.system.Seccomp()
	}
	if p.asked.IsZero() || p.namespaces != nil && time.Since(p.asked) > again {
		p.namespaces = p.system.Namespaces()
		p.asked = time.Now()
	}
	return abilities{p.landlock, p.seccomp, p.namespaces}
}
