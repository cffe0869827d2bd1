package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
)

// asVictim makes this binary a process that fires schedules until it kills itself.
const asVictim = "OMBUD_TEST_SCHEDULE_VICTIM"

func TestMain(m *testing.M) {
	if spec := os.Getenv(asVictim); spec != "" {
		os.Exit(victim(spec))
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what has to come.
const patience = 60 * time.Second

// clock is both clocks of a machine, moved by hand.
type clock struct {
	mu      sync.Mutex
	wall    time.Time
	mono    time.Duration
	waiting map[*sleeper]bool
	asleep  chan struct{} // receives when somebody begins to wait
}

type sleeper struct {
	until time.Duration
	wake  chan time.Time
}

func newClock(wall time.Time) *clock {
	return &clock{wall: wall, waiting: map[*sleeper]bool{}, asleep: make(chan struct{}, 1000)}
}

func (c *clock) Read() eventlog.Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return eventlog.Reading{Wall: c.wall, Mono: c.mono}
}

func (c *clock) After(d time.Duration) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &sleeper{until: c.mono + d, wake: make(chan time.Time, 1)}
	c.waiting[s] = true
	select {
	case c.asleep <- struct{}{}:
	default:
	}
	return s.wake, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, s)
	}
}

// pass moves the clocks: of a machine that runs both by the same.
func (c *clock) pass(wall, mono time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.mono = c.wall.Add(wall), c.mono+mono
	for s := range c.waiting {
		if s.until <= c.mono {
			s.wake <- c.wall
			delete(c.waiting, s)
		}
	}
}

func (c *clock) set(wall time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = wall
}

// house is schedules on a store, whose firings start runs.
type house struct {
	t     testing.TB
	db    *db.DB
	vault *vault.Vault
	log   *eventlog.Log
	runs  *run.Engine
	clock *clock
	s     *Schedules
	last  eventlog.Reading

	mu    sync.Mutex
	fails error    // what Fire returns, if set
	told  []string // to the operator
	fired func(tx *db.Tx, f Firing)
	held  error
}

const workKind = "work"

func newHouse(t testing.TB, d *db.DB, wall string) *house {
	t.Helper()
	at, err := time.Parse(time.RFC3339, wall)
	if err != nil {
		t.Fatal(err)
	}
	v, err := vault.New([]byte(strings.Repeat("k", vault.KeySize)))
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, db: d, vault: v, clock: newClock(at)}
	h.log = eventlog.NewLog(d, v, nil, eventlog.Options{})
	kinds := run.NewKinds()
	if err := kinds.Add(run.Kind{Name: workKind, Handle: func(context.Context, *run.Run) ([]byte, error) { return nil, nil }}); err != nil {
		t.Fatal(err)
	}
	h.runs = run.New(d, v, h.log, kinds, run.Options{})
	h.boot()
	return h
}

// each runs a test in a house on each kind of store.
func each(t *testing.T, wall string, test func(t *testing.T, h *house)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		test(t, newHouse(t, d, wall))
	})
}

// boot begins another life on the same store.
func (h *house) boot() {
	h.s = New(h.db, h.vault, h.log, h.runs, h.fire, Options{
		Clock: h.clock,
		Held: func() error {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.held
		},
		Tell: func(_ context.Context, tx *db.Tx, _, text string) error {
			tx.AfterCommit(func() { h.told = append(h.told, text) })
			return nil
		},
	})
	h.last = h.clock.Read()
}

func (h *house) fire(ctx context.Context, tx *db.Tx, f Firing) (string, error) {
	h.mu.Lock()
	fails, fired := h.fails, h.fired
	h.mu.Unlock()
	if fails != nil && strings.HasPrefix(f.Schedule.Starts.Say, "bad") {
		return "", fails
	}
	id, err := h.runs.StartTx(ctx, tx, run.Spec{Kind: workKind, Name: f.Schedule.Name, Cause: f.Event, Actor: "test", Input: f.At})
	if fired != nil && err == nil {
		fired(tx, f)
	}
	return id, err
}

