package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bench struct {
	t     testing.TB
	db    *db.DB
	vault *vault.Vault
	log   *eventlog.Log
	kinds *Kinds
	*Engine
}

func newVault(t testing.TB) *vault.Vault {
	t.Helper()
	v, err := vault.OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// setup returns an engine whose loops are not started.
func setup(t testing.TB, d *db.DB, kinds ...Kind) *bench {
	t.Helper()
	b := &bench{t: t, db: d, vault: newVault(t), kinds: NewKinds()}
	b.log = eventlog.NewLog(d, b.vault, slog.New(slog.DiscardHandler), eventlog.Options{})
	for _, k := range kinds {
		if err := b.kinds.Add(k); err != nil {
			t.Fatal(err)
		}
	}
	b.Engine = New(d, b.vault, b.log, b.kinds, Options{Poll: 20 * time.Millisecond})
	return b
}

func (b *bench) open() {
	b.t.Helper()
	if err := b.Open(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { b.stop() })
}

func (b *bench) stop() {
	b.t.Helper()
	if err := b.Stop(context.Background()); err != nil {
		b.t.Error(err)
	}
}

func (b *bench) begin(s Spec) string {
	b.t.Helper()
	id, err := b.Start(b.t.Context(), s)
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

func (b *bench) wait(id string) Record {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	rec, err := b.Wait(ctx, id)
	if err != nil {
		b.t.Fatalf("run %s: %s: %v", id, rec.State, err)
	}
	return rec
}

func (b *bench) verify() {
	b.t.Helper()
	if _, err := b.Verify(b.t.Context()); err != nil {
		b.t.Error(err)
	}
}

func TestDiagramInDocIsTheTable(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(Diagram()) {
		if !strings.Contains(string(doc), "//\t"+strings.TrimSpace(line)) {
			t.Errorf("doc.go does not show %q", strings.TrimSpace(line))
		}
	}
}

func TestEveryLiveStateCanEnd(t *testing.T) {
	t.Parallel()
	for _, s := range liveStates() {
		seen := map[State]bool{s: true}
		for grew := true; grew; {
			grew = false
			for _, e := range edges {
				if seen[e.from] && !seen[e.to] {
					seen[e.to], grew = true, true
				}
			}
		}
		if !seen[Cancelled] || !seen[Failed] {
			t.Errorf("%s cannot be cancelled or fail: reaches %v", s, seen)
		}
	}
	for _, e := range edges {
		if e.from.Ended() && (e.from != Failed || e.who != person) {
			t.Errorf("%v leaves an ended state, and not by a person's replay", e)
		}
	}
}

func TestStepsAreDoneOnceAndTheRunCompletes(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		n := 0
		b := setup(t, d, Kind{Name: "k", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
			for _, p := range []PolicyKind{Repeatable, Noted, AtMostOnce} {
				if _, err := r.Step(ctx, string(p), Policy{Kind: p}, func(context.Context) (json.RawMessage, error) {
					n++
					return json.RawMessage(`"ok"`), nil
				}); err != nil {
					return nil, err
				}
			}
			return []byte(`{"n":3}`), nil
		}})
		b.open()
		id := b.begin(Spec{Kind: "k", Input: map[string]int{"a": 1}})
		rec := b.wait(id)
		if rec.State != Completed || n != 3 || string(rec.Result) != `{"n":3}` || string(rec.Input) != `{"a":1}` {
			t.Errorf("state %s, steps done %d, result %s, input %s", rec.State, n, rec.Result, rec.Input)
		}
		b.verify()
		receipt, err := b.Receipt(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(receipt)
		if _, err := VerifyReceipt(text, b.vault.PublicKey()); err != nil {
			t.Error(err)
		}
		if err := b.CheckReceipt(t.Context(), receipt); err != nil {
			t.Error(err)
		}
		spaced, _ := json.MarshalIndent(receipt, " ", "\t")
		if _, err := VerifyReceipt(append(spaced, '\n'), b.vault.PublicKey()); err != nil {
			t.Errorf("a receipt with white space: %v", err)
		}
		for what, forged := range map[string]string{
			"another state":  strings.Replace(string(text), `"state":"completed"`, `"state":"failed"`, 1),
			"a state twice":  strings.Replace(string(text), `"state":"completed"`, `"state":"failed","state":"completed"`, 1),
			"other letters":  strings.Replace(string(text), `"state":`, `"State":`, 1),
			"another order":  strings.Replace(strings.Replace(string(text), `"run":"`+id+`",`, "", 1), `"kind":"k",`, `"kind":"k","run":"`+id+`",`, 1),
			"something more": string(text) + `{}`,
			"a field more":   strings.Replace(string(text), `{`, `{"note":"fine",`, 1),
			"an event less":  string(text[:strings.Index(string(text), `{"position"`)]) + string(text[strings.Index(string(text), `},{"position"`)+2:]),
			"nothing":        "",
		} {
			if _, err := VerifyReceipt([]byte(forged), b.vault.PublicKey()); !fault.Is(err, fault.Verification) || forged == string(text) {
				t.Errorf("a receipt with %s: %v", what, err)
			}
		}
	})
}

