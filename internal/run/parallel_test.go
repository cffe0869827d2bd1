package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// states are what a join told of each branch: d done, f failed, c cancelled.
func states(out []Outcome) string {
	var b strings.Builder
	for _, o := range out {
		switch {
		case o.State == Done:
			b.WriteByte('d')
		case fault.Is(o.Err, fault.Cancelled):
			b.WriteByte('c')
		default:
			b.WriteByte('f')
		}
	}
	return b.String()
}

// TestJoins lets branches end in the order they stand in, well or not.
func TestJoins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		join   Join
		ends   string // of the branches: d done, f failed, w waits for ever
		states string
		class  fault.Class
	}{
		{"all", JoinAll, "ddd", "ddd", ""},
		{"one of all", JoinAll, "dfw", "dfc", fault.Unavailable},
		{"none", JoinAll, "", "", ""},
		{"all settled", JoinAllSettled, "dfd", "dfd", ""},
		{"quorum", JoinQuorum(2), "dfdw", "dfdc", ""},
		{"quorum out of reach", JoinQuorum(3), "dffw", "dffc", fault.Unavailable},
		{"first", JoinFirst, "fdw", "fdc", ""},
		{"none is first", JoinFirst, "ff", "ff", fault.Unavailable},
		{"too many", JoinQuorum(3), "dd", "", fault.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var told [2]string
			calls := 0
			b := setup(t, dbtest.SQLite(t), Kind{Name: "k", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
				turn := make([]chan struct{}, len(c.ends)+1)
				for i := range turn {
					turn[i] = make(chan struct{})
				}
				close(turn[0])
				var branches []Branch
				for i, end := range c.ends {
					branches = append(branches, Branch{Name: fmt.Sprint(i), Do: func(ctx context.Context) (json.RawMessage, error) {
						if end == 'w' {
							return nil, r.Park(ctx, ForSignal, "never", never, nil)
						}
						<-turn[i]
						_, err := r.Step(ctx, fmt.Sprint("s", i), Policy{Kind: AtMostOnce}, func(context.Context) (json.RawMessage, error) {
							if end == 'f' {
								return nil, fault.New(fault.Unavailable, "no luck")
							}
							return json.RawMessage("1"), nil
						})
						close(turn[i+1])
						return nil, err
					}})
				}
				out, err := r.Parallel(ctx, "p", c.join, branches...)
				told[calls] = states(out)
				if calls++; calls == 1 { // again, from the record
					return nil, r.Park(ctx, ForTimer, "again", 1, nil)
				}
				return nil, err
			}})
			b.open()
			rec := b.wait(b.begin(Spec{Kind: "k"}))
			if told[0] != c.states || told[1] != c.states || rec.ErrorClass != c.class {
				t.Errorf("told %q, then %q, class %q %s; want %q, %q", told[0], told[1], rec.ErrorClass, rec.Error, c.states, c.class)
			}
			b.verify()
		})
	}
}

// TestASleepingBranchKeepsNoOther has one branch sleep, one wait for a signal and one
// work through it all; then all wait and the run is parked.
func TestASleepingBranchKeepsNoOther(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		slept, heard, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var begun sync.Map
		var calls atomic.Int64
		step := func(ctx context.Context, r *Run, name string, fn func()) error {
			_, err := r.Step(ctx, name, Policy{Kind: AtMostOnce}, func(context.Context) (json.RawMessage, error) {
				if _, twice := begun.LoadOrStore(name, true); twice {
					t.Errorf("step %s was begun twice", name)
				}
				fn()
				return nil, nil
			})
			return err
		}
		b := setup(t, d, Kind{Name: "k", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
			calls.Add(1)
			out, err := r.Parallel(ctx, "p", JoinAll,
				Branch{"sleeper", func(ctx context.Context) (json.RawMessage, error) {
					return nil, cmpErr(r.Sleep(ctx, "nap", 20*time.Millisecond), func() error { return step(ctx, r, "awake", func() { close(slept) }) },
						func() error { return r.Sleep(ctx, "second nap", 50*time.Millisecond) })
				}},
				Branch{"listener", func(ctx context.Context) (json.RawMessage, error) {
					got, err := r.WaitSignal(ctx, "first", "go", 0)
					if err != nil {
						return nil, err
					}
					if err := step(ctx, r, "heard", func() { close(heard) }); err != nil {
						return nil, err
					}
					more, err := r.WaitSignal(ctx, "second", "go", time.Hour)
					return json.RawMessage(string(got) + string(more)), err
				}},
				Branch{"worker", func(ctx context.Context) (json.RawMessage, error) {
					err := step(ctx, r, "long", func() { <-release })
					return json.RawMessage("2"), err
				}})
			if err != nil {
				return nil, err
			}
			return json.Marshal([]json.RawMessage{out[1].Result, out[2].Result})
		}})
		b.open()
		id := b.begin(Spec{Kind: "k"})
		<-slept // while the worker works
		if err := b.Signal(t.Context(), id, "go", json.RawMessage("3"), "operator"); err != nil {
			t.Fatal(err)
		}
		<-heard
		if calls.Load() != 1 {
			t.Error("the run was parked while a branch worked")
		}
		close(release)
		b.until(id, Waiting)
		if err := b.Signal(t.Context(), id, "go", json.RawMessage("4"), "operator"); err != nil {
			t.Fatal(err)
		}
		if rec := b.wait(id); rec.State != Completed || string(rec.Result) != "[34,2]" {
			t.Errorf("%s %s %s", rec.State, rec.Result, rec.Error)
		}
		b.verify()
	})
}

