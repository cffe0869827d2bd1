package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	_ "modernc.org/sqlite"             // driver "sqlite"

	"github.com/ombud-run/ombud/internal/fault"
)

// Options says which store to open and how.
type Options struct {
	// DSN is "sqlite:/absolute/path" or "postgres://…". Required.
	DSN string
	// LockFile is held while the store is open, so that a second daemon on the same
	// directory is refused. Empty: no lock (PostgreSQL in tests, offline readers).
	LockFile string
	// HoldsLock is the caller's word that it holds LockFile, and goes on doing so.
	HoldsLock bool
	// ReserveFile is the space kept for the day the disk is full. Empty: none.
	ReserveFile string
	// BackupDir gets a copy of a SQLite store before it is migrated. Empty: beside it.
	BackupDir string
	// Seat is the right to write, where several daemons share a store on PostgreSQL:
	// every batch proves it. nil: nobody else writes, or it does not matter.
	Seat *Seat
	// ReadOnly leaves the store as it is: it is neither migrated nor written to.
	ReadOnly bool
	// Moving opens a database that a store is being moved to; others do not.
	Moving bool
	// Prepare, if set, runs under the lock before the store's files are opened: the
	// place to finish what put them there.
	Prepare func() error
	// Logger defaults to discarding.
	Logger *slog.Logger
	// Now defaults to time.Now.
	Now func() time.Time
	// MaxBatch is how many callers share a commit. Default 512.
	MaxBatch int
	// Readers is how many read connections there are. Default 4.
	Readers int

	migrations []Migration // of tests; nil: those of this program
}

// DB is an open store. It is safe for concurrent use.
type DB struct {
	dialect  dialect
	postgres bool
	log      *slog.Logger
	now      func() time.Time
	maxBatch int
	path     string // of the SQLite file
	dsn      string // may hold a password

	migrations []Migration // nil: those of this program
	seat       *Seat       // nil: no other node writes
	moving     bool

	writePool *sql.DB
	readPool  *sql.DB
	readers   chan *session // idle read sessions; nil entries are not yet opened

	queue   chan *request // holds a batch; writeLoop alone receives; never closed
	closing chan struct{} // closed by Close: nobody new is taken
	closed  chan struct{} // closed by writeLoop when it ends
	once    sync.Once
	inFn    atomic.Bool             // a function of a caller runs on the writer's goroutine
	current atomic.Pointer[request] // whose function runs, for the watchdog

	// The writer goroutine's own.
	writer    *session
	lastNow   int64
	lastBatch int
	running   []*request
	watchdog  *time.Timer
	kept      map[registerKey]any // what only this process moves, as of the last commit
	wary      int                 // batches that promise nothing
	// lastCommit is when the connection was last known to work.
	lastCommit time.Time

	counts counts
	full   *fullDisk
	// condemned is why nothing may be written any more, see Condemn.
	condemned atomic.Pointer[error]
	signals   *signals
	listen    *listener
	lock      *fileLock // nil: none, or the caller's
	lockPath  string
}

func newDB(o Options) *DB {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxBatch <= 0 {
		o.MaxBatch = 512
	}
	if o.Readers <= 0 {
		o.Readers = 4
	}
	d := &DB{
		log: o.Logger, now: o.Now, maxBatch: o.MaxBatch,
		readers: make(chan *session, o.Readers), queue: make(chan *request, o.MaxBatch),
		closing: make(chan struct{}), closed: make(chan struct{}),
		signals: newSignals(), kept: map[registerKey]any{}, migrations: o.migrations, seat: o.Seat, moving: o.Moving,
	}
	for range o.Readers {
		d.readers <- nil
	}
	d.counts.walWarn = walLimit
	d.full = newFullDisk(d, o.ReserveFile)
	d.watchdog = time.AfterFunc(time.Hour, d.warnStuck)
	d.watchdog.Stop()
	return d
}

