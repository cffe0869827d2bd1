package db_test

import (
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkFsync is the disk alone: 4 KiB written over in place and flushed, as
// SQLite does with a log it has folded before.
func BenchmarkFsync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "probe"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	block := make([]byte, 4096)
	const blocks = 1000 // SQLite folds its log after as many
	for i := range int64(blocks) {
		if _, err := f.WriteAt(block, i*4096); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for i := 0; i < b.N; i++ {
		if _, err := f.WriteAt(block, int64(i%blocks)*4096); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "fsyncs/s")
}
