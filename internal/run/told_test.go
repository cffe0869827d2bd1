package run

import (
	"context"
	"errors"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
)

func TestARunEndsThoughItsKindCannotTell(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d, Kind{
			Name:   "mute",
			Handle: func(context.Context, *Run) ([]byte, error) { return nil, nil },
			Ended: func(ctx context.Context, tx *db.Tx, r Record) error {
				if _, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ('half', 'told')"); err != nil {
					return err
				}
				return errors.New("nobody to tell")
			},
		})
		b.open()
		first := b.begin(Spec{Kind: "mute", Key: "a"})
		second := b.begin(Spec{Kind: "mute", Key: "a"})
		for _, id := range []string{first, second} {
			if rec := b.wait(id); rec.State != Completed {
				t.Errorf("run is %s: %s", rec.State, rec.Error)
			}
		}
		evs, err := b.log.Read(t.Context(), 0, 100, eventlog.Filter{Kinds: []string{eventlog.KindCritical}})
		if err != nil || len(evs) != 2 || evs[0].Cause != first {
			t.Errorf("told of %v, %v", evs, err)
		}
		err = d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
			half, err := db.Meta(ctx, q, "half")
			if half != "" {
				t.Error("what the kind wrote before it failed is there")
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		b.verify()
	})
}