// Open locks, opens, checks and migrates the store. Errors: Running if another
// process holds the lock, Config if the DSN is wrong or the store was written by a
// newer ombud, Verification if the file is damaged, Unavailable if it cannot be
// reached.
func Open(ctx context.Context, o Options) (_ *DB, err error) {
	d := newDB(o)
	defer func() {
		if err != nil {
			d.release()
		}
	}()
	if d.lockPath = o.LockFile; o.LockFile != "" && !o.HoldsLock {
		if d.lock, err = lockFile(o.LockFile); err != nil {
			return nil, err
		}
	}
	if o.Prepare != nil {
		if err := o.Prepare(); err != nil {
			return nil, err
		}
	}
	if err := d.openPools(o.DSN); err != nil {
		return nil, err
	}
	d.full.beforeOpen()
	for _, step := range []func(context.Context) error{
		d.checkStore,
		func(ctx context.Context) error {
			if o.ReadOnly {
				return d.asItIs(ctx)
			}
			return d.migrate(ctx, o.DSN, o.BackupDir)
		},
		d.loadClock,
	} {
		if err := step(ctx); err != nil {
			return nil, d.dialect.classify(err)
		}
	}
	if d.postgres {
		d.listen = newListener(o.DSN, d.signals, d.log)
		d.listen.start()
	}
	d.full.start()
	go d.writeLoop(nil)
	return d, nil
}

func (d *DB) openPools(dsn string) (err error) {
	d.dsn = dsn
	kind, rest, ok := strings.Cut(dsn, ":")
	switch {
	case ok && kind == "sqlite" && filepath.IsAbs(rest) && !strings.HasPrefix(rest, "//"):
		d.dialect, d.path = sqliteDialect, rest
		if err := touchPrivate(rest); err != nil {
			return err
		}
		if d.writePool, err = sql.Open("sqlite", sqliteDSN(rest, false)); err != nil {
			return err
		}
		if d.readPool, err = sql.Open("sqlite", sqliteDSN(rest, true)); err != nil {
			return err
		}
		d.writePool.SetMaxOpenConns(1)
	case ok && (kind == "postgres" || kind == "postgresql"):
		d.dialect, d.postgres = postgresDialect, true
		var idle map[string]string
		if d.seat != nil {
			idle = map[string]string{"idle_in_transaction_session_timeout": strconv.FormatInt(writerIdle.Milliseconds(), 10)}
		}
		if d.writePool, err = openPostgres(dsn, idle); err != nil {
			return err
		}
		if d.readPool, err = openPostgres(dsn, nil); err != nil {
			return err
		}
		d.writePool.SetMaxOpenConns(2) // the writer, and beside it the settlement of a lost commit
	default:
		return fault.New(fault.Config, "store %s is neither sqlite:/absolute/path nor postgres://user@host/database", redactDSN(dsn))
	}
	// One more than there are readers, for the folding of a full disk's log.
	d.readPool.SetMaxOpenConns(cap(d.readers) + 1)
	d.readPool.SetMaxIdleConns(cap(d.readers))
	return nil
}

// sqliteDSN sets durability on every connection: none may rely on a default.
func sqliteDSN(path string, readOnly bool) string {
	q := url.Values{"_pragma": {
		"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "fullfsync(1)", "checkpoint_fullfsync(1)",
		"foreign_keys(1)", "cell_size_check(1)", "cache_size(-4000)", "journal_size_limit(" + strconv.Itoa(walLimit) + ")",
		// Folding the log costs flushes of its own; a commit in a hundred should not pay for it.
		"wal_autocheckpoint(4000)",
	}}
	if readOnly {
		q.Add("_pragma", "query_only(1)")
	}
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // C:/…
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// checkStore makes sure that the store keeps what it acknowledges.
func (d *DB) checkStore(ctx context.Context) error {
	if d.postgres {
		return d.checkPostgres(ctx)
	}
	var journal string
	if err := d.writePool.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&journal); err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	if journal != "wal" {
		return fault.New(fault.Config, "the file system of %s does not support a write-ahead log (journal mode %q)", filepath.Dir(d.path), journal).
			WithHint("put the state directory on a local disk")
	}
	return nil
}

// touchPrivate creates the database file with mode 0600 before SQLite, which
// would go by the umask.
func touchPrivate(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, syscall.ENOSPC) {
		return fault.New(fault.Unavailable, "open the database: %w", err)
	}
	if err != nil {
		return fault.New(fault.Permission, "open the database: %w", err)
	}
	return f.Close()
}

// Postgres reports whether the store is PostgreSQL.
func (d *DB) Postgres() bool { return d.postgres }

