package run

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// TestASignalIsKeptAndTakenOnce sends before, between and after the waits.
func TestASignalIsKeptAndTakenOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d, Kind{Name: "k", Attempts: 3, Backoff: func(int) time.Duration { return time.Millisecond },
			Handle: func(ctx context.Context, r *Run) ([]byte, error) {
				var got []json.RawMessage
				for _, step := range []string{"a", "b", "c"} {
					v, err := r.WaitSignal(ctx, step, "go", 0)
					if err != nil {
						return nil, err
					}
					got = append(got, v)
					if step == "b" && r.Record().Attempt < 2 { // what was taken stays taken
						return nil, fault.New(fault.Unavailable, "no luck")
					}
				}
				return json.Marshal(got)
			}})
		id := b.begin(Spec{Kind: "k"})
		send := func(text string) {
			t.Helper()
			if err := b.Signal(t.Context(), id, "go", json.RawMessage(text), "operator"); err != nil {
				t.Fatal(err)
			}
		}
		send("1")
		send(`{"n": 2}`)
		b.open()
		b.until(id, Waiting)
		for end := time.Now().Add(20 * time.Second); ; { // until it waits for the third
			if rec, _, err := b.Get(t.Context(), id); err != nil || rec.Wait == ForSignal || time.Now().After(end) {
				break
			}
		}
		if err := b.Signal(t.Context(), id, "other", nil, "operator"); err != nil {
			t.Fatal(err)
		}
		send("3")
		if rec := b.wait(id); string(rec.Result) != `[1,{"n":2},3]` {
			t.Errorf("%s %s %s", rec.State, rec.Result, rec.Error)
		}
		if err := b.Signal(t.Context(), id, "go", nil, "operator"); !fault.Is(err, fault.Conflict) {
			t.Errorf("a signal to a run that has ended: %v", err)
		}
		for _, bad := range []error{
			b.Signal(t.Context(), id, "", nil, "operator"), b.Signal(t.Context(), id, "go", json.RawMessage("{"), "operator"),
			b.Signal(t.Context(), id, "go", make(json.RawMessage, maxSignal+1), "operator"),
		} {
			if !fault.Is(bad, fault.Invalid) {
				t.Errorf("a bad signal: %v", bad)
			}
		}
		left := 1
		if err := d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
			return q.QueryRow(ctx, "SELECT count(*) FROM signals").Scan(&left)
		}); err != nil || left != 0 {
			t.Errorf("%d signals left: %v", left, err)
		}
		b.verify()
	})
}

func TestASignalThatDoesNotComeIsATimeout(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d, Kind{Name: "k", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
			_, err := r.WaitSignal(ctx, "s", "go", 30*time.Millisecond)
			if !fault.Is(err, fault.Timeout) {
				return nil, err
			}
			_, again := r.WaitSignal(ctx, "s", "go", time.Hour)
			return []byte(`"late"`), firstOf(again, err)
		}})
		b.open()
		if rec := b.wait(b.begin(Spec{Kind: "k"})); rec.State != Failed || rec.ErrorClass != fault.Timeout {
			t.Errorf("%s %s %s", rec.State, rec.ErrorClass, rec.Error)
		}
	})
}

// family is a kind that waits for a run of the kind child.
func family(t *testing.T, d *db.DB, parent bool, child func(ctx context.Context, r *Run) ([]byte, error)) *bench {
	var b *bench
	b = setup(t, d, Kind{Name: "child", Handle: child}, Kind{Name: "parent", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
		rec, err := r.WaitRun(ctx, "start", func(ctx context.Context, tx *db.Tx) (string, error) {
			s := Spec{Kind: "child", ID: "child-of-" + r.ID(), Key: r.Record().Key, Input: 7}
			if parent {
				s.Parent = r.ID()
			}
			return b.StartTx(ctx, tx, s)
		})
		if err != nil {
			return nil, err
		}
		return json.Marshal(string(rec.State) + string(rec.Result) + rec.Error)
	}})
	return b
}

func TestWaitRunReturnsWhatTheOtherCameTo(t *testing.T) {
	t.Parallel()
	for _, parent := range []bool{true, false} {
		dbtest.Each(t, func(t *testing.T, d *db.DB) {
			b := family(t, d, parent, func(ctx context.Context, r *Run) ([]byte, error) {
				if err := r.Sleep(ctx, "s", 10*time.Millisecond); err != nil {
					return nil, err
				}
				if string(r.Input()) == "7" {
					return []byte("8"), nil
				}
				return nil, fault.New(fault.Invalid, "no")
			})
			b.open()
			key := ""
			if parent { // it works in its parent's place
				key = "x"
			}
			if rec := b.wait(b.begin(Spec{Kind: "parent", Key: key})); string(rec.Result) != `"completed8"` {
				t.Errorf("%s %s %s", rec.State, rec.Result, rec.Error)
			}
			b.verify()
		})
	}
}

