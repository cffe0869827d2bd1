package db

import (
	"os"
	"sync/atomic"
	"time"
)

// walLimit is the size of SQLite's write-ahead log above which something keeps it
// from being folded: a reader that stays open, or a disk that is too slow. A log
// that grew beyond it is cut back when it has been folded.
const walLimit = 64 << 20

// watchEvery is how many batches pass between two looks at the log's size.
const watchEvery = 64

// Stats is how the store is doing, for status and doctor. Counts are since Open.
type Stats struct {
	Batches     uint64    // transactions committed; callers share them
	Callers     uint64    // callers answered by those
	WALBytes    int64     // size of SQLite's write-ahead log; 0 on PostgreSQL
	Full        bool      // read-only, because the disk is full
	LastError   string    // of the store itself, not of a caller's function; "" if none
	LastErrorAt time.Time // zero if none
}

// counts is what the writer keeps for Stats.
type counts struct {
	batches atomic.Uint64
	callers atomic.Uint64
	failure atomic.Pointer[failure]
	walWarn int64 // writer goroutine only: the size that is told
	walBig  bool  // writer goroutine only: it was told
}

type failure struct {
	text string
	at   time.Time
}

func (c *counts) batch(callers int) {
	c.batches.Add(1)
	c.callers.Add(uint64(callers))
}

// fail keeps the last error that was the store's own.
func (d *DB) fail(err error) {
	if err != nil {
		d.counts.failure.Store(&failure{err.Error(), d.now()})
	}
}

// Stats returns how the store is doing now.
func (d *DB) Stats() Stats {
	s := Stats{Batches: d.counts.batches.Load(), Callers: d.counts.callers.Load(), WALBytes: d.walBytes(), Full: d.Full()}
	if f := d.counts.failure.Load(); f != nil {
		s.LastError, s.LastErrorAt = f.text, f.at
	}
	return s
}

func (d *DB) walBytes() int64 {
	if d.postgres {
		return 0
	}
	info, err := os.Stat(d.path + "-wal")
	if err != nil {
		return 0 // none
	}
	return info.Size()
}

// watchWAL warns once each time the write-ahead log outgrows its limit.
func (d *DB) watchWAL() {
	if d.postgres || d.counts.batches.Load()%watchEvery != 0 {
		return
	}
	size := d.walBytes()
	switch big := size > d.counts.walWarn; {
	case big && !d.counts.walBig:
		d.counts.walBig = true
		d.log.Warn("the write-ahead log is large: a read stays open, or the disk is slow", "bytes", size)
	case !big:
		d.counts.walBig = false
	}
}
