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
	"github.com/ombud-run/ombud/internal/fault"
)

// claimOne claims the one run that is due, without working on it.
func (b *bench) claimOne() *Run {
	b.t.Helper()
	recs, _, err := b.claim(b.t.Context(), 1)
	if err != nil || len(recs) != 1 {
		b.t.Fatalf("claimed %d: %v", len(recs), err)
	}
	return newRun(b.Engine, recs[0])
}

func nothing(context.Context, *Run) ([]byte, error) { return nil, nil }

func TestRecoveryLeavesALiveOwnerAlone(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t)
	b := setup(t, d, Kind{Name: "k", Handle: nothing})
	other := New(d, b.vault, b.log, b.kinds, Options{})
	third := New(d, b.vault, b.log, b.kinds, Options{})
	id := b.begin(Spec{Kind: "k"})
	b.claimOne() // b has no lease: it looks dead
	found, err := other.lostRuns(t.Context(), false)
	if err != nil || len(found) != 1 {
		t.Fatalf("found %v, %v", found, err)
	}
	// Before the other node comes to it, a third takes the run over and works on it.
	if err := third.renew(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := third.recoverOnce(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if recs, _, err := third.claim(t.Context(), 1); err != nil || len(recs) != 1 {
		t.Fatalf("claimed %d: %v", len(recs), err)
	}
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return other.takeBack(ctx, tx, found[0], "late", true)
	}); err != nil {
		t.Fatal(err)
	}
	rec, _, err := b.Get(t.Context(), id)
	if err != nil || rec.State != Running || rec.Owner != third.node || rec.Crashes != 1 {
		t.Errorf("run is %s, owner %s, crashes %d: %v", rec.State, rec.Owner, rec.Crashes, err)
	}
	// And a node whose lease was renewed after it was found is alive.
	if err := other.recoverOnce(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if rec, _, _ := b.Get(t.Context(), id); rec.Owner != third.node {
		t.Errorf("taken from a live owner by %s", rec.Owner)
	}
}

func TestADroppedRunIsTakenBackAtTheSecondLook(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d, Kind{Name: "k", Handle: nothing})
		id := b.begin(Spec{Kind: "k"})
		b.claimOne() // the commit is there, but the node does not know
		seen, err := b.dropped(t.Context(), nil)
		if err != nil || len(seen) != 1 {
			t.Fatalf("seen %v, %v", seen, err)
		}
		if rec, _, _ := b.Get(t.Context(), id); rec.State != Running {
			t.Errorf("taken back at the first look: %s", rec.State)
		}
		if _, err := b.dropped(t.Context(), seen); err != nil {
			t.Fatal(err)
		}
		if rec, _, _ := b.Get(t.Context(), id); rec.State != Queued || rec.Crashes != 0 {
			t.Errorf("%s, crashes %d", rec.State, rec.Crashes)
		}
		b.verify()
	})
}

func TestTimeBetweenDeathAndRestartIsNotWork(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), Kind{Name: "k", Handle: nothing})
	id := b.begin(Spec{Kind: "k"})
	b.claimOne()
	next := New(b.db, b.vault, b.log, b.kinds, Options{})
	if err := next.recoverOnce(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if rec, _, err := b.Get(t.Context(), id); err != nil || rec.Crashes != 1 || rec.Spent != 0 {
		t.Errorf("crashes %d, spent %d µs: %v", rec.Crashes, rec.Spent, err)
	}
}

func TestARunThatKeepsKillingItsNodeIsGivenUpWithItsStepsClosed(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), Kind{Name: "k", Handle: nothing, TellUnknown: true})
	id := b.begin(Spec{Kind: "k"})
	r := b.claimOne()
	if err := r.openStep(t.Context(), StepSpec{Name: "s", Policy: Policy{Kind: AtMostOnce}}, 1); err != nil {
		t.Fatal(err)
	}
	for range maxCrashes {
		next := New(b.db, b.vault, b.log, b.kinds, Options{})
		if err := next.recoverOnce(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		if _, _, err := next.claim(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	rec, steps, err := b.Get(t.Context(), id)
	if err != nil || rec.State != Failed || rec.Crashes != maxCrashes-1 || len(steps) != 1 || steps[0].State != Unknown {
		t.Errorf("%s after %d crashes, steps %v, %v", rec.State, rec.Crashes, steps, err)
	}
	b.verify()
}

func TestParallelCommitsTakeALazyOutcomeAlongOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d, Kind{Name: "k", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
			for i := range 4 {
				if _, err := r.Do(ctx, StepSpec{Name: fmt.Sprintf("lazy%d", i), Lazy: true, Policy: Policy{Kind: Repeatable}},
					func(context.Context) Outcome { return Succeed(json.RawMessage(`1`)) }); err != nil {
					return nil, err
				}
			}
			errs := make([]error, 8)
			var wg sync.WaitGroup
			for i := range errs {
				wg.Go(func() {
					_, errs[i] = r.DoTx(ctx, StepSpec{Name: fmt.Sprint(i)}, func(context.Context, *db.Tx) Outcome { return Succeed(nil) })
				})
			}
			wg.Wait()
			if _, err := r.Do(ctx, StepSpec{Name: "last", Lazy: true, Policy: Policy{Kind: Repeatable}},
				func(context.Context) Outcome { return Succeed(json.RawMessage(`1`)) }); err != nil {
				return nil, err
			}
			return nil, errors.Join(errs...)
		}})
		b.open()
		id := b.begin(Spec{Kind: "k"})
		rec := b.wait(id)
		_, steps, err := b.Get(t.Context(), id)
		if err != nil || rec.State != Completed || len(steps) != 13 {
			t.Errorf("%s %q with %d steps: %v", rec.State, rec.Error, len(steps), err)
		}
		b.verify()
	})
}

func TestOnCloseSaysWhatIsRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), Kind{Name: "k", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
		_, err := r.DoTx(ctx, StepSpec{Name: "s", OnClose: func(_ context.Context, _ *db.Tx, o *Outcome) error {
			o.Result, o.Audit = json.RawMessage(`"why"`), AuditRef{Chain: "c", Seq: 7, Hash: []byte("h")}
			return nil
		}}, func(context.Context, *db.Tx) Outcome { return Fail(errors.New("refused")) })
		return nil, err
	}})
	b.open()
	id := b.begin(Spec{Kind: "k"})
	b.wait(id)
	_, steps, err := b.Get(t.Context(), id)
	if err != nil || string(steps[0].Result) != `"why"` || steps[0].Audit.Seq != 7 || steps[0].State != Errored {
		t.Errorf("recorded %+v: %v", steps[0], err)
	}
	b.verify()
}

func TestParkWaitsForParallelStepsUnderWay(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		began, release := make(chan struct{}), make(chan struct{})
		effects, calls := 0, 0
		b := setup(t, d, Kind{Name: "k", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
			calls++
			done := make(chan error, 1)
			go func() {
				_, err := r.Step(ctx, "send", Policy{Kind: AtMostOnce}, func(context.Context) (json.RawMessage, error) {
					effects++
					close(began)
					<-release
					return nil, nil
				})
				done <- err
			}()
			if calls == 1 {
				<-began
				time.AfterFunc(50*time.Millisecond, func() { close(release) })
			}
			err := r.Park(ctx, ForTimer, "t", 1, func(context.Context, *db.Tx) (bool, error) { return calls > 1, nil })
			return nil, errors.Join(err, <-done)
		}})
		b.open()
		rec := b.wait(b.begin(Spec{Kind: "k"}))
		if rec.State != Completed || effects != 1 || calls != 2 {
			t.Errorf("%s %q after %d calls, sent %d times", rec.State, rec.Error, calls, effects)
		}
		b.verify()
	})
}

func TestACancelledRunThatFailsIsCancelledAndNotRetried(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d, Kind{Name: "k", Attempts: 3, Handle: nothing})
		id := b.begin(Spec{Kind: "k"})
		r := b.claimOne() // not in live: the cancellation is not heard at once, as from another node
		if err := b.Cancel(t.Context(), id, "operator", "test"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Step(t.Context(), "s", Policy{Kind: AtMostOnce}, nil); !errors.Is(err, errCancelled) {
			t.Errorf("a step of a run that has to stop: %v", err)
		}
		kind, _ := b.kinds.get("k")
		b.conclude(r, kind, nil, fault.New(fault.Unavailable, "no luck"))
		if rec, _, err := b.Get(t.Context(), id); err != nil || rec.State != Cancelled {
			t.Errorf("%s: %v", rec.State, err)
		}
		b.verify()
	})
}

func TestAStepBegunAsAtMostOnceStaysSo(t *testing.T) {
	t.Parallel()
	for _, was := range []PolicyKind{AtMostOnce, Probed} {
		b := setup(t, dbtest.SQLite(t), Kind{Name: "k", Handle: nothing, TellUnknown: true})
		b.begin(Spec{Kind: "k"})
		r := b.claimOne()
		if err := r.openStep(t.Context(), StepSpec{Name: "s", Policy: Policy{Kind: was}}, 1); err != nil {
			t.Fatal(err)
		}
		if err := r.loadSteps(); err != nil {
			t.Fatal(err)
		}
		out, err := r.Do(t.Context(), StepSpec{Name: "s", Policy: Policy{Kind: Noted}}, func(context.Context) Outcome {
			t.Errorf("a step begun as %s was begun again", was)
			return Succeed(nil)
		})
		if err != nil || out.State != Unknown {
			t.Errorf("%s: %s, %v", was, out.State, err)
		}
	}
}

