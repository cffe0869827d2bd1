//go:build unix

package process

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// TestAProcessThatBreaksTheProtocolIsEnded: whatever it does, it is ended with a
// reason a person can use, started again later, and never twice at a time.
func TestAProcessThatBreaksTheProtocolIsEnded(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{
		"die-at-start":    "exit code 3; the last it said: I die at once",
		"die-after-hello": "exit code 3",
		"garbage":         "a frame that is not JSON",
		"text":            `plain text on its standard output, which begins with "hell"`,
		"half":            "exit code 0",
		"huge":            "over the limit",
		"version":         "it speaks version 9.1, ombud speaks 0.1",
		"no-type":         "not an object with a type",
		"wrong-types":     "a ToolRegister that cannot be read",
		"early":           "a ToolResult before it has registered",
		"twice":           "registers a second time",
		"many":            "registers 200 tools, at most 128",
		"closed":          "closed its standard output and lived on",
		"unknown-types":   "messages that are of no use",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := setup(t, dbtest.SQLite(t), quick())
			s.add(spec(mode))
			s.failing(want)
			s.until("started again", func(i Info) bool { return i.Failures > 1 })
			if _, _, most := s.bare.counts(); most > 1 {
				t.Errorf("%d children at a time", most)
			}
		})
	}
}

func TestAProcessThatNeverRegistersIsEndedAfterAWhile(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"silent", "half-and-live"} {
		cfg := quick()
		cfg.Handshake = 300 * time.Millisecond
		s := setup(t, dbtest.SQLite(t), cfg)
		s.add(spec(mode))
		s.failing("did not register within 300ms")
	}
}

// TestTwoHundredFailedHandshakesLeaveNothing is row 81: no children pile up, and no
// descriptors.
func TestTwoHundredFailedHandshakesLeaveNothing(t *testing.T) {
	cfg := quick()
	cfg.Backoff, cfg.CrashLoop = []time.Duration{time.Millisecond}, 50
	s := setup(t, dbtest.SQLite(t), cfg)
	s.add(spec("die-after-hello"))
	s.until("failed", func(i Info) bool { return i.Failures >= 10 })
	before := descriptors(t)
	s.until("failed 200 times", func(i Info) bool { return i.Failures >= 200 })
	if after := descriptors(t); after > before+12 { // three of a child that is just starting, and the store's
		t.Errorf("%d descriptors, were %d", after, before)
	}
	if _, _, most := s.bare.counts(); most > 1 {
		t.Errorf("%d children at a time", most)
	}
	if got := s.entries(KindCrashLoop); len(got) != 1 || !strings.Contains(got[0], "exit code 3") {
		t.Errorf("a crash loop is said once: %v", got)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(list)
}

func TestTheEnvironmentIsAnAllowList(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	sp := spec("good")
	sp.Secrets = map[string]string{"API_KEY": "weather-key"}
	s.add(sp)
	s.ready()
	var env []string
	if err := json.Unmarshal([]byte(s.says("act.env", `{}`)), &env); err != nil {
		t.Fatal(err)
	}
	slices.Sort(env)
	want := []string{"API_KEY=the value of weather-key", "HOME=" + filepath.Join(s.dir, "act"), "LANG=C.UTF-8", "PATH=/usr/local/bin:/usr/bin:/bin"}
	env = slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "PWD=") || strings.HasPrefix(v, "GOCOVERDIR=") })
	if !slices.Equal(env, want) {
		t.Errorf("%q, want %q", env, want)
	}
	s.bare.mu.Lock()
	defer s.bare.mu.Unlock()
	if p := s.bare.last.Profile; p.Name != "tool" || !slices.Contains(p.Write, filepath.Join(s.dir, "act")) || !slices.Contains(p.Read, sp.Command[0]) {
		t.Errorf("its walls: %+v", p)
	}
}

func TestASecretThatIsNotThereKeepsTheProcessFromStarting(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick(), func(d *Deps) {
		d.Secret = func(_ context.Context, name string) (string, error) {
			return "", fault.New(fault.NotFound, "no secret %q", name).WithHint("ombud secret set %s", name)
		}
	})
	sp := spec("good")
	sp.Secrets = map[string]string{"API_KEY": "gone"}
	s.add(sp)
	s.failing(`secret gone: no secret "gone"`)
	if started, _, _ := s.bare.counts(); started != 0 {
		t.Error("it was started without")
	}
}

