package backup

import (
	"context"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// A backup shares disk and processor with a store that is at work. It goes in pieces
// that take part of a millisecond, so that a commit which meets one waits no longer
// than that, each written out at once, so that no commit has to wait for all of it,
// and rests after each for twice as long as it took.
const (
	piece   = 32 << 10
	turn    = 16 << 10
	maxRest = 50 * time.Millisecond
	// From walHurry on the log that SQLite cannot fold grows faster than we read: we
	// rest no more. At walLimit we give up.
	walHurry = 1 << 30
	walLimit = 2 << 30
	// tell is how much is written between two notes of progress.
	tell = 4 << 20
)

// pace writes pieces to the file.
type pace struct {
	ctx     context.Context
	db      *db.DB
	f       *os.File
	fast    bool
	buf     []byte
	begun   time.Time // of the piece: reading it counts
	written int64
	told    int64
	peak    int64
	total   int64
	report  func(Progress)
}

func newPace(ctx context.Context, d *db.DB, f *os.File, o Options, total int64) *pace {
	p := &pace{ctx: ctx, db: d, f: f, fast: o.Fast, buf: make([]byte, 0, piece), begun: time.Now(), total: total, report: o.Progress}
	if p.report == nil {
		p.report = func(Progress) {}
	}
	p.report(Progress{Phase: "writing", Total: total})
	return p
}

func (p *pace) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		k := min(len(b), piece-len(p.buf))
		p.buf = append(p.buf, b[:k]...)
		b, n = b[k:], n+k
		if len(p.buf)%turn < k {
			runtime.Gosched() // reading and hashing alone would hold a processor for the whole piece
		}
		if len(p.buf) == piece {
			if err := p.flush(); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

func (p *pace) flush() error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	if _, err := p.f.Write(p.buf); err != nil {
		return err
	}
	if err := writeOut(p.f, p.written, int64(len(p.buf))); err != nil {
		return err
	}
	p.written += int64(len(p.buf))
	p.buf = p.buf[:0]
	if p.written-p.told >= tell {
		p.told = p.written
		p.report(Progress{Phase: "writing", Done: p.written, Total: max(p.total, p.written)})
		if err := p.look(); err != nil {
			return err
		}
	}
	return p.rest()
}

// look ends a backup that would take the last room from the store.
func (p *pace) look() error {
	wal := p.db.Stats().WALBytes
	p.peak = max(p.peak, wal)
	if wal > walLimit {
		return fault.New(fault.Unavailable, "the write-ahead log has grown to %d MiB while the backup was written, so it was given up", wal>>20).
			WithHint("back up when less is written, or to a faster disk")
	}
	if free, known := db.FreeBytes(p.f.Name()); known && free < spare/2 {
		return fault.New(fault.Unavailable, "the disk of the backup has only %d MiB left, so it was given up", free>>20).
			WithHint("nothing is left of it; free some space, or back up to another disk")
	}
	return nil
}

// rest makes way for others.
func (p *pace) rest() error {
	defer func() { p.begun = time.Now() }()
	if p.fast || p.peak > walHurry && p.db.Stats().WALBytes > walHurry {
		return nil
	}
	t := time.NewTimer(min(2*time.Since(p.begun), maxRest))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

// readBack reads the file from the disk and verifies it.
func (p *pace) readBack(ctx context.Context, f *os.File, m Manifest) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return readFault(err)
	}
	p.told, p.begun = 0, time.Now()
	p.report(Progress{Phase: "reading back", Total: p.written})
	got, err := Scan(ctx, &pacedReader{p: p, r: f}, nil)
	if err != nil {
		return fault.New(fault.ClassOf(err), "what was written does not read back: %w", err).
			WithHint("nothing is left of it; the disk may be failing, use another one")
	}
	if got.ID != m.ID {
		return fault.New(fault.Verification, "what was written reads back as another backup")
	}
	return nil
}

// pacedReader reads in pieces and rests between them.
type pacedReader struct {
	p    *pace
	r    io.Reader
	done int64
	left int // of the piece
}

func (r *pacedReader) Read(b []byte) (int, error) {
	if r.left <= 0 {
		if err := r.p.rest(); err != nil {
			return 0, err
		}
		r.left = piece
	}
	n, err := r.r.Read(b[:min(len(b), r.left)])
	r.left -= n
	r.done += int64(n)
	if r.done-r.p.told >= tell {
		r.p.told = r.done
		r.p.report(Progress{Phase: "reading back", Done: r.done, Total: r.p.written})
	}
	return n, err
}