func (h *house) add(name, when, zone string, more ...func(*Spec)) Schedule {
	h.t.Helper()
	spec := Spec{Owner: Operator, Name: name, When: when, Zone: zone, Starts: Starts{Say: "do " + name}}
	for _, m := range more {
		m(&spec)
	}
	x, err := h.s.Put(h.t.Context(), spec, Operator)
	if err != nil {
		h.t.Fatalf("add %s: %v", name, err)
	}
	return x
}

// addMany adds n schedules in one commit; their names count on from the given number.
func (h *house) addMany(from, n int, when func(i int) string) {
	h.t.Helper()
	err := h.db.InTx(h.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		for i := from; i < from+n; i++ {
			spec := Spec{Owner: Operator, Name: fmt.Sprint("n", i), When: when(i), Zone: "UTC", Starts: Starts{Say: "x"}}
			if _, err := h.s.AddTx(ctx, tx, spec, Operator); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) get(name string) Schedule {
	h.t.Helper()
	x, err := h.s.Get(h.t.Context(), name)
	if err != nil {
		h.t.Fatal(err)
	}
	return x
}

// review is what a start does first.
func (h *house) review() {
	h.t.Helper()
	if err := h.s.review(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

// look is one turn of the loop.
func (h *house) look() time.Duration {
	h.t.Helper()
	wait, err := h.s.lookOnce(h.t.Context(), &h.last)
	if err != nil {
		h.t.Fatal(err)
	}
	return wait
}

// at sets the clock of a machine that was off or runs on, and looks.
func (h *house) at(wall string) {
	h.t.Helper()
	at, err := time.Parse(time.RFC3339, wall)
	if err != nil {
		h.t.Fatal(err)
	}
	h.clock.pass(0, max(0, at.Sub(h.clock.Read().Wall)))
	h.clock.set(at)
	h.look()
}

// jobs are the events of a schedule, "outcome hh:mm:ss" each, with the day where it is
// not that of the house.
func (h *house) jobs(x Schedule) []string {
	h.t.Helper()
	var out []string
	for _, j := range h.payloads(x) {
		line := string(j.Outcome) + " " + j.At
		if j.Count > 0 {
			line += fmt.Sprintf(" %d from %s", j.Count, j.From)
		}
		out = append(out, line)
	}
	return out
}

func (h *house) payloads(x Schedule) (out []Job) {
	h.t.Helper()
	for version := int64(0); ; {
		page, err := h.log.Stream(h.t.Context(), streamOf(x.ID), version, 256)
		if err != nil {
			h.t.Fatal(err)
		}
		if len(page) == 0 {
			return out
		}
		for _, e := range page {
			version = e.Version
			if !strings.HasPrefix(e.Kind, "scheduler.") {
				continue
			}
			var j Job
			if err := json.Unmarshal(e.Data, &j); err != nil {
				h.t.Fatal(err)
			}
			out = append(out, j)
		}
	}
}

func (h *house) wantJobs(x Schedule, want ...string) {
	h.t.Helper()
	got := h.jobs(x)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		h.t.Errorf("%s (%s):\n got %s\nwant %s", x.Name, x.When, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// started are the runs that were started, by the events that caused them.
func (h *house) started() map[string]int {
	h.t.Helper()
	out := map[string]int{}
	list, err := h.runs.List(h.t.Context(), run.Filter{Kind: workKind, Limit: 1000})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, r := range list {
		out[r.Cause]++
	}
	return out
}

var errTest = errors.New("there is no such target")

func policy(m Missed, grace time.Duration) func(*Spec) {
	return func(s *Spec) { s.Missed, s.Grace = m, grace }
}

func queue(s *Spec) { s.Overlap = OverlapQueue }

func until(t testing.TB, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); {
		if time.Now().After(deadline) {
			t.Fatal("it does not come")
		}
		<-time.After(5 * time.Millisecond)
	}
}