// Kind names the store for people: "sqlite" or "postgres".
func (d *DB) Kind() string {
	if d.postgres {
		return "postgres"
	}
	return "sqlite"
}

// Full reports whether the store is read-only because its disk is full.
func (d *DB) Full() bool { return d.full.active() }

// clock is the time of the next transaction: never before the last one.
func (d *DB) clock() int64 {
	d.lastNow = max(d.lastNow, d.now().UnixMicro())
	return d.lastNow
}

// loadClock keeps time from going back over a restart.
func (d *DB) loadClock(ctx context.Context) error {
	var at sql.NullInt64
	if err := d.writePool.QueryRowContext(ctx, "SELECT max(at) FROM heads").Scan(&at); err != nil {
		return fmt.Errorf("read the last time stamp: %w", err)
	}
	d.lastNow = at.Int64
	return nil
}

// dropWriter forgets a connection that cannot be trusted any more.
func (d *DB) dropWriter() {
	if d.writer != nil {
		d.writer.discard()
		d.writer = nil
	}
}

// Read runs fn on a read-only snapshot. fn must be short and do no I/O; the
// context's end cancels it. It must not be called inside InTx or another Read.
func (d *DB) Read(ctx context.Context, fn func(ctx context.Context, q Q) error) (err error) {
	if err := d.nested(ctx, fn); err != nil {
		return err
	}
	var s *session
	select {
	case s = <-d.readers:
	case <-ctx.Done():
		return ctx.Err()
	case <-d.closing:
		return errClosed()
	}
	defer func() { d.readers <- s }()
	classify := func(err error) error {
		if ended := ctx.Err(); ended != nil {
			return ended // whatever the driver calls it
		}
		return d.dialect.classify(err)
	}
	if s, err = d.beginRead(ctx, s); err != nil {
		return classify(err)
	}
	q := &snapshotReader{cursor{s: s, classify: classify}}
	defer func() {
		q.c.settleRows()
		if err == nil {
			err = q.c.err // fn swallowed it
		}
		q.c.end()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		if s.control(end, "ROLLBACK") != nil { // a cancelled query may have closed the connection
			s.discard()
			s = nil
		}
	}()
	return fn(context.WithValue(ctx, insideKey{}, true), q)
}

// beginRead opens a snapshot, on a new connection if the old one has gone since.
func (d *DB) beginRead(ctx context.Context, s *session) (*session, error) {
	for tries := 1; ; tries++ {
		kept := s != nil
		if !kept {
			var err error
			if s, err = newSession(ctx, d.readPool, d.postgres); err != nil {
				return nil, err
			}
		}
		err := s.control(ctx, d.dialect.beginRead)
		if err == nil {
			return s, nil
		}
		again := (kept || s.broken()) && tries < maxStale && ctx.Err() == nil
		s.discard()
		if s = nil; !again {
			return nil, err
		}
	}
}

// snapshotReader is the Q of Read.
type snapshotReader struct{ c cursor }

var _ Q = (*snapshotReader)(nil)

func (r *snapshotReader) Query(ctx context.Context, query string, args ...any) (*Rows, error) {
	return r.c.query(ctx, query, args...)
}

func (r *snapshotReader) QueryRow(ctx context.Context, query string, args ...any) *Row {
	return r.c.queryRow(ctx, query, args...)
}

// Close lets the callers that were taken finish, then closes everything and
// gives the lock back. It is safe to call twice.
func (d *DB) Close() error {
	d.once.Do(func() {
		close(d.closing)
		<-d.closed
		d.watchdog.Stop()
		d.full.stop()
		if d.listen != nil {
			d.listen.stop()
		}
		for range cap(d.readers) {
			if s := <-d.readers; s != nil {
				_ = s.close()
			}
		}
		if d.writer != nil {
			_ = d.writer.close()
		}
		d.release()
	})
	return nil
}

// release closes the pools and the lock; the pools first, so that nobody else
// can open the file while we still hold it.
func (d *DB) release() {
	for _, p := range []*sql.DB{d.readPool, d.writePool} {
		if p == nil {
			continue
		}
		if err := p.Close(); err != nil {
			d.log.Warn("close the store", "error", err)
		}
	}
	if d.lock != nil {
		d.lock.unlock()
	}
}
