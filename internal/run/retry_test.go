package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
)

// TestATriggerBetweenAFailureAndItsRetryTakesNothingFromIt starts a second run under the
// same key while the first waits for its retry: the first keeps its input and its
// recorded steps, and the second comes after it.
func TestATriggerBetweenAFailureAndItsRetryTakesNothingFromIt(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		var did []string // by the one run at a time that the key lets work
		b := setup(t, d, Kind{Name: "k", Attempts: 2, Backoff: func(int) time.Duration { return 300 * time.Millisecond },
			Handle: func(ctx context.Context, r *Run) ([]byte, error) {
				for _, step := range []string{"one", "two"} {
					if step == "two" && string(r.Input()) == `"first"` && r.Record().Attempt == 0 {
						return nil, fault.New(fault.Unavailable, "no luck")
					}
					if _, err := r.Step(ctx, step, Policy{Kind: Repeatable}, func(context.Context) (json.RawMessage, error) {
						did = append(did, string(r.Input())+" "+step)
						return nil, nil
					}); err != nil {
						return nil, err
					}
				}
				return nil, nil
			}})
		b.open()
		first := b.begin(Spec{Kind: "k", Key: "loop", Input: "first"})
		for waits := false; !waits; {
			rec, _, err := b.Get(t.Context(), first)
			if err != nil || rec.State.Ended() {
				t.Fatal(rec.State, err)
			}
			waits = rec.State == Waiting && rec.Wait == ForRetry
		}
		second := b.begin(Spec{Kind: "k", Key: "loop", Input: "second"})
		for _, id := range []string{first, second} {
			if rec := b.wait(id); rec.State != Completed {
				t.Errorf("%s: %s", rec.Input, rec.State)
			}
		}
		if want := []string{`"first" one`, `"first" two`, `"second" one`, `"second" two`}; !slices.Equal(did, want) {
			t.Errorf("did %q, want %q", did, want)
		}
		b.verify()
	})
}

// TestAReplayedRunKeepsItsPlaceInTheRecord: of a run that failed in a step, with a key
// that another one holds by now, and with others that cannot go on.
func TestAReplayedRunKeepsItsPlaceInTheRecord(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		bad := true
		done := map[string]int{}
		release := make(chan struct{})
		b := setup(t, d, Kind{Name: "k", Handle: func(ctx context.Context, r *Run) ([]byte, error) {
			if string(r.Input()) == `"holds"` {
				<-release
				return nil, nil
			}
			if _, err := r.Step(ctx, "done", Policy{Kind: AtMostOnce}, func(context.Context) (json.RawMessage, error) { done["done"]++; return nil, nil }); err != nil {
				return nil, err
			}
			_, err := r.Step(ctx, "bad", Policy{Kind: Repeatable}, func(context.Context) (json.RawMessage, error) {
				done["bad"]++
				if bad {
					return nil, errors.New("bad")
				}
				return nil, nil
			})
			return nil, err
		}})
		b.open()
		id := b.begin(Spec{Kind: "k", Key: "loop", Input: "x"})
		rec := b.wait(id)
		if rec.State != Failed {
			t.Fatal(rec.State)
		}
		letters, err := b.log.DeadLetters(t.Context(), eventlog.LetterFilter{Source: eventlog.FromRun})
		if err != nil || len(letters) != 1 || letters[0].Ref != id || letters[0].Error == "" {
			t.Fatalf("%+v, %v", letters, err)
		}
		holder := b.begin(Spec{Kind: "k", Key: "loop", Input: "holds"})
		bad = false
		replay := func(id string) error {
			return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error { return b.ReplayTx(ctx, tx, id, "operator", letters[0].ID) })
		}
		if err := replay(id); err != nil {
			t.Fatal(err)
		}
		if err := replay(id); !fault.Is(err, fault.Conflict) {
			t.Errorf("twice: %v", err)
		}
		if err := replay("run_x"); !fault.Is(err, fault.NotFound) {
			t.Errorf("none: %v", err)
		}
		if rec, _, err := b.Get(t.Context(), id); err != nil || rec.State != Queued || rec.Ended != 0 || rec.NextAt != never {
			t.Errorf("while another holds its key: %s, next at %d, %v", rec.State, rec.NextAt, err)
		}
		b.verify()
		close(release)
		b.wait(holder)
		if rec := b.wait(id); rec.State != Completed || rec.ErrorClass != "" {
			t.Errorf("after the replay: %s %s", rec.State, rec.Error)
		}
		if got := fmt.Sprint(done); got != "map[bad:2 done:1]" {
			t.Errorf("steps done: %s", got)
		}
		if err := replay(holder); !fault.Is(err, fault.Conflict) {
			t.Errorf("a run that completed: %v", err)
		}
		b.verify()
		r, err := b.Receipt(t.Context(), id)
		if err != nil || r.State != Completed {
			t.Errorf("its receipt: %+v, %v", r, err)
		}
	})
}
