//go:build linux

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/secret"
	"github.com/ombud-run/ombud/internal/supervise"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

// stand is the servers of one store with what they stand on.
type stand struct {
	t        testing.TB
	db       *db.DB
	vault    *vault.Vault
	log      *eventlog.Log
	audit    *audit.Audit
	launcher *confine.Launcher
	tools    *tool.Registry
	invoker  *tool.Invoker
	dir      string
	starts   atomic.Int64
	live     atomic.Int64
	most     atomic.Int64
	*Servers

	mu     sync.Mutex
	told   []string
	kept   [][]byte
	hidden []string
	held   atomic.Bool
	secret func(name string) (secret.Value, error)
	ask    func(ctx context.Context, q Asked) (Answer, error)
}

// quick is a Config for tests: soon again, patient where a slow machine needs it.
func quick() Config {
	return Config{
		Handshake: patience, Quiet: patience, List: patience, ReadyWait: patience, StopGrace: 5 * time.Second, Relist: time.Millisecond,
		Backoff: []time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond}, Stable: time.Hour,
	}
}

func setup(t testing.TB, d *db.DB, cfg Config, tune ...func(*stand)) *stand {
	t.Helper()
	v, err := vault.OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{t: t, db: d, vault: v, dir: t.TempDir()}
	quiet := slog.New(slog.DiscardHandler)
	if s.launcher, err = confine.New(confine.Options{Enforce: confine.EnforceBest, Logger: quiet}); err != nil {
		t.Fatal(err)
	}
	s.log = eventlog.NewLog(d, v, quiet, eventlog.Options{})
	s.audit = audit.New(d, v, "test", quiet)
	if err := s.audit.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, f := range tune {
		f(s)
	}
	s.boot(cfg)
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if n := s.live.Load(); n != 0 {
			t.Errorf("%d children are left", n)
		}
		if _, err := audit.Verify(context.Background(), d, v.Keys()); err != nil {
			t.Error(err)
		}
		if err := s.audit.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		s.launcher.Close()
	})
	return s
}

func (s *stand) launch(ctx context.Context, sp confine.Spec) (supervise.Child, error) {
	job, err := s.launcher.Start(ctx, sp)
	if err != nil {
		return nil, err
	}
	s.starts.Add(1)
	n := s.live.Add(1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	c := &counted{Job: job, gone: make(chan struct{})}
	go func() {
		<-job.Done()
		s.live.Add(-1)
		close(c.gone)
	}()
	return c, nil
}

// counted is a job that is gone when it was counted.
type counted struct {
	*confine.Job
	gone chan struct{}
}

func (c *counted) Done() <-chan struct{} { return c.gone }

// boot makes the parts anew, as another daemon on the same store would.
func (s *stand) boot(cfg Config) {
	s.t.Helper()
	s.tools, s.invoker = tool.NewRegistry(slog.New(slog.DiscardHandler))
	s.Servers = New(Deps{
		Ask: s.ask, DB: s.db, Vault: s.vault, Log: s.log, Audit: s.audit, Tools: s.tools, Launch: s.launch, Version: "test", Hold: s.held.Load,
		Dir:    func(name string) string { return filepath.Join(s.dir, name) },
		Redact: func(text string) string { return strings.ReplaceAll(text, "sesame", "•••") },
		Secret: func(_ context.Context, name string) (secret.Value, error) {
			if s.secret == nil {
				return secret.Value{}, errors.New("no secrets")
			}
			return s.secret(name)
		},
		Know: func(_, value string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.hidden = append(s.hidden, value)
		},
		Keep: func(_ context.Context, b []byte) (string, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.kept = append(s.kept, b)
			return fmt.Sprint("blob_", len(s.kept)), nil
		},
		Tell: func(_ context.Context, tx *db.Tx, cause, text string) error {
			tx.AfterCommit(func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.told = append(s.told, text)
			})
			return nil
		},
	}, cfg)
	if err := errors.Join(s.Open(s.t.Context()), s.Start(s.t.Context())); err != nil {
		s.t.Fatal(err)
	}
}

// spec is a server of the test binary that plays mode.
func spec(mode string, args ...string) Spec {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return Spec{Name: "act", Command: append([]string{exe, "mcp-server", mode}, args...), Network: "none"}
}

func (s *stand) add(sp Spec) {
	s.t.Helper()
	if _, err := s.Add(s.t.Context(), sp, "operator"); err != nil {
		s.t.Fatal(err)
	}
}

// with adds a server, waits for it and accepts what it offers.
func (s *stand) with(sp Spec) Info {
	s.t.Helper()
	s.add(sp)
	s.ready()
	return s.accept()
}

func (s *stand) accept() Info {
	s.t.Helper()
	_, seen, err := s.Diff("act")
	if err != nil {
		s.t.Fatal(err)
	}
	info, err := s.Accept(s.t.Context(), "act", seen, "operator")
	if err != nil {
		s.t.Fatal(err)
	}
	return info
}

// until waits for what a server is to become.
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
	return s.until("ready", func(i Info) bool { return i.State == Ready })
}

func (s *stand) failing(want string) Info {
	s.t.Helper()
	return s.until("failed with "+want, func(i Info) bool { return strings.Contains(i.Error, want) })
}

// call makes a call as act would.
func (s *stand) call(ctx context.Context, name, input string) (tool.Output, error) {
	def, err := s.tools.Get(name)
	if err != nil {
		return tool.Output{}, err
	}
	return s.invoker.Call(ctx, name, tool.Invocation{
		Run: "run_1", Step: "tool/0.0", Key: "run_1/tool/0.0", Input: json.RawMessage(input), Digest: s.tools.Digest(def.Name),
		Asking: func(ctx context.Context) (context.Context, func()) { return context.WithCancel(ctx) },
	})
}

// says makes a call that has to go well.
func (s *stand) says(name, input string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	out, err := s.call(ctx, name, input)
	if err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	if out.JSON != nil {
		return string(out.JSON)
	}
	return out.Text
}

func (s *stand) tool(info Info, name string) Tool {
	for _, t := range info.Tools {
		if t.Tool == name {
			return t
		}
	}
	return Tool{}
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
				out = append(out, e.Outcome+": "+e.Reason)
			}
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}
