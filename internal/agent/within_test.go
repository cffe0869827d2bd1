package agent

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
)

func TestAMessageFromWithinStandsOrFallsWithItsCause(t *testing.T) {
	t.Parallel()
	each(t, setup{idle: true}, func(t *testing.T, b *bench) {
		in := Inbound{
			Address: Local("main"), Title: "main", Sender: "schedule:sch_1", Text: "brief me", Key: "evt_1", Cause: "evt_1",
			Source: label.Operator, Audience: label.OperatorOnly, Tier: policy.Trusted, Unattended: true,
		}
		errLater := errors.New("what comes after it fails")
		take := func(in Inbound, then error) (out Accepted, err error) {
			err = b.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				if out, err = b.IntakeTx(ctx, tx, in); err != nil {
					return err
				}
				return then
			})
			return out, err
		}
		if _, err := take(in, errLater); !errors.Is(err, errLater) {
			t.Fatal(err)
		}
		if n := len(b.events("comms.message")); n != 0 {
			t.Errorf("%d messages were left", n)
		}
		got, err := take(in, nil)
		if err != nil || got.Run == "" || got.Duplicate {
			t.Fatalf("%+v, %v", got, err)
		}
		if again, err := take(in, nil); err != nil || !again.Duplicate || again.Run != got.Run {
			t.Errorf("the same again: %+v, %v", again, err)
		}
		e, err := b.Log.ByID(t.Context(), got.Event)
		if err != nil || e.Cause != "evt_1" || e.Actor != "schedule:sch_1" {
			t.Errorf("the event is %+v, %v", e, err)
		}
		rec, _, err := b.Runs.Get(t.Context(), got.Run)
		var turn TurnInput
		if err := errors.Join(err, json.Unmarshal(rec.Input, &turn)); err != nil || !turn.Unattended || turn.Text != "brief me" {
			t.Errorf("the turn is %+v, %v", turn, err)
		}
		for _, bad := range []func(*Inbound){
			func(in *Inbound) { in.Cause = "" }, func(in *Inbound) { in.Sender = "" }, func(in *Inbound) { in.Text = " \n" },
		} {
			x := in
			bad(&x)
			if _, err := take(x, nil); err == nil {
				t.Errorf("%+v was taken", x)
			}
		}
		in.Text = "something else"
		if _, err := take(in, nil); !fault.Is(err, fault.Conflict) {
			t.Errorf("another text under its key: %v", err)
		}
	})
}
