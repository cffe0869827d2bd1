package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/schedule"
	"github.com/ombud-run/ombud/internal/secret"
	"github.com/ombud-run/ombud/internal/vault"
)

// asVictim makes this binary a process that starts runs until it kills itself.
const asVictim = "OMBUD_TEST_TRIGGER_VICTIM"

func TestMain(m *testing.M) {
	if spec := os.Getenv(asVictim); spec != "" {
		os.Exit(victim(spec))
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what has to come.
const patience = 60 * time.Second

const workKind = "work"

// house is triggers on a store with all that runs beside them.
type house struct {
	t       testing.TB
	db      *db.DB
	log     *eventlog.Log
	runs    *run.Engine
	times   *schedule.Schedules
	secrets *secret.Secrets
	now     time.Time // what the clock of the webhooks shows; zero: the real one
	*Triggers

	mu   sync.Mutex
	work func(ctx context.Context, r *run.Run, tr Trigger) error // what a run does
	done []Trigger                                               // the runs that were worked on, in order
	told []string
	held error
}

func newHouse(t testing.TB, d *db.DB) *house {
	t.Helper()
	h, err := assemble(d, func(e *run.Engine) Runs { return e })
	if err != nil {
		t.Fatal(err)
	}
	h.t = t
	return h
}

// assemble makes a house whose runs are started as by says.
func assemble(d *db.DB, by func(*run.Engine) Runs) (*house, error) {
	v, err := vault.New([]byte(strings.Repeat("k", vault.KeySize)))
	if err != nil {
		return nil, err
	}
	h := &house{db: d}
	h.log = eventlog.NewLog(d, v, nil, eventlog.Options{Retries: []time.Duration{time.Millisecond, time.Millisecond}})
	kinds := run.NewKinds()
	err = kinds.Add(run.Kind{Name: workKind, Attempts: 3, Backoff: func(int) time.Duration { return time.Millisecond }, Handle: h.handleRun})
	if err != nil {
		return nil, err
	}
	h.runs = run.New(d, v, h.log, kinds, run.Options{Held: func() bool { return h.isHeld() != nil }})
	h.times = schedule.New(d, v, h.log, h.runs, func(ctx context.Context, tx *db.Tx, f schedule.Firing) (string, error) {
		return h.Fire(ctx, tx, f)
	}, schedule.Options{Held: h.isHeld})
	hide := redact.New()
	h.secrets = secret.New(d, v, h.log, unaudited{}, hide)
	h.Triggers = New(d, v, h.log, by(h.runs), h.times, Options{
		Held: h.isHeld, Secrets: h.secrets,
		Now: func() time.Time {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.now.IsZero() {
				return time.Now()
			}
			return h.now
		},
		Tell: func(_ context.Context, tx *db.Tx, _, text string) error {
			tx.AfterCommit(func() {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.told = append(h.told, text)
			})
			return nil
		},
	})
	return h, nil
}

// unaudited keeps no record.
type unaudited struct{}

func (unaudited) AppendTx(context.Context, *db.Tx, audit.Entry) (audit.Ref, error) {
	return audit.Ref{}, nil
}

func (h *house) isHeld() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held
}

// live starts everything, until the test ends.
func (h *house) live() *house {
	h.t.Helper()
	ctx := h.t.Context()
	if err := errors.Join(h.runs.Open(ctx), h.log.Start(ctx, h.Subscription()), h.times.Start(ctx)); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		h.times.Stop()
		h.log.Stop()
		if err := h.runs.Stop(context.WithoutCancel(ctx)); err != nil {
			h.t.Error(err)
		}
	})
	return h
}

// each runs a test in a house on each kind of store.
func each(t *testing.T, test func(t *testing.T, h *house)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		test(t, newHouse(t, d))
	})
}

func (h *house) handleRun(ctx context.Context, r *run.Run) ([]byte, error) {
	var tr Trigger
	if err := json.Unmarshal(r.Input(), &tr); err != nil {
		return nil, err
	}
	h.mu.Lock()
	work := h.work
	h.mu.Unlock()
	if work != nil {
		if err := work(ctx, r, tr); err != nil {
			return nil, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done = append(h.done, tr)
	return nil, nil
}

func (h *house) works() []Trigger {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.done)
}

func (h *house) tells() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.told)
}

// replace makes the targets of "loop" the given ones.
func (h *house) replace(targets ...Target) {
	h.t.Helper()
	if err := h.tryReplace("loop", targets...); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) tryReplace(owner string, targets ...Target) error {
	return h.db.InTx(h.t.Context(), func(ctx context.Context, tx *db.Tx) error { return h.ReplaceTx(ctx, tx, owner, targets) })
}

// on is a target of "loop" that is started by the given.
func on(name string, triggers ...On) Target {
	return Target{Name: "loop:" + name, RunKind: workKind, Definition: "v1", On: triggers}
}

func events(kinds ...string) On { return On{Event: &EventFilter{Kinds: kinds}} }

// emit appends an event and returns its id.
func (h *house) emit(stream, kind string, data any) string {
	h.t.Helper()
	evs, err := h.log.Append(h.t.Context(), eventlog.New{Stream: stream, Kind: kind, Actor: "test", Data: data, Expect: eventlog.Any})
	if err != nil {
		h.t.Fatal(err)
	}
	return evs[0].ID
}

// until waits until enough runs are worked off.
func (h *house) until(is func() bool) {
	h.t.Helper()
	for deadline := time.Now().Add(patience); !is(); {
		if time.Now().After(deadline) {
			h.t.Fatalf("it does not come: %+v", h.works())
		}
		<-time.After(5 * time.Millisecond)
	}
}

// settled waits until the subscription has read everything and no run is live.
func (h *house) settled() {
	h.t.Helper()
	h.until(func() bool {
		live, err := h.runs.List(h.t.Context(), run.Filter{Live: true, Limit: 1})
		if err != nil {
			h.t.Fatal(err)
		}
		blocked, err := h.log.Blocked(h.t.Context())
		if err != nil {
			h.t.Fatal(err)
		}
		return len(live) == 0 && len(blocked) == 0 && h.lag() == 0
	})
}

// lag is how many events that are listened to the subscription has not read.
func (h *house) lag() int {
	h.t.Helper()
	var position int64
	err := h.db.Read(h.t.Context(), func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT position FROM subscriptions WHERE name = 'triggers'").Scan(&position)
	})
	if err != nil {
		h.t.Fatal(err)
	}
	page, err := h.log.Read(h.t.Context(), position, 256, h.filterNow(h.t.Context()))
	if err != nil {
		h.t.Fatal(err)
	}
	return len(page)
}

func wantClass(t testing.TB, err error, class fault.Class) {
	t.Helper()
	if !fault.Is(err, class) {
		t.Fatalf("got %v (%s), want class %s", err, fault.ClassOf(err), class)
	}
}
