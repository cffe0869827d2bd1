package db_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
)

func TestOnlyTheFirstClaimHolds(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var wg sync.WaitGroup
		got := make([]string, 16)
		for i := range got {
			wg.Go(func() {
				err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) (err error) {
					got[i], err = db.ClaimMeta(ctx, tx, "test.claim", fmt.Sprint(i))
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, v := range got {
			if v != got[0] || v == "" {
				t.Fatalf("%v", got)
			}
		}
	})
}