func TestKeyOrdersRunsAndIsGivenOn(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var mu sync.Mutex
		var order []string
		running, most := 0, 0
		b := setup(t, d, Kind{Name: "k", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
			mu.Lock()
			order = append(order, r.Record().Name)
			running++
			most = max(most, running)
			mu.Unlock()
			defer func() { mu.Lock(); running--; mu.Unlock() }()
			if strings.HasSuffix(r.Record().Name, "3") {
				return nil, errors.New("fails")
			}
			return nil, nil
		}})
		var ids []string
		for i := range 10 {
			ids = append(ids, b.begin(Spec{Kind: "k", Name: fmt.Sprint(i), Key: "conv"}))
		}
		b.open()
		for _, id := range ids {
			b.wait(id)
		}
		if !slices.IsSorted(order) || len(order) != 10 || most != 1 {
			t.Errorf("order %v, at once %d", order, most)
		}
		b.verify()
	})
}

func TestBusyJoinsOrSkips(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), Kind{Name: "k", Handle: func(context.Context, *Run) ([]byte, error) { return nil, nil }})
	first := b.begin(Spec{Kind: "k", Key: "a"})
	if id := b.begin(Spec{Kind: "k", Key: "a", Busy: Skip}); id != "" {
		t.Errorf("skip started %s", id)
	}
	second := b.begin(Spec{Kind: "k", Key: "a", Busy: Coalesce})
	third := b.begin(Spec{Kind: "k", Key: "a", Busy: Coalesce})
	if second == first && third != second {
		t.Errorf("coalesce: %s, %s, %s", first, second, third)
	}
	child := b.begin(Spec{Kind: "k", Key: "a", Parent: first})
	rec, _, err := b.Get(t.Context(), child)
	if err != nil || rec.NextAt == never {
		t.Errorf("a child waits for its ancestor: %v %v", rec.NextAt, err)
	}
}

func TestCancelInEveryLiveState(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		began := make(chan string, 4)
		told := make(chan State, 8)
		b := setup(t, d, Kind{Name: "block", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
			began <- r.ID()
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}, Ended: func(_ context.Context, _ *db.Tx, r Record) error { told <- r.State; return nil }},
			Kind{Name: "park", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
				return nil, r.Park(ctx, ForSignal, "x", never, nil)
			}})
		b.open()
		running := b.begin(Spec{Kind: "block", Key: "a"})
		<-began
		queued := b.begin(Spec{Kind: "block", Key: "a"})
		parked := b.begin(Spec{Kind: "park"})
		b.until(parked, Waiting)
		for _, id := range []string{queued, parked, running} {
			if err := b.Cancel(t.Context(), id, "operator", "test"); err != nil {
				t.Fatal(err)
			}
			if rec := b.wait(id); rec.State != Cancelled {
				t.Errorf("run is %s: %s", rec.State, rec.Error)
			}
			if err := b.Cancel(t.Context(), id, "operator", "again"); !fault.Is(err, fault.Conflict) {
				t.Errorf("cancelled twice: %v", err)
			}
		}
		if s := []State{<-told, <-told}; s[0] != Cancelled || s[1] != Cancelled {
			t.Errorf("told %v", s)
		}
		b.verify()
	})
}

func (b *bench) until(id string, s State) {
	b.t.Helper()
	woken, stop := b.db.Watch(topic)
	defer stop()
	for range 500 {
		rec, _, err := b.Get(b.t.Context(), id)
		if err != nil {
			b.t.Fatal(err)
		}
		if rec.State == s {
			return
		}
		select {
		case <-woken:
		case <-time.After(20 * time.Millisecond):
		}
	}
	b.t.Fatalf("run %s never became %s", id, s)
}

