package audit

import (
	"context"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
)

func TestTallyCountsTheEndsOfCallsOfEveryChain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		v := newVault(t, 1)
		before := d.Time()
		for _, node := range []string{"node-1", "node-2"} {
			a := startedOn(t, d, v, node)
			err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				for range page + 3 { // more than one page
					if _, err := a.AppendTx(ctx, tx, Entry{Kind: "call", Subject: "agent:main", Tool: "fs.read", Outcome: "ok", CostMicroUSD: 2}); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			add(t, d, a, Entry{Kind: "call.begun", Subject: "agent:main", Tool: "fs.read", Outcome: "begun"})
			add(t, d, a, Entry{Kind: "call.refused", Subject: "agent:main", Tool: "fs.read", Outcome: "refused", Reason: "no_rule"})
			add(t, d, a, Entry{Kind: "call.refused", Subject: "agent:main", Tool: "fs.read", Outcome: "refused", Reason: "repeated", Count: 41})
			add(t, d, a, Entry{Kind: "call", Subject: "loop:x", Tool: "web.fetch", Outcome: "failed", Reason: "timeout"})
			add(t, d, a, Entry{Kind: "grant.added", Subject: "agent:main", Outcome: "deny"})
			if err := a.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		got, err := Tally(t.Context(), d, before, "agent:main")
		want := []Calls{
			{"agent:main", "fs.read", "ok", "", 2 * (page + 3), 4 * (page + 3)},
			{"agent:main", "fs.read", "refused", "no_rule", 2, 0},
			{"agent:main", "fs.read", "refused", "repeated", 82, 0},
		}
		if err != nil || len(got) != len(want) {
			t.Fatalf("%+v, %v", got, err)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%+v, want %+v", got[i], want[i])
			}
		}
		if all, err := Tally(t.Context(), d, before, ""); err != nil || len(all) != 4 || all[3] != (Calls{"loop:x", "web.fetch", "failed", "", 2, 0}) {
			t.Errorf("of all: %+v, %v", all, err)
		}
		if none, err := Tally(t.Context(), d, d.Time()+time.Hour.Microseconds(), ""); err != nil || len(none) != 0 {
			t.Errorf("of the future: %+v, %v", none, err)
		}
	})
}
