package recipe

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/internal/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shelf is a library over a directory, and what it told of.
type shelf struct {
	t   *testing.T
	dir string
	db  *db.DB
	v   *vault.Vault
	*Library

	mu      sync.Mutex
	targets []trigger.Target
	changes []string
	told    []string
	mounts  map[string]string
	loads   chan struct{}
}

func (s *shelf) ReplaceTx(_ context.Context, tx *db.Tx, owner string, targets []trigger.Target) error {
	if owner != "recipe" {
		return errors.New("owner " + owner)
	}
	tx.AfterCommit(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.targets = targets
		select {
		case s.loads <- struct{}{}:
		default:
		}
	})
	return nil
}

func (s *shelf) open() {
	log := eventlog.NewLog(s.db, s.v, nil, eventlog.Options{})
	note := func(tx *db.Tx, list *[]string, text string) {
		tx.AfterCommit(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			*list = append(*list, text)
		})
	}
	s.Library = New(Deps{
		DB: s.db, Vault: s.v, Log: log, Targets: s, Logger: slog.New(slog.DiscardHandler),
		Changed: func(_ context.Context, tx *db.Tx, c Change) error {
			text := c.Name
			for _, r := range []*Recipe{c.Before, c.After} {
				if r == nil {
					text += " none"
				} else {
					text += " " + r.Description
				}
			}
			note(tx, &s.changes, text)
			return nil
		},
		Tell: func(_ context.Context, tx *db.Tx, _, text string) error {
			note(tx, &s.told, text)
			return nil
		},
		Mount: func(name string) string { return s.mounts[name] },
	}, Options{Dir: s.dir, Quiet: 10 * time.Millisecond, Poll: 50 * time.Millisecond})
}

// shelves runs a test on each kind of store.
func shelves(t *testing.T, test func(t *testing.T, s *shelf)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		v, err := vault.New([]byte(strings.Repeat("k", vault.KeySize)))
		if err != nil {
			t.Fatal(err)
		}
		s := &shelf{t: t, dir: t.TempDir(), db: d, v: v, loads: make(chan struct{}, 1), mounts: map[string]string{}}
		s.chmod(".", 0o755)
		s.open()
		test(t, s)
	})
}

