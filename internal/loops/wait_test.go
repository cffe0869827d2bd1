package loops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/trigger"
)

func TestTheRunWaitsForAnAgentAndForAPersonAsARow(t *testing.T) {
	t.Parallel()
	asks := loop("asks", func(ctx context.Context, k *Kit) error {
		if _, err := k.Tool(ctx, "tool", "t.ask", nil); err != nil {
			return err
		}
		return k.Notify(ctx, "tell", "", "done")
	})
	each(t, setup{loops: []Loop{asks}, roles: []policy.RoleSpec{{Name: policy.RoleFirstParty, Allow: []string{"notify.send"}, Ask: []string{"tool:asked"}}}},
		func(t *testing.T, h *house) {
			id := h.start("asks", "{}")
			q := h.asked(id)
			if q.Subject != "loop:asks" || q.Tool != "t.ask" || h.did("t.ask") != 0 {
				t.Errorf("%+v", q)
			}
			h.until(func() bool {
				rec, _, err := h.runs.Get(t.Context(), id)
				return err == nil && rec.State == run.Waiting && rec.Wait == run.ForApproval
			})
			if _, err := h.apr.Resolve(t.Context(), q.ID, approval.Reply{Decision: approval.Approve}, "operator"); err != nil {
				t.Fatal(err)
			}
			if rec := h.end(id); rec.State != run.Completed || h.did("t.ask") != 1 || len(h.heard("main")) != 1 {
				t.Errorf("%s %s, %d, %q", rec.State, rec.Error, h.did("t.ask"), h.heard("main"))
			}
		})
}

func TestALoopRunsAnotherAndWaitsForIt(t *testing.T) {
	t.Parallel()
	inner := loop("inner", func(ctx context.Context, k *Kit) error {
		if k.Trigger().Kind != trigger.ByRun {
			return fmt.Errorf("started by %s", k.Trigger().Kind)
		}
		_, err := k.Tool(ctx, "put", "t.put", nil)
		return err
	})
	outer := loop("outer", func(ctx context.Context, k *Kit) error {
		if err := k.RunLoop(ctx, "first", "inner"); err != nil {
			return err
		}
		return k.RunLoop(ctx, "second", "loop:inner")
	})
	each(t, setup{loops: []Loop{inner, outer}}, func(t *testing.T, h *house) {
		h.do("outer")
		if h.did("t.put") != 2 {
			t.Errorf("%d", h.did("t.put"))
		}
		if _, err := h.times.Pause(t.Context(), "loop:inner", "operator"); err != nil {
			t.Fatal(err)
		}
		if rec := h.fails("outer"); !strings.Contains(rec.Error, "disabled") {
			t.Errorf("%s", rec.Error)
		}
	})
}

// Two loops that run each other at the same time: each would stand in line behind the
// other, which waits for it.
func TestTwoLoopsThatRunEachOtherCrosswiseBothEnd(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"b", "between"} { // directly, and by way of a third
		t.Run(to, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				t.Parallel()
				h := open(t, d, setup{loops: crosswise(to)})
				one, two := h.start("a", "{}"), h.start("b", "{}")
				good, bad := h.end(one), h.end(two)
				if good.State == run.Failed {
					good, bad = bad, good
				}
				if good.State != run.Completed || bad.ErrorClass != fault.Conflict || !strings.Contains(bad.Error, "neither would go on") {
					t.Errorf("%s %s, %s %s", good.State, good.Error, bad.State, bad.Error)
				}
			})
		})
	}
}

// crosswise are the loops a and b, which wait until both have begun. Then a runs to, and b
// runs a; between runs b.
func crosswise(to string) []Loop {
	both := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{})}
	runs := func(name, other, to string) Loop {
		return loop(name, func(ctx context.Context, k *Kit) error {
			if k.Trigger().Kind == trigger.ByRun {
				return nil
			}
			_, err := k.Step(ctx, "meet", func(ctx context.Context) (json.RawMessage, error) {
				close(both[name])
				select {
				case <-both[other]:
					return nil, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			})
			if err != nil {
				return err
			}
			return k.RunLoop(ctx, "run", to)
		})
	}
	between := loop("between", func(ctx context.Context, k *Kit) error { return k.RunLoop(ctx, "run", "b") })
	return []Loop{runs("a", "b", to), runs("b", "a", "a"), between}
}

func TestATimerStartsTheLoopAgainWithItsPayload(t *testing.T) {
	t.Parallel()
	later := loop("later", func(ctx context.Context, k *Kit) error {
		if k.Trigger().Kind == trigger.ByTimer {
			_, err := k.Tool(ctx, "put", "t.put", k.Trigger().Payload)
			return err
		}
		return errors.Join(
			k.After(ctx, "after", "soon", time.Millisecond, json.RawMessage(`{"n":3}`)),
			k.After(ctx, "never", "never", time.Hour, nil),
			k.CancelAfter(ctx, "cancel", "never"),
		)
	})
	each(t, setup{loops: []Loop{later}}, func(t *testing.T, h *house) {
		h.do("later")
		h.until(func() bool { return h.did("t.put") == 1 })
		if got := h.done[0]; !strings.Contains(got, `"n":3`) || !strings.Contains(got, `"timer_id":"soon"`) {
			t.Errorf("%q", got)
		}
		timers, err := h.runs.Timers(t.Context(), "loop:later")
		if err != nil || len(timers) != 0 {
			t.Errorf("%v %v", timers, err)
		}
	})
}
