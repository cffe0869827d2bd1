package loops

import (
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/run"
)

func TestWhatFailedIsDoneAnewInTheNextAttemptAndNothingElse(t *testing.T) {
	t.Parallel()
	var got atomic.Value
	again := loop("again", func(ctx context.Context, k *Kit) error {
		if _, err := k.Tool(ctx, "put", "t.put", nil); err != nil {
			return err
		}
		text, err := k.Tool(ctx, "flaky", "t.flaky", json.RawMessage(`{"x":1}`))
		if err != nil {
			return err
		}
		got.Store(text + string(k.Trigger().Payload))
		return nil
	})
	each(t, setup{loops: []Loop{again}}, func(t *testing.T, h *house) {
		rec := h.end(h.start("again", `{"n":7}`))
		if rec.State != run.Completed || rec.Attempt != 1 || h.did("t.put") != 1 || h.did("t.flaky") != 2 {
			t.Errorf("%s %s after %d: %d %d", rec.State, rec.Error, rec.Attempt, h.did("t.put"), h.did("t.flaky"))
		}
		if s := h.steps(rec.ID); !slices.Contains(s, "tool flaky failed") || !slices.Contains(s, "tool flaky~1 done") {
			t.Errorf("%q", s)
		}
	})
}

func TestAFailedTurnIsAskedAgainInTheNextAttempt(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	again := loop("again", func(ctx context.Context, k *Kit) error {
		text, err := k.Ask(ctx, "ask", "how are you")
		if err != nil {
			return err
		}
		return k.Notify(ctx, "tell", "", text)
	})
	h := open(t, sqlite(t), setup{loops: []Loop{again}, brain: func(context.Context, model.Request) (model.Response, error) {
		if asked.Add(1) == 1 {
			return model.Response{}, fault.New(fault.Internal, "the provider broke down")
		}
		return says("well")
	}})
	rec := h.do("again")
	s := h.steps(rec.ID)
	for _, want := range []string{"tool ask done", "run ask/end failed", "tool ask~1 done", "run ask~1/run done"} {
		if !slices.Contains(s, want) {
			t.Errorf("no %q in %q", want, s)
		}
	}
	if rec.Attempt != 1 || !slices.Equal(h.heard("main"), []string{"🔔 loop:again\nwell"}) {
		t.Errorf("%d %q", rec.Attempt, h.heard("main"))
	}
}

// A run that was replayed from its dead letter begins what failed again, whatever it was.
func TestAReplayedRunAsksAgain(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	broken.Store(true)
	one := loop("one", func(ctx context.Context, k *Kit) error {
		if _, err := k.Tool(ctx, "put", "t.put", nil); err != nil {
			return err
		}
		_, err := k.Ask(ctx, "ask", "how are you")
		return err
	})
	h := open(t, sqlite(t), setup{loops: []Loop{one}, brain: func(context.Context, model.Request) (model.Response, error) {
		if broken.Load() {
			return model.Response{}, fault.New(fault.Internal, "the provider broke down")
		}
		return says("well")
	}})
	rec := h.fails("one")
	broken.Store(false)
	err := h.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return h.runs.ReplayTx(ctx, tx, rec.ID, "operator", "dlq_1")
	})
	if err != nil {
		t.Fatal(err)
	}
	if rec = h.end(rec.ID); rec.State != run.Completed || h.did("t.put") != 1 {
		t.Errorf("%s %s, %d, %q", rec.State, rec.Error, h.did("t.put"), h.steps(rec.ID))
	}
}

func TestOnceIsNotRepeatedAndStepIs(t *testing.T) {
	t.Parallel()
	var step, once atomic.Int64
	two := loop("two", func(ctx context.Context, k *Kit) error {
		if _, err := k.Step(ctx, "step", func(context.Context) (json.RawMessage, error) { step.Add(1); return json.RawMessage(`1`), nil }); err != nil {
			return err
		}
		if err := k.Once(ctx, "once", func(context.Context) error { once.Add(1); return nil }); err != nil {
			return err
		}
		return k.Sleep(ctx, "sleep", 20*time.Millisecond) // the function is called again
	})
	h := open(t, sqlite(t), setup{loops: []Loop{two}})
	h.do("two")
	if step.Load() != 1 || once.Load() != 1 {
		t.Errorf("%d %d", step.Load(), once.Load())
	}
}