func (s *shelf) chmod(name string, mode os.FileMode) {
	s.t.Helper()
	if err := os.Chmod(filepath.Join(s.dir, name), mode); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shelf) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shelf) remove(name string) {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shelf) load() {
	s.t.Helper()
	if _, err := s.Load(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// inUse is which recipes there are, with the description of the version in use.
func (s *shelf) inUse() string {
	s.t.Helper()
	list, err := s.List(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, x := range list {
		text := filepath.Base(x.File)
		if x.Recipe != nil {
			text = x.Name + "=" + x.Recipe.Description
		}
		if len(x.Problems) > 0 {
			text += "!"
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func (s *shelf) want(what string) {
	s.t.Helper()
	if got := s.inUse(); got != what {
		s.t.Errorf("in use: %q, want %q", got, what)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, x := range s.targets {
		names = append(names, strings.TrimPrefix(x.Name, "recipe:"))
	}
	for _, name := range names {
		if !strings.Contains(what, name+"=") {
			s.t.Errorf("%s can be started", name)
		}
	}
	if strings.Count(what, "=") != len(names) {
		s.t.Errorf("targets: %q, want those of %q", names, what)
	}
}

func saying(name, description string) string {
	return "ombud: recipe/v1\nname: " + name + "\ndescription: " + description + "\non: {manual: true}\nsteps: [{log: x}]\n"
}

func TestFilesComeAndGo(t *testing.T) {
	t.Parallel()
	shelves(t, func(t *testing.T, s *shelf) {
		s.load()
		s.want("")
		s.write("a.yaml", saying("a", "one"))
		s.write("b.yml", saying("b", "one"))
		s.write(".hidden.yaml", saying("c", "one"))
		s.write("note.txt", "no recipe")
		s.load()
		s.want("a=one b=one")
		first := s.targets[0].Definition
		s.write("a.yaml", saying("a", "two"))
		s.load()
		s.want("a=two b=one")
		if s.targets[0].Definition == first {
			t.Error("the definition is the same")
		}
		old, err := s.Definition(t.Context(), first)
		if err != nil || old.Description != "one" {
			t.Errorf("what a run began with: %+v %v", old, err)
		}
		if err := os.Rename(filepath.Join(s.dir, "a.yaml"), filepath.Join(s.dir, "z.yaml")); err != nil {
			t.Fatal(err)
		}
		s.remove("b.yml")
		s.load()
		s.want("a=two")
		s.load()
		if got := strings.Join(s.changes, "|"); got != "a none one|b none one|a one two|b one none" {
			t.Errorf("changes: %s", got)
		}
		if len(s.told) > 0 {
			t.Errorf("told: %q", s.told)
		}
	})
}

func TestABrokenEditLeavesTheLastGoodVersionInUse(t *testing.T) {
	t.Parallel()
	shelves(t, func(t *testing.T, s *shelf) {
		s.write("a.yaml", saying("a", "one"))
		s.load()
		s.write("a.yaml", saying("a", "two")+"stps: []\n")
		if again, err := s.Load(t.Context()); err != nil || !again {
			t.Errorf("it may be half written: %v %v", again, err)
		}
		s.want("a=one!")
		if len(s.told) > 0 {
			t.Errorf("told at once: %q", s.told)
		}
		s.load()
		s.load()
		if len(s.told) != 1 || !strings.Contains(s.told[0], "the last good version of a stays in use") || !strings.Contains(s.told[0], "a.yaml:6:1: a recipe has no key \"stps\"") {
			t.Errorf("told: %q", s.told)
		}
		x, err := s.Get(t.Context(), "a")
		if err != nil || len(x.Problems) != 1 || x.Problems[0].Line != 6 {
			t.Errorf("%+v %v", x, err)
		}
		s.open() // a restart
		s.load()
		s.want("a=one!")
		if len(s.told) != 1 {
			t.Errorf("told again: %q", s.told)
		}
		s.write("a.yaml", saying("a", "three"))
		s.load()
		s.want("a=three")
		s.write("a.yaml", "")
		s.load()
		s.load()
		s.want("a=three!")
		if len(s.told) != 2 {
			t.Errorf("told: %q", s.told)
		}
	})
}

// The nodes of an instance have its recipes in different directories, and each that takes
// over looks at its own: that changes no recipe.
func TestARecipeThatMovedIsTheSame(t *testing.T) {
	t.Parallel()
	shelves(t, func(t *testing.T, s *shelf) {
		s.write("a.yaml", saying("a", "one"))
		s.write("b.yaml", saying("b", "one"))
		s.load()
		s.write("b.yaml", "broken")
		s.load()
		here, there := s.dir, t.TempDir()
		for range 2 {
			s.dir = there
			s.chmod(".", 0o755)
			s.write("a.yaml", saying("a", "one"))
			s.write("b.yaml", "broken")
			s.open()
			s.load()
			s.want("a=one b=one!")
			if x, err := s.Get(t.Context(), "b"); err != nil || filepath.Dir(x.File) != there || len(x.Problems) == 0 || x.Problems[0].File != x.File {
				t.Errorf("%+v %v", x, err)
			}
			here, there = there, here
		}
		if err := os.Rename(filepath.Join(s.dir, "a.yaml"), filepath.Join(s.dir, "c.yaml")); err != nil {
			t.Fatal(err)
		}
		s.load()
		s.write("d.yaml", saying("a", "two"))
		s.remove("c.yaml")
		s.load()
		s.want("a=two b=one!")
		if got := strings.Join(s.changes, "|"); got != "a none one|b none one|a one two" || len(s.told) != 1 {
			t.Errorf("changes: %s, told: %q", got, s.told)
		}
	})
}

// What a link leads to may be away for a moment, as a disk that is not mounted is.
func TestALinkToNowhereIsABrokenFile(t *testing.T) {
	t.Parallel()
	shelves(t, func(t *testing.T, s *shelf) {
		elsewhere := t.TempDir()
		target := filepath.Join(elsewhere, "a.yaml")
		if err := os.WriteFile(target, []byte(saying("a", "one")), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(s.dir, "a.yaml")); err != nil {
			t.Skip(err) // not everybody may on every system
		}
		s.load()
		s.want("a=one")
		if err := os.Rename(target, target+".away"); err != nil {
			t.Fatal(err)
		}
		s.load()
		s.want("a=one!")
		if err := os.Rename(target+".away", target); err != nil {
			t.Fatal(err)
		}
		s.load()
		s.want("a=one")
		s.remove("a.yaml")
		s.load()
		s.want("")
		s.o.Dir = filepath.Join(elsewhere, "gone", "recipes") // a directory that never was holds none
		s.load()
		s.o.Dir = filepath.Join(elsewhere, "link")
		if err := os.Symlink(filepath.Join(elsewhere, "gone"), s.o.Dir); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(t.Context()); !fault.Is(err, fault.Unavailable) {
			t.Errorf("a directory that is away: %v", err)
		}
		if got := strings.Join(s.changes, "|"); got != "a none one|a one none" {
			t.Errorf("changes: %s", got)
		}
	})
}

// A look now and then at files that are as they were costs their reading, not their parsing.
func TestAFileThatIsAsItWasIsParsedOnce(t *testing.T) {
	t.Parallel()
	shelves(t, func(t *testing.T, s *shelf) {
		parsed := 0
		s.d.Foreign = func(file string, data []byte, _ time.Time) (*Recipe, []Problem) {
			parsed++
			return &Recipe{Name: "a", File: file, Description: string(data)}, nil
		}
		s.write("a.yaml", "name: one")
		for range 5 {
			s.load()
		}
		if parsed != 1 {
			t.Errorf("parsed %d times", parsed)
		}
		s.write("a.yaml", "name: two")
		for range 5 {
			s.load()
		}
		if parsed != 2 || s.Current("a").Description != "name: two" {
			t.Errorf("parsed %d times: %+v", parsed, s.Current("a"))
		}
	})
}

func TestTwoFilesCannotHaveOneName(t *testing.T) {
	t.Parallel()
	shelves(t, func(t *testing.T, s *shelf) {
		s.write("b.yaml", saying("x", "one"))
		s.load()
		s.write("a.yaml", saying("X", "two"))
		s.load()
		s.load()
		s.want("a.yaml! x=one!")
		all := strings.Join(s.told, "\n")
		if !strings.Contains(all, "a.yaml") || !strings.Contains(all, "b.yaml") {
			t.Errorf("told: %q", s.told)
		}
		s.remove("b.yaml")
		s.load()
		s.want("X=two")
	})
}

func TestFilesThatOthersCanWriteAreNotRead(t *testing.T) {
	t.Parallel()
	if os.PathSeparator != '/' {
		t.Skip("there are no modes here")
	}
	shelves(t, func(t *testing.T, s *shelf) {
		s.write("a.yaml", saying("a", "one"))
		s.chmod("a.yaml", 0o622)
		s.load()
		s.want("a.yaml!")
		if len(s.told) != 1 || !strings.Contains(s.told[0], "others can write") {
			t.Errorf("told: %q", s.told)
		}
		s.chmod("a.yaml", 0o600)
		s.load()
		s.want("a=one")
		s.chmod(".", 0o777)
		if _, err := s.Load(t.Context()); !fault.Is(err, fault.Permission) || s.Trouble() == "" {
			t.Errorf("the directory: %v", err)
		}
		s.want("a=one") // what is not known of changes nothing
		s.chmod(".", 0o755)
		s.load()
		if s.Trouble() != "" {
			t.Error(s.Trouble())
		}
		if err := os.Mkdir(filepath.Join(s.dir, "d.yaml"), 0o700); err != nil {
			t.Fatal(err)
		}
		s.load()
		s.want("a=one")
	})
}

func TestOneThatIsOffAndAWebhookWithoutASecret(t *testing.T) {
	t.Parallel()
	shelves(t, func(t *testing.T, s *shelf) {
		s.write("a.yaml", "ombud: recipe/v1\nname: a\nenabled: false\non: {schedule: '@daily'}\nsteps: [{log: x}]\n")
		s.load()
		if !s.targets[0].Paused || s.targets[0].On[0].Schedule == nil {
			t.Errorf("%+v", s.targets)
		}
		r := &Recipe{Name: "k"}
		w := Webhook{Path: "/hooks/k"}
		if why := s.Mounted(r, w); !strings.HasPrefix(why, "not mounted: ") {
			t.Errorf("%q", why)
		}
		for how, want := range map[string]trigger.Scheme{"open": trigger.Open, "key": trigger.Generic} {
			s.mounts["k"] = how
			if m, ok := s.mount("k", w); !ok || m.Scheme != want || s.Mounted(r, w) != "" {
				t.Errorf("%s: %+v", how, m)
			}
		}
	})
}

// The system may give no more watches: the files are looked at now and then all the same,
// and that is told once in the log, and for as long as it is so where it is asked for.
func TestWhatCannotBeWatchedIsToldOnce(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	l := New(Deps{Logger: slog.New(slog.NewTextHandler(&out, nil))}, Options{Dir: t.TempDir(), Files: []string{filepath.Join(t.TempDir(), "a.yaml")}})
	for range 3 {
		l.watchAll(func(string) error { return errors.New("no room") })
	}
	if why := l.Late(); strings.Count(out.String(), "no room") != 1 || !strings.Contains(why, "every 30s") || !strings.Contains(why, "no room") {
		t.Errorf("told %q, logged %q", why, out.String())
	}
	l.watchAll(func(string) error { return fs.ErrNotExist })
	if why := l.Late(); why != "" {
		t.Errorf("told %q", why)
	}
}

// The loop sees what becomes of the files: written in place, renamed over, linked, removed.
func TestChangesOfFilesAreSeen(t *testing.T) {
	t.Parallel()
	s := &shelf{t: t, dir: t.TempDir(), db: dbtest.SQLite(t), loads: make(chan struct{}, 1)}
	var err error
	if s.v, err = vault.New([]byte(strings.Repeat("k", vault.KeySize))); err != nil {
		t.Fatal(err)
	}
	s.chmod(".", 0o755)
	s.open()
	s.o.Poll = time.Hour // only notifications
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	until := func(what string) {
		t.Helper()
		late := time.After(60 * time.Second)
		for s.inUse() != what {
			select {
			case <-s.loads:
			case <-late:
				t.Fatalf("in use: %q, want %q", s.inUse(), what)
			}
		}
	}
	s.write("a.yaml", saying("a", "one"))
	until("a=one")
	s.write("a.new", saying("a", "two"))
	if err := os.Rename(filepath.Join(s.dir, "a.new"), filepath.Join(s.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	until("a=two")
	elsewhere := filepath.Join(t.TempDir(), "b.yaml")
	if err := os.WriteFile(elsewhere, []byte(saying("b", "one")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(s.dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	until("a=two b=one")
	if err := os.WriteFile(elsewhere, []byte(saying("b", "two")), 0o600); err != nil {
		t.Fatal(err)
	}
	until("a=two b=two")
	s.remove("a.yaml")
	until("b=two")
	if os.PathSeparator == '/' { // the way out that is told of such a file
		s.write("c.new", saying("c", "one"))
		s.chmod("c.new", 0o666)
		if err := os.Rename(filepath.Join(s.dir, "c.new"), filepath.Join(s.dir, "c.yaml")); err != nil {
			t.Fatal(err)
		}
		until("c.yaml! b=two")
		s.chmod("c.yaml", 0o600)
		until("b=two c=one")
	}
	s.Stop()
	s.Stop()
}
