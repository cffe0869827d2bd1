package signed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/schedule"
	"github.com/ombud-run/ombud/internal/signed/signedtest"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/wasmloop"
)

// shelf is a library on a store, with what starts its loops and what it told.
type shelf struct {
	t    testing.TB
	db   *db.DB
	log  *eventlog.Log
	runs *run.Engine
	book *audit.Audit
	hits *trigger.Triggers
	*Library

	mu   sync.Mutex
	told []string
	own  string
}

// onShelves runs a test with a library on each kind of store.
func onShelves(t *testing.T, test func(t *testing.T, s *shelf)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		test(t, newShelf(t, d, nil))
	})
}

func newShelf(t testing.TB, d *db.DB, change func(*Deps)) *shelf {
	t.Helper()
	s, err := assemble(d, change)
	if err != nil {
		t.Fatal(err)
	}
	s.t = t
	if err := errors.Join(s.book.Start(t.Context()), s.Open(t.Context())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.book.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

func assemble(d *db.DB, change func(*Deps)) (*shelf, error) {
	v, err := vault.New([]byte(strings.Repeat("k", vault.KeySize)))
	if err != nil {
		return nil, err
	}
	s := &shelf{db: d}
	s.log = eventlog.NewLog(d, v, nil, eventlog.Options{})
	kinds := run.NewKinds()
	if err := kinds.Add(run.Kind{Name: Kind, Handle: func(context.Context, *run.Run) ([]byte, error) { return nil, nil }}); err != nil {
		return nil, err
	}
	s.runs = run.New(d, v, s.log, kinds, run.Options{})
	s.book = audit.New(d, v, s.runs.Node(), nil)
	times := schedule.New(d, v, s.log, s.runs, func(context.Context, *db.Tx, schedule.Firing) (string, error) { return "", nil }, schedule.Options{})
	s.hits = trigger.New(d, v, s.log, s.runs, times, trigger.Options{})
	deps := Deps{
		DB: d, Vault: v, Log: s.log, Audit: s.book, Targets: s.hits, Runs: s.runs,
		Taken: func(name string) bool { return name == "memory-upkeep" },
		Tool: func(name string) (ToolFacts, bool) {
			return ToolFacts{ReadOnly: name == "fs.read"}, name == "fs.read" || name == "fs.write"
		},
		OwnKey: func() (string, error) { return s.own, nil },
		Tell: func(_ context.Context, tx *db.Tx, _, text string) error {
			tx.AfterCommit(func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.told = append(s.told, text)
			})
			return nil
		},
	}
	if change != nil {
		change(&deps)
	}
	s.Library = New(deps)
	return s, nil
}

// hand hands a file over and returns its sha256.
func (s *shelf) hand(data []byte) string {
	s.t.Helper()
	sum := sha256.Sum256(data)
	sha := hex.EncodeToString(sum[:])
	for at := 0; at < len(data); at += 100 {
		if _, err := s.Upload(sha, len(data), at, data[at:min(at+100, len(data))]); err != nil {
			s.t.Fatal(err)
		}
	}
	return sha
}

// install installs a file by a yes that lacks nothing.
func (s *shelf) install(data []byte) Installed {
	s.t.Helper()
	x, err := s.try(data, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return x
}

// try installs a file by an approval that lacks nothing but what change takes from it.
func (s *shelf) try(data []byte, change func(*Order)) (Installed, error) {
	s.t.Helper()
	sha := s.hand(data)
	p, err := s.Inspect(s.t.Context(), sha)
	if err != nil {
		return Installed{}, err
	}
	o := Order{SHA256: sha, By: "operator", From: "a test", Unsigned: p.Unsigned, Downgrade: true}
	if p.Name != "" {
		o.Name = p.Manifest.Name
	}
	if change != nil {
		change(&o)
	}
	return s.Install(s.t.Context(), o)
}

func (s *shelf) trust(rows ...TrustRow) {
	s.t.Helper()
	if _, _, err := s.Change(s.t.Context(), Trusting{Add: rows, By: "operator"}); err != nil {
		s.t.Fatal(err)
	}
}

// targets are what starts the loops: "loop:hello@SHA12 …", "paused" behind the paused.
func (s *shelf) targets() (out []string) {
	s.t.Helper()
	list, err := s.hits.List(s.t.Context(), Owner)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, x := range list {
		text := x.Name
		if x.Stopped() {
			text += " paused"
		}
		for _, on := range x.On {
			switch {
			case on.Schedule != nil:
				text += " at " + on.Schedule.When
			case on.Event != nil:
				text += " on " + strings.Join(on.Event.Kinds, ",")
			case on.Webhook != nil:
				text += " hook " + on.Webhook.Path + " " + string(on.Webhook.Scheme)
			case on.Timer:
				text += " timer"
			}
		}
		out = append(out, text)
	}
	return out
}

// kinds are the kinds of the loop's events, in order.
func (s *shelf) events() (out []string) {
	s.t.Helper()
	err := s.db.Read(s.t.Context(), func(ctx context.Context, q db.Q) (err error) {
		out, err = db.All(ctx, q, db.Column[string], "SELECT kind FROM events WHERE stream = 'loop:hello' ORDER BY position")
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s *shelf) count(table string) (n int) {
	s.t.Helper()
	err := s.db.Read(s.t.Context(), func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&n)
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *shelf) has(lines []string, part string) {
	s.t.Helper()
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, part) }) {
		s.t.Errorf("no line has %q:\n%s", part, strings.Join(lines, "\n"))
	}
}

// hello is a loop of a publisher.
func hello(t testing.TB, version string, change func(*wasmloop.Manifest)) []byte {
	t.Helper()
	m := wasmloop.Manifest{
		Name: "hello", Version: version, Description: "says hello", Host: []string{wasmloop.FnLog, wasmloop.FnNotify},
		Capabilities: []string{"tool:app.push"}, Schedule: "@every 1h",
	}
	if change != nil {
		change(&m)
	}
	return signedtest.V2(t, m, signedtest.Module(version), "maker", "")
}
