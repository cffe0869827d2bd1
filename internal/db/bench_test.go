package db_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
)

// BenchmarkInTx is the durable append of a row of 1 KiB, to be read beside the
// rate of a raw fsync on the same disk in the same minute.
func BenchmarkInTx(b *testing.B) {
	for _, kind := range dbtest.Kinds() {
		for _, producers := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("%s/%d", kind, producers), func(b *testing.B) {
				dsn := dbtest.DSN(b, kind)
				d, err := db.Open(context.Background(), db.Options{DSN: dsn, LockFile: filepath.Join(b.TempDir(), "lock")})
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = d.Close() }()
				body := strings.Repeat("v", 1024)
				before := d.Stats()
				b.ReportAllocs()
				b.ResetTimer()
				var all sync.WaitGroup
				for p := range producers {
					all.Go(func() {
						for i := p; i < b.N; i += producers {
							key := fmt.Sprintf("k%09d", i)
							err := d.InTx(context.Background(), func(ctx context.Context, tx *db.Tx) error {
								_, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2)", key, body)
								return err
							})
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				b.StopTimer()
				after := d.Stats()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
				b.ReportMetric(float64(after.Callers-before.Callers)/float64(after.Batches-before.Batches), "rows/commit")
			})
		}
	}
}
