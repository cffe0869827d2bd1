package db

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"

	"github.com/ombud-run/ombud/internal/fault"
)

// reserveSize is the space kept back for a full disk: enough for SQLite to fold
// its write-ahead log into the database.
const reserveSize = 16 << 20

// fullDisk keeps the store read-only while its disk is full.
//
// When a write meets a full disk the reserve file is given up, so that what is
// already in the write-ahead log can be folded in, and InTx refuses at once with
// Unavailable: nothing is acknowledged that could not be stored. Reads go on. A
// loop tries to take the reserve back, with room to spare; when it succeeds the
// store takes writes again. Nobody has to do anything but free space.
type fullDisk struct {
	db      *DB
	reserve string
	on      atomic.Bool
	hit     chan struct{} // one pending hint that the disk is full
	done    chan struct{}
	wg      sync.WaitGroup
	every   time.Duration
}

func newFullDisk(d *DB, reserve string) *fullDisk {
	return &fullDisk{db: d, reserve: reserve, hit: make(chan struct{}, 1), done: make(chan struct{}), every: 500 * time.Millisecond}
}

func (f *fullDisk) active() bool { return f.on.Load() }

func (f *fullDisk) refuse() error {
	if !f.on.Load() {
		return nil
	}
	return fault.New(fault.Unavailable, "the disk is full, so nothing was stored").
		WithHint("free at least %d MiB on the disk of %s; work goes on by itself", 2*reserveSize>>20, filepath.Dir(f.db.path))
}

// observe looks at an error of a write for signs of a full disk.
func (f *fullDisk) observe(err error) {
	if err == nil || !f.isFull(err) || f.on.Swap(true) {
		return
	}
	f.db.log.Error("the disk is full: the store is read-only until there is room", "error", err)
	poke(f.hit)
}

// isFull reports whether err comes from our disk being full. Errors of PostgreSQL
// never do: its disk is not ours to watch.
func (f *fullDisk) isFull(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok || f.reserve == "" {
		return false
	}
	free, known := freeBytes(filepath.Dir(f.db.path))
	switch e.Code() & 0xff {
	case sqliteFull:
		return !known || free < reserveSize/4 // else a limit of the file, or one huge write
	case sqliteIOErr, sqliteCantOpen:
		return known && free < reserveSize/4
	}
	return false
}

// beforeOpen gives up the reserve if the disk is so full that SQLite could not
// even open: it needs room for its shared memory. The store then starts
// read-only and recovers by itself.
func (f *fullDisk) beforeOpen() {
	if f.reserve == "" || f.db.postgres {
		return
	}
	free, known := freeBytes(filepath.Dir(f.db.path))
	if !known || free >= reserveSize/4 {
		return
	}
	if err := os.Remove(f.reserve); err != nil {
		return // no reserve to give up: what opens, opens
	}
	f.db.log.Error("the disk is full: the store starts read-only until there is room")
	f.on.Store(true)
	poke(f.hit)
}

func (f *fullDisk) start() {
	if f.reserve == "" || f.db.postgres {
		return
	}
	if !f.on.Load() && !f.take() {
		f.db.log.Warn("no room for the reserve file", "path", f.reserve)
	}
	f.wg.Go(func() {
		for {
			select {
			case <-f.hit:
				f.recover()
			case <-f.done:
				return
			}
		}
	})
}

func (f *fullDisk) stop() {
	close(f.done)
	f.wg.Wait()
}

// recover gives up the reserve, folds the log, and waits for space.
func (f *fullDisk) recover() {
	if err := os.Remove(f.reserve); err != nil && !errors.Is(err, os.ErrNotExist) {
		f.db.log.Warn("give up the reserve file", "error", err)
	}
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	folded := false
	for {
		if !folded {
			folded = f.fold()
		}
		free, known := freeBytes(filepath.Dir(f.db.path))
		if (!known || free >= reserveSize*3/2) && f.take() {
			f.on.Store(false)
			f.db.log.Info("there is room on the disk again: the store takes writes")
			return
		}
		select {
		case <-tick.C:
		case <-f.done:
			return
		}
	}
}

// fold moves the write-ahead log into the database on a connection of its own.
func (f *fullDisk) fold() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := f.db.readPool.Conn(ctx)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	var busy, logged, moved int
	err = conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &logged, &moved)
	return err == nil && busy == 0
}

// take allocates the reserve file for real, so that the space is ours.
func (f *fullDisk) take() bool {
	if st, err := os.Stat(f.reserve); err == nil && st.Size() == reserveSize {
		return true
	}
	file, err := os.OpenFile(f.reserve, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return false
	}
	err = allocate(file, reserveSize)
	if err = errors.Join(err, file.Close()); err != nil {
		_ = os.Remove(f.reserve) // half a reserve is worse than none
		return false
	}
	return true
}