func TestRetryKeepsStepsAndEndsAfterTheLastAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	once, tries := 0, 0
	if err := b.kinds.Add(Kind{Name: "k", Attempts: 3, Backoff: func(int) time.Duration { return time.Millisecond },
		Handle: func(ctx context.Context, r *Run) ([]byte, error) {
			if _, err := r.Step(ctx, "once", Policy{Kind: AtMostOnce}, func(context.Context) (json.RawMessage, error) {
				once++
				return nil, nil
			}); err != nil {
				return nil, err
			}
			tries++
			return nil, fault.New(fault.Unavailable, "no luck")
		}}); err != nil {
		t.Fatal(err)
	}
	b.open()
	rec := b.wait(b.begin(Spec{Kind: "k"}))
	if rec.State != Failed || tries != 3 || once != 1 || rec.ErrorClass != fault.Unavailable {
		t.Errorf("%s after %d tries, step done %d times, class %s", rec.State, tries, once, rec.ErrorClass)
	}
	b.verify()
}

func TestUncertainRunWaitsForAPersonAndFreesItsKey(t *testing.T) {
	t.Parallel()
	for _, decision := range []Decision{Retry, MarkDone, MarkFailed, GiveUp} {
		t.Run(string(decision), func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				effects := 0
				b := setup(t, d, Kind{Name: "k", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
					out, err := r.Do(ctx, StepSpec{Name: "send", Policy: Policy{Kind: AtMostOnce}}, func(context.Context) Outcome {
						effects++
						if effects == 1 {
							return unknownOutcome("timed out")
						}
						return Succeed(nil)
					})
					if err != nil {
						return nil, err
					}
					return nil, out.Err
				}}, Kind{Name: "other", Handle: func(context.Context, *Run) ([]byte, error) { return nil, nil }})
				b.open()
				id := b.begin(Spec{Kind: "k", Key: "x"})
				b.until(id, Uncertain)
				b.wait(b.begin(Spec{Kind: "other", Key: "x"}))
				if err := b.Resolve(t.Context(), id, "maybe", "operator", ""); !fault.Is(err, fault.Invalid) {
					t.Errorf("decision maybe: %v", err)
				}
				if err := b.Resolve(t.Context(), id, decision, "operator", "looked"); err != nil {
					t.Fatal(err)
				}
				rec := b.wait(id)
				want := map[Decision]State{Retry: Completed, MarkDone: Completed, MarkFailed: Failed, GiveUp: Cancelled}[decision]
				wantEffects := map[Decision]int{Retry: 2, MarkDone: 1, MarkFailed: 1, GiveUp: 1}[decision]
				if rec.State != want || effects != wantEffects {
					t.Errorf("state %s, effects %d; want %s, %d", rec.State, effects, want, wantEffects)
				}
				b.verify()
			})
		})
	}
}

func TestParkedRunIsWokenOnceAndNeverMissesIt(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		calls := 0
		if err := b.kinds.Add(Kind{Name: "k", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
			calls++
			err := r.Park(ctx, ForSignal, "go", never, func(ctx context.Context, tx *db.Tx) (bool, error) {
				var n int
				return n > 0, tx.QueryRow(ctx, "SELECT count(*) FROM meta WHERE key = 'go'").Scan(&n)
			})
			if err != nil {
				return nil, err
			}
			return nil, nil
		}}); err != nil {
			t.Fatal(err)
		}
		b.open()
		id := b.begin(Spec{Kind: "k"})
		b.until(id, Waiting)
		if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ('go', 'yes')"); err != nil {
				return err
			}
			return b.WakeTx(ctx, tx, id, ForSignal, "go")
		}); err != nil {
			t.Fatal(err)
		}
		if rec := b.wait(id); rec.State != Completed || calls != 2 {
			t.Errorf("%s after %d calls", rec.State, calls)
		}
		if rec := b.wait(b.begin(Spec{Kind: "k"})); rec.State != Completed || calls != 3 {
			t.Errorf("what is there already is not waited for: %s after %d calls", rec.State, calls)
		}
		b.verify()
	})
}

