package bench

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/backup"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
)

var backupMB = flag.Int("backup.mb", 160, "size of the store that BenchmarkBackup backs up, in MiB")

// BenchmarkBackup is how long an append takes, at the 99th percentile, while the whole
// store is backed up, beside the same without a backup, in turn. Two producers append
// a sealed event every few milliseconds.
func BenchmarkBackup(b *testing.B) {
	p := open(b, dbtest.KindSQLite)
	fill(b, p.db, int64(*backupMB)<<20)
	dir := b.TempDir()
	source := backup.Source{DB: p.db, Vault: p.vault, Instance: "bench", Version: "bench"}
	var idle, during, ratios []float64
	var took time.Duration
	var size, wal int64
	for round := range rounds {
		quiet := p.appends(b, func() { <-time.After(4 * time.Second) })
		path := filepath.Join(dir, fmt.Sprint(round, backup.Extension))
		busy := p.appends(b, func() {
			res, err := backup.Create(context.Background(), source, backup.Options{Path: path})
			if err != nil {
				b.Error(err)
			}
			took, size, wal = res.Took, res.Size, max(wal, res.WALPeak)
		})
		if b.Failed() {
			return
		}
		if err := os.Remove(path); err != nil {
			b.Fatal(err)
		}
		q, d := percentile(quiet, 99), percentile(busy, 99)
		idle, during, ratios = append(idle, q), append(during, d), append(ratios, d/q)
		b.Logf("round %d: p50 %.0f p99 %.0f µs of %d idle, p50 %.0f p99 %.0f max %.0f µs of %d during; %s, log %d MiB", round,
			percentile(quiet, 50), q, len(quiet), percentile(busy, 50), d, percentile(busy, 100), len(busy), took.Round(time.Millisecond), wal>>20)
	}
	add(b, figure{
		name: fmt.Sprintf("append p99 during a backup of %d MiB", size>>20), unit: "µs", value: median(during), peer: "append p99 idle, µs",
		beside: median(idle), ratio: median(ratios), target: "≤2.0", note: fmt.Sprintf("took %s, %d MiB/s", took.Round(100*time.Millisecond), size>>20*1000/max(1, took.Milliseconds())),
	})
}

// appends measures appends until fn returns.
func (p *parts) appends(b *testing.B, fn func()) (took []float64) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var mu sync.Mutex
	var wg sync.WaitGroup
	for who := range 2 {
		wg.Go(func() {
			tick := time.NewTicker(3 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				start := time.Now()
				if _, err := p.events.Append(context.Background(), eventlog.New{Stream: fmt.Sprint("s", who), Kind: "k", Expect: eventlog.Any, Data: payload}); err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				took = append(took, micro(time.Since(start)))
				mu.Unlock()
			}
		})
	}
	fn()
	cancel()
	wg.Wait()
	return took
}

func percentile(v []float64, p int) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[min(len(v)-1, len(v)*p/100)]
}

// fill makes the store as large as said, with rows like those of blobs.
func fill(b *testing.B, d *db.DB, size int64) {
	b.Helper()
	piece := make([]byte, 8<<10)
	for n := 0; int64(n*len(piece)) < size; {
		err := d.InTx(b.Context(), func(ctx context.Context, tx *db.Tx) error {
			for range 512 {
				if _, err := rand.Read(piece); err != nil {
					return err
				}
				n++
				if _, err := tx.Exec(ctx, "INSERT INTO blob_pieces (blob, n, data) VALUES ('bench', $1, $2)", n, piece); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
