package signed

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/signed/signedtest"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/wasmloop"
)

// changing is a shelf whose loop can go while a run is under way.
type changing struct {
	stack
	mu     sync.Mutex
	absent bool
	less   []string // host functions that the installed version names no more
	key    string
}

func (c *changing) Current(name string) (Installed, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.absent {
		return Installed{}, false
	}
	x, there := c.stack.Current(name)
	x.Manifest.Host = slices.DeleteFunc(slices.Clone(x.Manifest.Host), func(fn string) bool { return slices.Contains(c.less, fn) })
	return x, there
}

func (c *changing) Revoked(string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.key
}

func (s *site) changing() *changing {
	c := &changing{stack: s.shelf}
	s.work.d.Shelf = c
	return c
}

// spins has the guest compute for ever, and waits until it does.
func (s *site) spins(t *testing.T) string {
	t.Helper()
	id, before := s.start(t, put("once"), line{Do: "spin"}), s.did("t.put")
	for s.did("t.put") == before {
		if rec, _, err := s.runs.Get(t.Context(), id); err != nil || rec.State.Ended() {
			t.Fatalf("%s %s %v", rec.State, rec.Error, err)
		}
	}
	return id
}

// A module that computes and calls nothing is stopped all the same.
func TestAModuleUnderWayIsStoppedWhenItsLoopMayRunNoMore(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		for says, change := range map[string]func(*changing){
			"the loop guest was removed": func(c *changing) { c.absent = true },
			"the key thief":              func(c *changing) { c.key = "thief" },
		} {
			c := s.changing()
			id := s.spins(t)
			c.mu.Lock()
			change(c)
			c.mu.Unlock()
			s.work.Judge()
			if rec := s.end(t, id); rec.State != run.Failed || rec.ErrorClass != fault.Denied || rec.Attempt != 0 || !strings.Contains(rec.Error, says) {
				t.Errorf("it is %s after %d attempts: %s %s, not %q", rec.State, rec.Attempt, rec.ErrorClass, rec.Error, says)
			}
		}
	})
}

// A run that is begun, or goes on, when its loop may not run ends at once and says why, also
// if its module calls nothing that is asked about.
func TestARunOfALoopThatIsGoneDoesNotBegin(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		s.changing().absent = true
		id := s.start(t, call("config", "color"))
		if rec := s.end(t, id); rec.State != run.Failed || rec.ErrorClass != fault.Denied || !strings.Contains(rec.Error, "the loop guest was removed") {
			t.Errorf("it is %s: %s", rec.State, rec.Error)
		}
		if said := s.said(t, id); len(said) != 0 {
			t.Errorf("it ran and said %q", said)
		}
	})
}

// Removing a loop ends its runs in the same commit: what waits, what is queued and what
// computes; and what they asked is asked no more.
func TestRemovingALoopEndsItsRunsAndItsQuestions(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		v, err := vault.New([]byte(strings.Repeat("k", vault.KeySize)))
		if err != nil {
			t.Fatal(err)
		}
		l := New(Deps{DB: s.db, Vault: v, Log: s.log, Audit: s.book, Targets: s.times, Runs: s.runs})
		install := func() {
			t.Helper()
			err := s.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				return errors.Join(l.putTx(ctx, tx, s.shelf["guest"]), l.targetsTx(ctx, tx))
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		remove := func(ids ...string) {
			t.Helper()
			if _, err := l.Remove(t.Context(), "guest", "operator"); err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				if rec := s.end(t, id); rec.State != run.Cancelled {
					t.Errorf("a run is %s: %s", rec.State, rec.Error)
				}
				evs, err := s.log.Stream(t.Context(), "run:"+id, 0, 100)
				if err != nil || !slices.ContainsFunc(evs, func(e eventlog.Event) bool { return strings.Contains(string(e.Data), "loop:guest was removed") }) {
					t.Errorf("nothing says why, %v", err)
				}
			}
		}
		install()
		asks := s.start(t, call("tool", `{"name":"shell.exec","input":{}}`))
		q := s.question(t, asks)
		s.waits(t, asks, run.ForApproval)
		remove(asks, s.start(t, put("queued")))
		if a, err := s.apr.Get(t.Context(), q.ID); err != nil || a.State != approval.Expired {
			t.Errorf("the question is %s, %v", a.State, err)
		}
		install()
		remove(s.spins(t))
		if s.did("t.put{\"text\":\"queued\"}") != 0 || s.did("shell.exec") != 0 {
			t.Errorf("done: %q", s.done)
		}
	})
}

// What is left of a loop that is not installed, after a restore say, is cancelled at the start.
func TestRunsOfWhatIsNotInstalledAreCancelledAtTheStart(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		x := s.install(hello(t, "1.0.0", nil))
		start := func(name string) (id string) {
			err := s.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
				id, err = s.runs.StartTx(ctx, tx, run.Spec{Kind: Kind, Name: name, Key: name, Definition: x.Definition(), Input: []byte(`{}`)})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		stays, goes := start(x.Subject()), start("loop:other")
		if err := s.StartTargets(t.Context()); err != nil {
			t.Fatal(err)
		}
		for id, want := range map[string]run.State{stays: run.Queued, goes: run.Cancelled} {
			if rec, _, err := s.runs.Get(t.Context(), id); err != nil || rec.State != want {
				t.Errorf("the run of %s is %s, not %s: %v", rec.Name, rec.State, want, err)
			}
		}
	})
}

// A run that is pinned to an older version is judged by the keys of that one.
func TestARunIsJudgedByTheKeysOfItsOwnArtifact(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		old := s.install(hello(t, "1.0.0", nil)) // by "maker"
		now := s.install(signedtest.V2(t, wasmloop.Manifest{Name: "hello", Version: "2.0.0"}, signedtest.Module("n"), "other", ""))
		judge := func(when string, want map[string]bool) {
			t.Helper()
			for definition, want := range want {
				err := s.db.Read(t.Context(), func(ctx context.Context, q db.Q) error {
					ok, err := s.Knows(ctx, q, definition)
					if err == nil && ok != want {
						t.Errorf("%s: a run of %s goes on: %t", when, definition, ok)
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		judge("before", map[string]bool{old.Definition(): true, now.Definition(): true})
		s.trust(TrustRow{Kind: Revoked, Key: signedtest.Public("maker")})
		judge("after", map[string]bool{old.Definition(): false, now.Definition(): true})
		if s.Revoked(old.SHA256) != signedtest.Public("maker") || s.Revoked(now.SHA256) != "" {
			t.Errorf("revoked are %q and %q", s.Revoked(old.SHA256), s.Revoked(now.SHA256))
		}
		s.exec("UPDATE signed_pieces SET data = $1 WHERE sha = $2", []byte("damaged"), old.SHA256)
		s.keys.Clear()
		judge("damaged", map[string]bool{old.Definition(): true}) // its run says so
		if _, _, err := s.Change(t.Context(), Trusting{Remove: []TrustRow{{Kind: Revoked, Key: signedtest.Public("maker")}}, By: "operator"}); err != nil {
			t.Fatal(err)
		}
		if s.Revoked(old.SHA256) != "" {
			t.Error("it is revoked for ever")
		}
	})
}
