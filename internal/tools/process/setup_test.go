//go:build unix

package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/supervise"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

// bare starts children without walls, in a group of their own: a thin stand-in for
// the launcher, which counts them.
type bare struct {
	mu       sync.Mutex
	started  int
	live     int
	mostLive int
	last     confine.Spec
}

func (b *bare) counts() (started, live, mostLive int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.started, b.live, b.mostLive
}

type bareJob struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{}
	exit confine.Exit
}

func (b *bare) launch(_ context.Context, s confine.Spec) (supervise.Child, error) {
	cmd := exec.Command(s.Path)
	cmd.Args, cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = s.Args, s.Env, s.Dir, s.Stdout, s.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := confine.Start(cmd); err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.started, b.live, b.last = b.started+1, b.live+1, s
	b.mostLive = max(b.mostLive, b.live)
	b.mu.Unlock()
	j := &bareJob{cmd: cmd, in: in, done: make(chan struct{})}
	go func() {
		defer close(j.done)
		_ = confine.Wait(cmd) // how it ended is in the state
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		j.exit = confine.Exit{Code: cmd.ProcessState.ExitCode()}
		b.mu.Lock()
		b.live--
		b.mu.Unlock()
	}()
	return j, nil
}

func (j *bareJob) PID() int                    { return j.cmd.Process.Pid }
func (j *bareJob) Stdin() io.WriteCloser       { return j.in }
func (j *bareJob) Wait() (confine.Exit, error) { <-j.done; return j.exit, nil }
func (j *bareJob) Stop()                       { _ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGTERM) }
func (j *bareJob) Kill()                       { _ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL) }
func (j *bareJob) Done() <-chan struct{}       { return j.done }

// stand is the processes of one store with what they stand on.
type stand struct {
	t       testing.TB
	db      *db.DB
	vault   *vault.Vault
	log     *eventlog.Log
	audit   *audit.Audit
	tools   *tool.Registry
	invoker *tool.Invoker
	bare    *bare
	logged  *logged
	dir     string
	*Processes

	mu      sync.Mutex
	notices []Notice
}

// logged keeps what is logged.
type logged struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// quick is a Config for tests: soon again, patient where a slow machine needs it.
func quick() Config {
	return Config{
		Handshake: patience, ReadyWait: patience, CancelGrace: 300 * time.Millisecond, StopGrace: 5 * time.Second,
		Backoff: []time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond}, Stable: time.Hour,
	}
}

func setup(t testing.TB, d *db.DB, cfg Config, tune ...func(*Deps)) *stand {
	t.Helper()
	v, err := vault.OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{t: t, db: d, vault: v, bare: &bare{}, logged: &logged{}, dir: t.TempDir()}
	quiet := slog.New(slog.DiscardHandler)
	s.log = eventlog.NewLog(d, v, quiet, eventlog.Options{})
	s.audit = audit.New(d, v, "test", quiet)
	if err := s.audit.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.boot(cfg, tune...)
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if _, err := audit.Verify(context.Background(), d, v.Keys()); err != nil {
			t.Error(err)
		}
		if err := s.audit.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// boot makes the parts anew, as another daemon on the same store would.
func (s *stand) boot(cfg Config, tune ...func(*Deps)) {
	s.t.Helper()
	s.tools, s.invoker = tool.NewRegistry(slog.New(slog.DiscardHandler))
	d := Deps{
		DB: s.db, Vault: s.vault, Log: s.log, Audit: s.audit, Tools: s.tools, Launch: s.bare.launch,
		Dir:    func(name string) string { return filepath.Join(s.dir, name) },
		Secret: func(_ context.Context, name string) (string, error) { return "the value of " + name, nil },
		Redact: func(text string) string { return strings.ReplaceAll(text, "sesame", "•••") },
		Notify: func(_ context.Context, n Notice) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.notices = append(s.notices, n)
			return nil
		},
		Logger: slog.New(slog.NewTextHandler(s.logged, nil)),
	}
	for _, f := range tune {
		f(&d)
	}
	s.Processes = New(d, cfg)
	if err := errors.Join(s.Open(s.t.Context()), s.Start(s.t.Context())); err != nil {
		s.t.Fatal(err)
	}
}

// spec is a process of the test binary that plays mode.
func spec(mode string, args ...string) Spec {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Spec{
		Name: "act", Command: append([]string{exe, "tool-process", mode}, args...),
		Scopes: []Bound{{Scope: scope.Must("tool:act.*")}},
	}
}

func (s *stand) add(sp Spec) {
	s.t.Helper()
	if _, err := s.Add(s.t.Context(), sp, "operator"); err != nil {
		s.t.Fatal(err)
	}
}

// until waits for what a process is to become.
func (s *stand) until(what string, is func(Info) bool) Info {
	s.t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var last Info
		for _, i := range s.List() {
			if last = i; is(i) {
				return i
			}
		}
		select {
		case <-tick.C:
		case <-deadline:
			s.t.Fatalf("never %s: %+v", what, last)
		}
	}
}

func (s *stand) ready() Info {
	s.t.Helper()
	return s.until("ready", func(i Info) bool { return i.State == Ready && i.PID != 0 })
}

// failing waits until the process failed with a reason.
func (s *stand) failing(want string) {
	s.t.Helper()
	s.until("failed with "+want, func(i Info) bool { return strings.Contains(i.Error, want) })
}

// call makes a call as act would.
func (s *stand) call(ctx context.Context, name, input string) (string, error) {
	def, err := s.tools.Get(name)
	if err != nil {
		return "", err
	}
	out, err := s.invoker.Call(ctx, name, tool.Invocation{
		Run: "run_1", Step: "tool/0.0", Key: "run_1/tool/0.0", Input: json.RawMessage(input), Digest: s.tools.Digest(def.Name),
	})
	if err != nil {
		return "", err
	}
	if out.JSON != nil {
		return string(out.JSON), nil
	}
	return out.Text, nil
}

// says makes a call that has to go well.
func (s *stand) says(name, input string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	text, err := s.call(ctx, name, input)
	if err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	return text
}

// entries are the audit entries of a kind, as "outcome: reason".
func (s *stand) entries(kind string) (out []string) {
	s.t.Helper()
	err := s.db.Read(s.t.Context(), func(ctx context.Context, q db.Q) error {
		texts, err := db.All(ctx, q, db.Column[string], "SELECT entry FROM audit ORDER BY chain, seq LIMIT 1000")
		for _, text := range texts {
			var e struct{ Kind, Outcome, Reason string }
			if err := json.Unmarshal([]byte(text), &e); err != nil {
				return err
			}
			if e.Kind == kind {
				out = append(out, fmt.Sprintf("%s: %s", e.Outcome, e.Reason))
			}
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}