// cmpErr does one after the other until one fails.
func cmpErr(err error, next ...func() error) error {
	for _, fn := range next {
		if err != nil {
			return err
		}
		err = fn()
	}
	return err
}

// TestALoserIsSettledAfterACrash has the node die between the decision of a join and
// the end of a branch that lost: its step is closed by its policy, the run it waited
// for is cancelled, and it begins nothing more.
func TestALoserIsSettledAfterACrash(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var began []string
		b := setup(t, d)
		handle := func(ctx context.Context, r *Run) ([]byte, error) {
			out, err := r.Parallel(ctx, "p", JoinFirst,
				Branch{"winner", func(context.Context) (json.RawMessage, error) { return json.RawMessage("1"), nil }},
				Branch{"sender", func(ctx context.Context) (json.RawMessage, error) {
					return nil, cmpErr(nil,
						func() error {
							_, err := r.Step(ctx, "send", Policy{Kind: AtMostOnce}, func(context.Context) (json.RawMessage, error) {
								began = append(began, "send")
								return nil, nil
							})
							return err
						}, func() error {
							_, err := r.Step(ctx, "more", Policy{Kind: Repeatable}, func(context.Context) (json.RawMessage, error) {
								began = append(began, "more")
								return nil, nil
							})
							return err
						})
				}},
				Branch{"parent", func(ctx context.Context) (json.RawMessage, error) {
					_, err := r.WaitRun(ctx, "child", func(ctx context.Context, tx *db.Tx) (string, error) { return "", errors.New("not again") })
					return nil, err
				}})
			return []byte(`"` + states(out) + `"`), err
		}
		for _, k := range []Kind{{Name: "k", Handle: handle, TellUnknown: true}, {Name: "park", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
			return nil, r.Park(ctx, ForSignal, "x", never, nil)
		}}} {
			if err := b.kinds.Add(k); err != nil {
				t.Fatal(err)
			}
		}
		id := b.begin(Spec{Kind: "k"})
		r := b.claimOne() // and dies with it, having done this much:
		ctx := t.Context()
		if err := r.openStep(ctx, StepSpec{Name: "send", Policy: Policy{Kind: AtMostOnce}}, 1); err != nil {
			t.Fatal(err)
		}
		child := ""
		if _, err := r.DoTx(ctx, StepSpec{Name: "child", Kind: "run"}, func(ctx context.Context, tx *db.Tx) Outcome {
			var err error
			if child, err = b.StartTx(ctx, tx, Spec{Kind: "park", Parent: id}); err != nil {
				return Fail(err)
			}
			return Succeed(json.RawMessage(`"` + child + `"`))
		}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"p/winner", "p/:decided"} {
			if _, err := r.Step(ctx, name, Policy{Kind: Repeatable}, func(context.Context) (json.RawMessage, error) { return json.RawMessage("1"), nil }); err != nil {
				t.Fatal(err)
			}
		}
		b.Engine = New(d, b.vault, b.log, b.kinds, Options{Poll: 20 * time.Millisecond})
		if err := b.recoverOnce(ctx, true); err != nil {
			t.Fatal(err)
		}
		b.open()
		rec := b.wait(id)
		_, steps, err := b.Get(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(steps, func(s *Step) bool { return s.Name == "send" })
		if string(rec.Result) != `"dcc"` || len(began) != 0 || steps[i].State != Unknown {
			t.Errorf("%s %s, began %v, the step is %s", rec.Result, rec.Error, began, steps[i].State)
		}
		if c := b.wait(child); c.State != Cancelled {
			t.Errorf("the child is %s", c.State)
		}
		b.verify()
	})
}

func TestAPanicInABranchFailsTheRunOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t), Kind{Name: "k", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
		_, err := r.Parallel(ctx, "p", JoinAll,
			Branch{"bad", func(context.Context) (json.RawMessage, error) { panic("oh") }},
			Branch{"waits", func(ctx context.Context) (json.RawMessage, error) { return nil, r.Sleep(ctx, "s", time.Hour) }})
		return nil, err
	}})
	b.open()
	if rec := b.wait(b.begin(Spec{Kind: "k"})); rec.State != Failed || rec.ErrorClass != fault.Internal || !strings.Contains(rec.Error, "oh") {
		t.Errorf("%s %s %q", rec.State, rec.ErrorClass, rec.Error)
	}
}