func TestTwoStepsInDoubtAreDecidedOneByOne(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), Kind{Name: "k", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
		errs := make([]error, 2)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				_, errs[i] = r.Do(ctx, StepSpec{Name: fmt.Sprint(i), Policy: Policy{Kind: AtMostOnce}},
					func(context.Context) Outcome { return unknownOutcome("timed out") })
			})
		}
		wg.Wait()
		return nil, errors.Join(errs...)
	}})
	b.open()
	id := b.begin(Spec{Kind: "k"})
	for range 2 {
		b.until(id, Uncertain)
		if err := b.Resolve(t.Context(), id, MarkDone, "operator", ""); err != nil {
			t.Fatal(err)
		}
	}
	if rec := b.wait(id); rec.State != Completed {
		t.Errorf("%s %q", rec.State, rec.Error)
	}
	b.verify()
}

func TestAChildThatOutlivesItsParentKeepsTheKey(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d, Kind{Name: "k", Handle: nothing})
		parent := b.begin(Spec{Kind: "k", Key: "x"})
		child := b.begin(Spec{Kind: "k", Key: "x", Parent: parent})
		next := b.begin(Spec{Kind: "k", Key: "x"})
		if err := b.Cancel(t.Context(), parent, "operator", "test"); err != nil {
			t.Fatal(err)
		}
		r := b.claimOne()
		if r.ID() != child {
			t.Fatalf("claimed %s before the child", r.ID())
		}
		if due, err := b.due(t.Context(), 4); err != nil || len(due) != 0 {
			t.Errorf("due beside the child: %v, %v", due, err)
		}
		kind, _ := b.kinds.get("k")
		b.conclude(r, kind, nil, nil)
		if r := b.claimOne(); r.ID() != next {
			t.Errorf("claimed %s, not the next in line", r.ID())
		}
	})
}

func TestTheNextBootInAHomeNeedNotWaitForALease(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d, Kind{Name: "k", Handle: nothing})
		in := func(home string) *Engine {
			e := New(d, b.vault, b.log, b.kinds, Options{Home: home})
			if err := e.renew(t.Context(), time.Hour); err != nil {
				t.Fatal(err)
			}
			return e
		}
		first := in("homea")
		id := b.begin(Spec{Kind: "k"})
		if recs, _, err := first.claim(t.Context(), 1); err != nil || len(recs) != 1 {
			t.Fatalf("claimed %d: %v", len(recs), err)
		}
		state := func() State {
			rec, _, err := b.Get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			return rec.State
		}
		if d.Postgres() { // on SQLite nobody else can be there
			if err := in("homeb").recoverOnce(t.Context(), false); err != nil || state() != Running {
				t.Errorf("another home took it: %s, %v", state(), err)
			}
		}
		if err := in("homea").recoverOnce(t.Context(), !d.Postgres()); err != nil || state() != Queued {
			t.Errorf("the next boot left it %s: %v", state(), err)
		}
	})
}

// The active node of a store waits for the lease of the one before it only where an
// effect of that may be under way.
func TestASoleNodeWaitsOnlyForEffectsThatMayBeUnderWay(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t)
	b := setup(t, d, Kind{Name: "k", Handle: nothing})
	if err := b.renew(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	var free, busy, asked string
	for id, policy := range map[*string]PolicyKind{&free: "", &busy: AtMostOnce, &asked: Noted} {
		*id = b.begin(Spec{Kind: "k"})
		r := b.claimOne()
		if policy == "" {
			continue
		}
		if err := r.openStep(t.Context(), StepSpec{Name: "s", Policy: Policy{Kind: policy}}, 1); err != nil {
			t.Fatal(err)
		}
	}
	next := New(d, b.vault, b.log, b.kinds, Options{Home: "other", Sole: true})
	if err := next.recoverOnce(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]State{free: Queued, busy: Running, asked: Queued} {
		if rec, _, err := b.Get(t.Context(), id); err != nil || rec.State != want {
			t.Errorf("%s, want %s: %v", rec.State, want, err)
		}
	}
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE nodes SET expires = 1 WHERE id = $1", b.node)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := next.recoverOnce(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if rec, _, err := b.Get(t.Context(), busy); err != nil || rec.State != Queued {
		t.Errorf("after the lease: %s, %v", rec.State, err)
	}
}

func TestGivingUpARunClosesWhatACrashLeftOpenInIt(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), Kind{Name: "k", Handle: nothing})
	id := b.begin(Spec{Kind: "k"})
	r := b.claimOne()
	if err := r.openStep(t.Context(), StepSpec{Name: "interrupted", Policy: Policy{Kind: AtMostOnce}}, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Do(t.Context(), StepSpec{Name: "in doubt", Policy: Policy{Kind: AtMostOnce}},
		func(context.Context) Outcome { return unknownOutcome("timed out") }); !errors.Is(err, errUncertain) {
		t.Fatal(err)
	}
	if err := b.Resolve(t.Context(), id, GiveUp, "operator", "enough"); err != nil {
		t.Fatal(err)
	}
	rec, steps, err := b.Get(t.Context(), id)
	if err != nil || rec.State != Cancelled || len(steps) != 2 || steps[0].State != Unknown || steps[1].State != Unknown {
		t.Errorf("%s, steps %+v: %v", rec.State, steps, err)
	}
	b.verify()
}
