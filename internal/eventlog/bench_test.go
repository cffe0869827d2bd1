package eventlog

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
)

func BenchmarkAppend(b *testing.B) {
	for _, producers := range []int{1, 64} {
		b.Run(fmt.Sprint(producers), func(b *testing.B) {
			l := newLog(b, dbtest.SQLite(b))
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for p := range producers {
				wg.Go(func() {
					stream := fmt.Sprint("s", p)
					for next.Add(1) <= int64(b.N) {
						if _, err := l.Append(b.Context(), New{Stream: stream, Kind: "k", Expect: Any, Data: struct{ Text string }{"a message of the usual length, more or less"}}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkNineSubscriptions: an event counts when all nine have handled it.
func BenchmarkNineSubscriptions(b *testing.B) {
	d := dbtest.SQLite(b)
	l := newLog(b, d)
	var left sync.WaitGroup
	var subs []Subscription
	for i := range 9 {
		subs = append(subs, Subscription{Name: fmt.Sprint("s", i), Handle: func(_ context.Context, tx *db.Tx, _ Event) error {
			tx.AfterCommit(left.Done)
			return nil
		}})
	}
	if err := l.Start(b.Context(), subs...); err != nil {
		b.Fatal(err)
	}
	defer l.Stop()
	left.Add(9 * b.N)
	b.ResetTimer()
	for from := 0; from < b.N; from += 1000 {
		batch := make([]New, min(1000, b.N-from))
		for i := range batch {
			batch[i] = New{Stream: fmt.Sprint("s", i%100), Kind: "k", Expect: Any, Data: struct{ Text string }{"a message of the usual length"}}
		}
		if _, err := l.Append(b.Context(), batch...); err != nil {
			b.Fatal(err)
		}
	}
	left.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