// TestAChildIsCancelledWithItsParent whether it runs, waits, stands in line or is in
// doubt; a run that others started is left alone.
func TestAChildIsCancelledWithItsParent(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]State{"running": Running, "waiting": Waiting, "uncertain": Uncertain, "not its own": Waiting} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				b := family(t, d, name != "not its own", func(ctx context.Context, r *Run) ([]byte, error) {
					switch want {
					case Running:
						<-ctx.Done()
						return nil, context.Cause(ctx)
					case Uncertain:
						_, err := r.Do(ctx, StepSpec{Name: "send", Policy: Policy{Kind: AtMostOnce}}, func(context.Context) Outcome { return unknownOutcome("timed out") })
						return nil, err
					}
					return nil, r.Park(ctx, ForSignal, "x", never, nil)
				})
				b.open()
				id := b.begin(Spec{Kind: "parent"})
				b.until(id, Waiting)
				child := "child-of-" + id
				b.until(child, want)
				if err := b.Cancel(t.Context(), id, "operator", "test"); err != nil {
					t.Fatal(err)
				}
				if rec := b.wait(id); rec.State != Cancelled {
					t.Errorf("the parent is %s", rec.State)
				}
				if name == "not its own" {
					if rec, _, err := b.Get(t.Context(), child); err != nil || rec.State != Waiting {
						t.Errorf("a run of somebody else is %s, %v", rec.State, err)
					}
				} else if rec := b.wait(child); rec.State != Cancelled {
					t.Errorf("the child is %s", rec.State)
				}
				b.verify()
			})
		})
	}
}

func TestARunSkippedFailsTheStepThatWouldWaitForIt(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), Kind{Name: "k", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
		_, err := r.WaitRun(ctx, "s", func(context.Context, *db.Tx) (string, error) { return "", nil })
		return nil, err
	}})
	b.open()
	if rec := b.wait(b.begin(Spec{Kind: "k"})); rec.State != Failed || rec.ErrorClass != fault.Conflict {
		t.Errorf("%s %s %s", rec.State, rec.ErrorClass, rec.Error)
	}
}

// TestProgressIsStoredAtABoundedRate tells more often than anybody reads.
func TestProgressIsStoredAtABoundedRate(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		told, go_ := make(chan struct{}), make(chan struct{})
		b := setup(t, d, Kind{Name: "k", Handle: func(_ context.Context, r *Run) ([]byte, error) {
			for i := range 10000 {
				r.Progress("reading", i+1, 10000)
			}
			close(told)
			<-go_
			return nil, nil
		}})
		b.open()
		woken, stop := d.Watch(topicOf("a"))
		defer stop()
		id := b.begin(Spec{Kind: "k", ID: "a"})
		<-told
		before := d.Stats().Callers
		if err := b.saveProgress(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-woken
		rec, _, err := b.Get(t.Context(), id)
		if err != nil || rec.Progress == nil || rec.Progress.Text != "reading" || rec.Progress.Total != 10000 || rec.Progress.At == 0 {
			t.Errorf("%+v, %v", rec.Progress, err)
		}
		if n := d.Stats().Callers - before; n > 2 {
			t.Errorf("%d commits for what was told", n)
		}
		close(go_)
		b.wait(id)
		b.verify()
	})
}

// TestProgressIsToldWhileItIsSaved is for the race detector.
func TestProgressIsToldWhileItIsSaved(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	r := &Run{e: b.Engine, rec: Record{ID: "a"}}
	save := func() {
		if err := b.saveProgress(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for range 200 {
		save() // nothing is told
		var both sync.WaitGroup
		both.Go(save)
		both.Go(func() { r.Progress("x", 0, 0) })
		both.Wait()
	}
}

func TestALongTextOfProgressIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	r := &Run{e: b.Engine, rec: Record{ID: "a"}}
	r.Progress("x"+strings.Repeat("é", maxProgress), 0, 0)
	if got := b.progress["a"].Text; len(got) != maxProgress-1 || !utf8.ValidString(got) {
		t.Errorf("%d bytes: …%q", len(got), got[len(got)-4:])
	}
}