// TestToolsAreKnownFromTheirRowsAfterARestart and a call waits for the process; what
// it registers then counts, is audited, and makes approvals void.
func TestToolsAreKnownFromTheirRowsAfterARestart(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := setup(t, d, quick())
		says := filepath.Join(t.TempDir(), "tools.json")
		write := func(list ...any) {
			raw, err := json.Marshal(tools(list...))
			if err == nil {
				err = os.WriteFile(says, raw, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		write(named("echo"), named("pid"))
		s.add(spec("file", says))
		s.ready()
		digest := s.tools.Digest("act.echo")
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.call(t.Context(), "act.echo", `{}`); !fault.Is(err, fault.Unavailable) {
			t.Errorf("a call after the stop: %v", err)
		}

		s.boot(quick())
		if s.tools.Digest("act.echo") != digest || len(s.tools.List()) != 2 {
			t.Errorf("not known before it is started: %v", s.tools.List())
		}
		if got := s.says("act.echo", `{}`); got == "" { // at once: it waits
			t.Error(got)
		}
		if got := s.entries(KindChanged); len(got) != 0 {
			t.Errorf("the same tools are no change: %v", got)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}

		changed := named("echo")
		changed["description"] = "does something else"
		write(changed, named("env"))
		s.boot(quick())
		s.ready()
		if s.tools.Digest("act.echo") == digest {
			t.Error("the digest of a changed tool stays")
		}
		if got := s.entries(KindChanged); len(got) != 1 || got[0] != "ok: new: env; changed: echo; gone: pid" {
			t.Errorf("audited: %v", got)
		}
		if i := s.List()[0]; i.Changed == 0 {
			t.Errorf("%+v", i)
		}
		_, err := s.invoker.Call(t.Context(), "act.echo", tool.Invocation{Input: json.RawMessage(`{}`), Digest: digest})
		if !fault.Is(err, fault.Conflict) {
			t.Errorf("a call that was decided before the change: %v", err)
		}
		if _, err := s.tools.Get("act.pid"); !fault.Is(err, fault.NotFound) {
			t.Errorf("a tool that is gone: %v", err)
		}
	})
}

func TestAddAndRemove(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := setup(t, d, quick())
		own := tool.Definition{
			Name: "clock.now", Description: "d", Input: json.RawMessage(`{"type":"object"}`), Kind: tool.Local, Timeout: time.Second, MaxOutput: 1,
			Source: label.Own, Scopes: func(json.RawMessage) ([]scope.Scope, error) { return nil, nil }, Summary: func(json.RawMessage) string { return "" },
		}
		if err := s.tools.Add(own, func(context.Context, tool.Invocation) (tool.Output, error) { return tool.Output{}, nil }); err != nil {
			t.Fatal(err)
		}
		sp := spec("good")
		sp.Name = "clock"
		if _, err := s.Add(t.Context(), sp, "operator"); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "clock.now") {
			t.Errorf("the name of a tool of ours: %v", err)
		}
		sp = spec("good")
		sp.Command[0] = "/no/such/program"
		if _, err := s.Add(t.Context(), sp, "operator"); !fault.Is(err, fault.NotFound) {
			t.Errorf("no program: %v", err)
		}
		for range 3 {
			s.add(spec("good"))
			s.ready()
			if _, err := s.Add(t.Context(), spec("good"), "operator"); !fault.Is(err, fault.Conflict) {
				t.Errorf("twice: %v", err)
			}
			if err := s.Remove(t.Context(), "act", "operator"); err != nil {
				t.Fatal(err)
			}
			if _, live, _ := s.bare.counts(); len(s.List()) != 0 || len(s.tools.List()) != 1 || live != 0 {
				t.Errorf("something is left: %+v, %v, %d children", s.List(), s.tools.List(), live)
			}
		}
		if err := s.Remove(t.Context(), "act", "operator"); !fault.Is(err, fault.NotFound) {
			t.Errorf("removed twice: %v", err)
		}
		s.add(spec("schemas"))
		s.ready()
		if err := s.Remove(t.Context(), "act", "operator"); err != nil || len(s.tools.Quarantined()) > 0 {
			t.Errorf("%v; the quarantine of what is gone: %v", err, s.tools.Quarantined())
		}
	})
}

func TestTestStartsAProcessThatWaits(t *testing.T) {
	t.Parallel()
	cfg := quick()
	cfg.Backoff = []time.Duration{time.Hour}
	s := setup(t, dbtest.SQLite(t), cfg)
	gate := filepath.Join(t.TempDir(), "tools.json")
	s.add(spec("file", gate)) // which is not there yet
	i := s.until("waiting", func(i Info) bool { return i.State == Waiting })
	if i.Next == 0 || !strings.Contains(i.Error, "exit code 2") {
		t.Errorf("%+v", i)
	}
	if _, err := s.Test(t.Context(), "act"); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "exit code 2") {
		t.Errorf("not ready: %v", err)
	}
	raw, err := json.Marshal(tools(named("echo")))
	if err == nil {
		err = os.WriteFile(gate, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Test(t.Context(), "act")
	if err != nil || got.State != Ready || len(got.Tools) != 1 || got.Says != "actor" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := s.Test(t.Context(), "none"); !fault.Is(err, fault.NotFound) {
		t.Error(err)
	}
}

// Nothing of a restored instance acts before it is let go.
func TestAHeldInstanceStartsNoProcess(t *testing.T) {
	t.Parallel()
	var free atomic.Bool
	s := setup(t, dbtest.SQLite(t), quick(), func(d *Deps) { d.Hold = func() bool { return !free.Load() } })
	s.add(spec("good"))
	s.until("held", func(i Info) bool { return i.State == Held })
	if _, err := s.Test(t.Context(), "act"); !fault.Is(err, fault.Unavailable) || !strings.Contains(fault.HintOf(err), "restore release") {
		t.Errorf("%v", err)
	}
	if started, _, _ := s.bare.counts(); started != 0 {
		t.Error("it was started")
	}
	free.Store(true)
	s.ready()
}

func TestStartAndStopUnderLoad(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	for i := range 3 {
		sp := spec("good")
		sp.Name = fmt.Sprint("act", i)
		sp.Scopes = []Bound{{Scope: scope.Must("tool:act.*")}}
		s.add(sp)
	}
	for range 3 {
		var wg sync.WaitGroup
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		for i := range 12 {
			wg.Go(func() {
				name := fmt.Sprint("act", i%3)
				_, _ = s.call(ctx, name+".echo", `{}`)
				_, _ = s.call(ctx, name+".die", `{}`)
				s.List()
			})
		}
		wg.Go(func() {
			if err := s.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		cancel()
		if _, live, _ := s.bare.counts(); live != 0 {
			t.Errorf("%d children are left", live)
		}
		s.boot(quick())
	}
}
