package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
)

// counter is the world outside: how often each run had its effect, and how many work
// at once.
type counter struct {
	mu      sync.Mutex
	effects map[string]int
	now     map[string]int // by key
	most    map[string]int
}

func newCounter() *counter {
	return &counter{effects: map[string]int{}, now: map[string]int{}, most: map[string]int{}}
}

func (c *counter) handle(ctx context.Context, r *Run) ([]byte, error) {
	key := r.Record().Key
	c.mu.Lock()
	c.now[key]++
	c.most[key] = max(c.most[key], c.now[key])
	c.mu.Unlock()
	defer func() { c.mu.Lock(); c.now[key]--; c.mu.Unlock() }()
	_, err := r.Step(ctx, "effect", Policy{Kind: AtMostOnce}, func(context.Context) (json.RawMessage, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.effects[r.ID()]++
		return nil, nil
	})
	return nil, err
}

// TestAThousandQueuedRunsAreDoneOnceEach with eight workers: in one process, and on
// PostgreSQL also by two that share the store.
func TestAThousandQueuedRunsAreDoneOnceEach(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			doAThousand(t, dbtest.Options(t, kind))
		})
	}
}

func doAThousand(t *testing.T, o db.Options) {
	const runs, workers = 1000, 8
	d := dbtest.Open(t, o)
	c := newCounter()
	kind := Kind{Name: "k", Handle: c.handle}
	b := setup(t, d, kind)
	engines := []*Engine{New(d, b.vault, b.log, b.kinds, Options{Slots: workers, Poll: 10 * time.Millisecond})}
	if d.Postgres() {
		engines[0].opt.Slots = workers / 2
		other := dbtest.Open(t, o)
		log := eventlog.NewLog(other, b.vault, nil, eventlog.Options{})
		engines = append(engines, New(other, b.vault, log, b.kinds, Options{Slots: workers / 2, Poll: 10 * time.Millisecond}))
	}
	ids := make([]string, runs)
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		for i := range ids {
			id, err := b.StartTx(ctx, tx, Spec{Kind: "k", Key: []string{"", "", "one", "three"}[i%4], Width: []int{1, 1, 1, 3}[i%4]})
			if err != nil {
				return err
			}
			ids[i] = id
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, e := range engines {
		if err := e.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, id := range ids {
		if rec, err := b.Wait(ctx, id); err != nil || rec.State != Completed || rec.Fence != 1 {
			t.Fatalf("%s: %s, claimed %d times: %v", id, rec.State, rec.Fence, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if c.effects[id] != 1 {
			t.Errorf("run %s had its effect %d times", id, c.effects[id])
		}
	}
	if c.most["one"] != 1 || c.most["three"] > 3 || c.most[""] > workers {
		t.Errorf("at once: %v", c.most)
	}
	b.verify()
}

// TestTheSecondClaimOfARunIsRefused lets two processes claim at the same time, and the
// one that lost its run write.
func TestTheSecondClaimOfARunIsRefused(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindPostgres)
	d := dbtest.Open(t, o)
	b := setup(t, d, Kind{Name: "k", Handle: nothing})
	other := New(dbtest.Open(t, o), b.vault, b.log, b.kinds, Options{})
	for i := range 20 {
		b.begin(Spec{Kind: "k", ID: fmt.Sprint("run", i)})
	}
	claimed := make([][]Record, 2)
	errs := make([]error, 2)
	var wg sync.WaitGroup
	for i, e := range []*Engine{b.Engine, other} {
		wg.Go(func() {
			for len(claimed[i]) < 20 && errs[i] == nil {
				var recs []Record
				recs, _, errs[i] = e.claim(t.Context(), 3)
				if claimed[i] = append(claimed[i], recs...); len(recs) == 0 {
					return
				}
			}
		})
	}
	wg.Wait()
	owner := map[string]string{}
	for i, recs := range claimed {
		for _, rec := range recs {
			if before := owner[rec.ID]; before != "" {
				t.Errorf("%s was claimed by %s and %s", rec.ID, before, rec.Owner)
			}
			owner[rec.ID] = []string{b.node, other.node}[i]
		}
	}
	if len(owner) != 20 || errors.Join(errs...) != nil {
		t.Fatalf("%d claimed, %v", len(owner), errs)
	}
	mine := claimed[0]
	if len(mine) == 0 {
		mine, other = claimed[1], b.Engine
	}
	r := newRun(b.Engine, mine[0])
	if len(claimed[0]) == 0 {
		r = newRun(New(d, b.vault, b.log, b.kinds, Options{}), mine[0])
	}
	if err := other.recoverOnce(t.Context(), false); err != nil { // neither has a lease: both look dead
		t.Fatal(err)
	}
	if _, err := r.Step(t.Context(), "s", Policy{Kind: AtMostOnce}, func(context.Context) (json.RawMessage, error) {
		t.Error("a stale owner began a step")
		return nil, nil
	}); !errors.Is(err, errLost) {
		t.Errorf("a stale owner wrote: %v", err)
	}
}

// TestArrivalPolicies has runs come while one of their key works and others stand in
// line, all at the same time.
func TestArrivalPolicies(t *testing.T) {
	t.Parallel()
	for busy, want := range map[Busy]int{Queue: 20, Coalesce: 1, Skip: 0} {
		t.Run(string(busy), func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				c := newCounter()
				began, release := make(chan struct{}), make(chan struct{})
				b := setup(t, d, Kind{Name: "other", Handle: nothing}, Kind{Name: "k", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
					if string(r.Input()) == `"first"` {
						close(began)
						<-release
					}
					return c.handle(ctx, r)
				}})
				b.open()
				first := b.begin(Spec{Kind: "k", Key: "x", Input: "first"})
				<-began
				var mu sync.Mutex
				var wg sync.WaitGroup
				started := map[string]bool{}
				for range 20 {
					wg.Go(func() {
						id, err := b.Start(t.Context(), Spec{Kind: "k", Key: "x", Busy: busy})
						mu.Lock()
						defer mu.Unlock()
						if err != nil {
							t.Error(err)
						}
						if id != "" {
							started[id] = true
						}
					})
				}
				wg.Wait()
				if len(started) != want || started[first] {
					t.Errorf("%d runs for 20 arrivals, want %d", len(started), want)
				}
				// Another kind is not joined with, and is not let past those in line.
				last := b.begin(Spec{Kind: "other", Key: "x", Busy: Queue})
				close(release)
				b.wait(last)
				for id := range started {
					if rec, _, err := b.Get(t.Context(), id); err != nil || rec.State != Completed {
						t.Errorf("%s is %s when the one behind it has ended: %v", id, rec.State, err)
					}
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				if len(c.effects) != want+1 || c.most["x"] != 1 {
					t.Errorf("%d effects, %d at once", len(c.effects), c.most["x"])
				}
			})
		})
	}
}

func TestAKeyedRunCannotBeForATime(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), Kind{Name: "k", Handle: nothing})
	if _, err := b.Start(t.Context(), Spec{Kind: "k", Key: "x", At: 5}); !fault.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
	if _, err := b.Start(t.Context(), Spec{Kind: "none"}); !fault.Is(err, fault.Invalid) {
		t.Errorf("%v", err)
	}
}
