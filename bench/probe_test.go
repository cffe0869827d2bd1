package bench

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// probe is the disk alone: 4 KiB written over in place and flushed, as SQLite
// does with a log it has folded before. It lies beside the store.
type probe struct {
	b *testing.B
	f *os.File
	n int
}

// probeBlocks is how many blocks SQLite writes before it folds its log.
const probeBlocks = 1000

func newProbe(b *testing.B, dir string) *probe {
	b.Helper()
	f, err := os.Create(filepath.Join(dir, "probe"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = f.Close() }) // only a measuring stick
	for range probeBlocks {
		if _, err := f.Write(block); err != nil {
			b.Fatal(err)
		}
	}
	p := &probe{b: b, f: f}
	p.flush()
	return p
}

var block = make([]byte, 4096)

func (p *probe) flush() {
	if err := p.f.Sync(); err != nil {
		p.b.Fatal(err)
	}
}

func (p *probe) write() {
	if _, err := p.f.WriteAt(block, int64(p.n%probeBlocks)*int64(len(block))); err != nil {
		p.b.Fatal(err)
	}
	p.n++
	p.flush()
}

// rate is flushes a second.
func (p *probe) rate() float64 {
	v, _ := rate(1, func(int, int) bool { p.write(); return true })
	return v
}

// once is the median time of one flush in microseconds.
func (p *probe) once() float64 {
	var took []float64
	for range 50 {
		start := time.Now()
		p.write()
		took = append(took, micro(time.Since(start)))
	}
	return median(took)
}

func micro(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
