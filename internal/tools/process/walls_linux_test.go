package process

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/supervise"
)

// walled starts the children of a stand by the real launcher.
func walled(t *testing.T, cfg Config) *stand {
	t.Helper()
	launcher, err := confine.New(confine.Options{Enforce: confine.EnforceBest, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(launcher.Close)
	return setup(t, dbtest.SQLite(t), cfg, func(d *Deps) {
		d.Launch = func(ctx context.Context, s confine.Spec) (supervise.Child, error) {
			job, err := launcher.Start(ctx, s)
			if err != nil {
				return nil, err
			}
			return job, nil
		}
	})
}

func TestBehindTheWalls(t *testing.T) {
	t.Parallel()
	s := walled(t, quick())
	s.add(spec("good"))
	s.ready()
	if got := s.says("act.echo", `{"a":1}`); !strings.Contains(got, `"a":1`) {
		t.Error(got)
	}
	_, err := s.call(t.Context(), "act.die", `{}`)
	if !fault.Is(err, fault.Unknown) || !strings.Contains(err.Error(), "exit code 7") {
		t.Errorf("it died: %v", err)
	}
	s.until("ended", func(i Info) bool { return i.Failures == 1 })
	if got := s.says("act.echo", `{"a":2}`); !strings.Contains(got, `"a":2`) {
		t.Error(got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.call(ctx, "act.stubborn", `{}`); !fault.Is(err, fault.Unknown) {
		t.Errorf("ended by force: %v", err)
	}
	s.until("ended", func(i Info) bool { return i.Failures == 2 })
}

func TestTheExamplesWorkBehindTheWalls(t *testing.T) {
	t.Parallel()
	s := walled(t, quick())
	s.add(Spec{
		Name: "words", Command: []string{python(t), example(t, "tool-python/words.py")}, Scopes: []Bound{{Scope: scope.Must("tool:words.*")}},
	})
	s.until("ready", func(i Info) bool { return i.State == Ready })
	if got := s.says("words.count", `{"text":"one two"}`); got != `{"words": 2, "characters": 7}` {
		t.Error(got)
	}
	s.add(Spec{Name: "digest", Command: []string{goExample(t)}, Scopes: []Bound{{Scope: scope.Must("tool:digest.*")}}})
	s.until("ready", func(i Info) bool { return i.Spec.Name == "digest" && i.State == Ready })
	if got := s.says("digest.sum", `{"text":"abc"}`); !strings.HasPrefix(got, "ba7816bf") {
		t.Error(got)
	}
}

// A child in a session of its own, which holds the process's output, is gone with it,
// and only then the next is started.
func TestAChildInASessionOfItsOwnIsGoneWithItsProcess(t *testing.T) {
	t.Parallel()
	s := walled(t, quick())
	mark := filepath.Join(s.dir, "act", "pid")
	s.add(spec("session", mark))
	s.ready()
	sleepers := func() (n int) {
		list, err := os.ReadDir("/proc")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if _, err := strconv.Atoi(e.Name()); err != nil {
				continue
			}
			line, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
			if err == nil && strings.Contains(string(line), "tool-process\x00sleeper\x00"+mark) {
				n++
			}
		}
		return n
	}
	if sleepers() != 1 {
		t.Fatalf("%d children in a session of their own", sleepers())
	}
	for i := range 5 {
		if _, err := s.call(t.Context(), "act.die", `{}`); !fault.Is(err, fault.Unknown) {
			t.Fatal(err)
		}
		s.until("started again", func(x Info) bool { return x.Failures > i && x.State == Ready && x.PID != 0 })
		if n := sleepers(); n != 1 {
			t.Fatalf("%d children in a session of their own", n)
		}
	}
	if err := s.Remove(t.Context(), "act", "operator"); err != nil {
		t.Fatal(err)
	}
	if n := sleepers(); n != 0 {
		t.Errorf("%d are left", n)
	}
}