func TestStopQueuesAndTheNextBootGoesOn(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		release, began := make(chan struct{}), make(chan struct{}, 4)
		effects := 0
		kind := Kind{Name: "k", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
			_, err := r.Step(ctx, "slow", Policy{Kind: AtMostOnce}, func(context.Context) (json.RawMessage, error) {
				began <- struct{}{}
				<-release
				effects++
				return nil, nil
			})
			if err != nil {
				return nil, err
			}
			_, err = r.Step(ctx, "after", Policy{Kind: AtMostOnce}, func(context.Context) (json.RawMessage, error) {
				effects++
				return nil, nil
			})
			return nil, err
		}}
		b := setup(t, d, kind)
		if err := b.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		id := b.begin(Spec{Kind: "k"})
		<-began
		stopped := make(chan struct{})
		go func() { defer close(stopped); b.stop() }()
		<-b.stopping
		close(release)
		<-stopped
		rec, _, err := b.Get(t.Context(), id)
		if err != nil || rec.State != Queued || effects != 1 || rec.Crashes != 0 {
			t.Fatalf("after stop: %s, effects %d, crashes %d, %v", rec.State, effects, rec.Crashes, err)
		}
		next := New(d, b.vault, b.log, b.kinds, Options{Poll: 20 * time.Millisecond})
		b2 := &bench{t: t, db: d, vault: b.vault, log: b.log, kinds: b.kinds, Engine: next}
		b2.open()
		if rec := b2.wait(id); rec.State != Completed || effects != 2 {
			t.Errorf("after the next boot: %s, effects %d", rec.State, effects)
		}
		b2.verify()
	})
}

// What may be done twice must not hold up a stop, however long it would take.
func TestStopDoesNotWaitForWhatMayBeRepeated(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		began := make(chan struct{}, 4)
		calls := 0
		kind := Kind{Name: "k", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
			return r.Step(ctx, "look", Policy{Kind: Repeatable}, func(ctx context.Context) (json.RawMessage, error) {
				if calls++; calls > 1 {
					return json.RawMessage("1"), nil
				}
				began <- struct{}{}
				select {
				case <-ctx.Done():
					return nil, context.Cause(ctx)
				case <-r.e.graceOver:
					return nil, errors.New("it was waited for")
				}
			})
		}}
		b := setup(t, d, kind)
		if err := b.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		id := b.begin(Spec{Kind: "k"})
		<-began
		b.stop()
		rec, steps, err := b.Get(t.Context(), id)
		if err != nil || rec.State != Queued || len(steps) != 0 {
			t.Fatalf("after stop: %s %s, steps %v, %v", rec.State, rec.Error, steps, err)
		}
		next := New(d, b.vault, b.log, b.kinds, Options{Poll: 20 * time.Millisecond})
		b2 := &bench{t: t, db: d, vault: b.vault, log: b.log, kinds: b.kinds, Engine: next}
		b2.open()
		if rec := b2.wait(id); rec.State != Completed || calls != 2 {
			t.Errorf("after the next boot: %s %s, %d calls", rec.State, rec.Error, calls)
		}
		b2.verify()
	})
}

func TestTimerFiresOncePerInstant(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		arm := func(id string, at int64) {
			t.Helper()
			if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				return b.ArmTx(ctx, tx, Timer{ID: id, Kind: "test", Owner: "me", At: at, Payload: json.RawMessage(`{"a":1}`)})
			}); err != nil {
				t.Fatal(err)
			}
		}
		past := d.Time() - 1000
		arm("a", past)
		arm("later", d.Time()+int64(time.Hour/time.Microsecond))
		for range 3 {
			if err := b.fireOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		arm("a", past) // the same instant again: a crash between firing and forgetting
		if err := b.fireOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		evs, err := b.log.Read(t.Context(), 0, 100, eventlog.Filter{Kinds: []string{TimerFired}})
		if err != nil || len(evs) != 1 || evs[0].Stream != "timer:a" {
			t.Errorf("fired %d times: %v", len(evs), err)
		}
		left, err := b.Timers(t.Context(), "me")
		if err != nil || len(left) != 1 || left[0].ID != "later" {
			t.Errorf("armed: %v, %v", left, err)
		}
	})
}

func TestPanicFailsTheRunOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), Kind{Name: "k", Handle: func(context.Context, *Run) ([]byte, error) { panic("oh") }})
	b.open()
	if rec := b.wait(b.begin(Spec{Kind: "k"})); rec.State != Failed || rec.ErrorClass != fault.Internal || !strings.Contains(rec.Error, "oh") {
		t.Errorf("%s %s %q", rec.State, rec.ErrorClass, rec.Error)
	}
}
