package audit

import (
	"context"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
)

// BenchmarkAppendAndVerify appends b.N entries in transactions of 500 and
// verifies them; both rates are reported.
func BenchmarkAppendAndVerify(b *testing.B) {
	d, v := dbtest.SQLite(b), newVault(b, 1)
	a := New(d, v, "node-1", nil)
	if err := a.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for from := 0; from < b.N; from += 500 {
		err := d.InTx(b.Context(), func(ctx context.Context, tx *db.Tx) error {
			for range min(500, b.N-from) {
				if _, err := a.AppendTx(ctx, tx, Entry{Kind: "call", Actor: "agent:main", Subject: "operator", Tool: "fs.read", Scopes: []string{"fs.read:/x"}, Outcome: "ok"}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	appended := b.Elapsed()
	if rep, err := Verify(b.Context(), d, v.Keys()); err != nil || rep.Entries != int64(b.N) {
		b.Fatalf("%+v, %v", rep, err)
	}
	b.ReportMetric(float64(b.N)/appended.Seconds(), "appends/s")
	b.ReportMetric(float64(b.N)/(b.Elapsed()-appended).Seconds(), "verified/s")
}
