package whatsapp

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

const (
	commandTime = 30 * time.Second
	maxSaid     = 64 << 10 // bytes of what a command says
	maxList     = 8 << 20  // bytes of a list
	pipeGrace   = 2 * time.Second
)

// program is a program on this machine.
type program struct {
	path string   // as it was set up: a name to look for in PATH, or an absolute path
	env  []string // all that it gets of the environment
}

// ended is how a command ended.
type ended struct {
	out    []byte        // of its output, the first max bytes
	over   bool          // there was more
	code   int           // exit code; -1 if a signal ended it
	killed error         // why we ended it, if we did
	took   time.Duration // from its start to its end
}

// handedOn are the variables a program gets: what it finds its state and its tools by.
var handedOn = []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "SYSTEMROOT", "USERPROFILE", "APPDATA", "LOCALAPPDATA"}

// environment is what of the daemon's environment a program gets.
func environment(all []string) []string {
	out := []string{} // not nil: that would hand on all
	for _, kv := range all {
		name, _, ok := strings.Cut(kv, "=")
		if runtime.GOOS == "windows" {
			name = strings.ToUpper(name)
		}
		if ok && (slices.Contains(handedOn, name) || strings.HasPrefix(name, "XDG_") || strings.HasPrefix(name, "LC_")) {
			out = append(out, kv)
		}
	}
	return out
}

// run runs the program with arguments, no input and no shell, for at most commandTime,
// and ends it with all it started when ctx ends. What it wrote to its standard error is
// read and forgotten: it is for people, and says nothing surely. The error is Unavailable
// if the program was not started at all.
func (p program) run(ctx context.Context, max int, args ...string) (ended, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, commandTime, fault.New(fault.Timeout, "wacli did not end within %s", commandTime))
	defer cancel()
	path, err := exec.LookPath(p.path)
	if err != nil {
		return ended{}, fault.New(fault.Unavailable, "wacli is not found: %w", err).WithHint("install wacli, or set its path with wacli_path")
	}
	out, said := &firstBytes{max: max}, &firstBytes{max: maxSaid}
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // the program the operator named, with a vector of arguments
	cmd.Env = p.env
	cmd.Dir = filepath.Dir(path) // wherever we run, it is not the program's business
	cmd.Stdout, cmd.Stderr = out, said
	cmd.WaitDelay = pipeGrace
	group(cmd)
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return ended{}, fault.New(fault.Unavailable, "wacli was not started: %w", err).WithHint("see whether the file that wacli_path names is a program for this machine")
	}
	err = cmd.Wait()
	e := ended{over: out.over(), out: out.bytes(), code: cmd.ProcessState.ExitCode(), took: time.Since(begun)}
	if errors.Is(err, exec.ErrWaitDelay) {
		endGroup(cmd) // it has ended, but something it started still writes
	}
	if ctx.Err() != nil && e.code != 0 {
		e.killed = context.Cause(ctx)
	}
	return e, nil
}

// firstBytes keeps the first max bytes written to it. It takes the rest too: a program
// whose output nobody takes would stop.
type firstBytes struct {
	max int

	mu   sync.Mutex // what a program left behind may still write
	kept []byte
	more bool
}

func (f *firstBytes) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := min(len(b), f.max-len(f.kept))
	f.kept = append(f.kept, b[:n]...)
	f.more = f.more || n < len(b)
	return len(b), nil
}

func (f *firstBytes) bytes() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.kept)
}

func (f *firstBytes) over() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.more
}
