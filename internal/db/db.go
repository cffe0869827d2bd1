package db

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
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
	// ReserveFile is the space kept for the day the disk is full. Empty: none.
	ReserveFile string
	// BackupDir gets a copy of a SQLite store before it is migrated. Empty: beside it.
	BackupDir string
	// Logger defaults to discarding.
	Logger *slog.Logger
	// Now defaults to time.Now.
	Now func() time.Time
	// MaxBatch is how many callers share a commit. Default 512.
	MaxBatch int
	// Readers is how many read connections there are. Default 4.
	Readers int
}

// DB is an open store. It is safe for concurrent use.
type DB struct {
	dialect   dialect
	postgres  bool
	log       *slog.Logger
	now       func() time.Time
	lastNow   int64 // writer goroutine only
	maxBatch  int
	lastBatch int // writer goroutine only

	writePool *sql.DB
	readPool  *sql.DB
	writer    *session      // writer goroutine only
	readers   chan *session // idle read sessions; nil entries are not yet opened

	queue    chan *request // unbuffered beyond a batch; writeLoop alone receives
	closing  chan struct{} // closed by Close: nobody new is taken
	closed   chan struct{} // closed by writeLoop when it ends
	abandon  chan struct{} // closed by Close: stop asking about a lost commit
	once     sync.Once
	writerID atomic.Int64
	inFn     atomic.Bool

	full    *fullDisk
	signals *signals
	listen  *listener
	lock    *fileLock
	path    string // of the SQLite file
}

// Open locks, opens, checks and migrates the store. Errors: Running if another
// process holds the lock, Config if the DSN is wrong or the store was written by a
// newer ombud, Verification if the file is damaged, Unavailable if it cannot be
// reached.
func Open(ctx context.Context, o Options) (_ *DB, err error) {
	d := &DB{
		log: o.Logger, now: o.Now, maxBatch: o.MaxBatch,
		closing: make(chan struct{}), closed: make(chan struct{}), abandon: make(chan struct{}),
		signals: newSignals(),
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if d.now == nil {
		d.now = time.Now
	}
	if d.maxBatch <= 0 {
		d.maxBatch = 512
	}
	readers := o.Readers
	if readers <= 0 {
		readers = 4
	}
	d.queue = make(chan *request, d.maxBatch)
	defer func() {
		if err != nil {
			d.release()
		}
	}()
	if o.LockFile != "" {
		if d.lock, err = lockFile(o.LockFile); err != nil {
			return nil, err
		}
	}
	if err := d.openPools(o.DSN, readers); err != nil {
		return nil, err
	}
	d.full = newFullDisk(d, o.ReserveFile)
	if err := d.migrate(ctx, o.BackupDir); err != nil {
		return nil, d.dialect.classify(err)
	}
	if err := d.loadClock(ctx); err != nil {
		return nil, d.dialect.classify(err)
	}
	if d.postgres {
		d.listen = newListener(o.DSN, d.signals, d.log)
		d.listen.start()
	}
	d.full.start()
	go d.writeLoop()
	return d, nil
}

func (d *DB) openPools(dsn string, readers int) error {
	kind, rest, ok := strings.Cut(dsn, ":")
	var err error
	switch {
	case ok && kind == "sqlite" && rest != "":
		d.dialect, d.path = sqliteDialect, rest
		if err := touchPrivate(rest); err != nil {
			return err
		}
		if d.writePool, err = sql.Open("sqlite", sqliteDSN(rest, false)); err != nil {
			return err
		}
		d.readPool, err = sql.Open("sqlite", sqliteDSN(rest, true))
	case ok && (kind == "postgres" || kind == "postgresql"):
		d.dialect, d.postgres = postgresDialect, true
		if d.writePool, err = openPostgres(dsn); err != nil {
			return err
		}
		d.readPool, err = openPostgres(dsn)
	default:
		return fault.New(fault.Config, "store %q is neither sqlite:/path nor postgres://…", redactDSN(dsn))
	}
	if err != nil {
		return err
	}
	d.writePool.SetMaxOpenConns(2) // the writer, and a migration or settlement beside it
	if !d.postgres {
		d.writePool.SetMaxOpenConns(1)
	}
	d.readPool.SetMaxOpenConns(readers)
	d.readPool.SetMaxIdleConns(readers)
	d.readers = make(chan *session, readers)
	for range readers {
		d.readers <- nil
	}
	return nil
}

// sqliteDSN sets durability on every connection: none may rely on a default.
func sqliteDSN(path string, readOnly bool) string {
	q := url.Values{"_pragma": {"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "fullfsync(1)", "checkpoint_fullfsync(1)", "foreign_keys(1)", "cache_size(-4000)"}}
	if readOnly {
		q.Add("_pragma", "query_only(1)")
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// touchPrivate creates the database file with mode 0600 before SQLite, which
// would go by the umask.
func touchPrivate(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
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

func (d *DB) writerSession(ctx context.Context) (*session, error) {
	if d.writer != nil {
		return d.writer, nil
	}
	s, err := newSession(ctx, d.writePool)
	if err != nil {
		return nil, err
	}
	d.writer = s
	return s, nil
}

// dropWriter forgets a connection that cannot be trusted any more.
func (d *DB) dropWriter() {
	if d.writer == nil {
		return
	}
	s := d.writer
	d.writer = nil
	_ = s.conn.Raw(func(any) error { return errBroken }) // makes the pool discard it
	_ = s.close()
}

// Read runs fn on a read-only snapshot. fn must be short and do no I/O; the
// context's end cancels it.
func (d *DB) Read(ctx context.Context, fn func(ctx context.Context, q Q) error) error {
	var s *session
	select {
	case s = <-d.readers:
	case <-ctx.Done():
		return ctx.Err()
	case <-d.closing:
		return errClosed()
	}
	defer func() { d.readers <- s }()
	if s == nil {
		var err error
		if s, err = newSession(ctx, d.readPool); err != nil {
			s = nil
			return d.dialect.classify(err)
		}
	}
	if err := s.control(ctx, d.dialect.beginRead); err != nil {
		s = d.dropReader(s)
		return d.dialect.classify(err)
	}
	err := fn(ctx, &snapshotReader{s: s, classify: d.dialect.classify})
	if end := s.control(context.WithoutCancel(ctx), "ROLLBACK"); end != nil {
		s = d.dropReader(s) // a cancelled query may have closed the connection
	}
	return err
}

func (d *DB) dropReader(s *session) *session {
	_ = s.conn.Raw(func(any) error { return errBroken })
	_ = s.close()
	return nil
}

// snapshotReader is the Q of Read.
type snapshotReader struct {
	s        *session
	classify func(error) error
}

func (r *snapshotReader) note(err error) error {
	if err == nil {
		return nil
	}
	return r.classify(err)
}

func (r *snapshotReader) Query(ctx context.Context, query string, args ...any) (*Rows, error) {
	st, err := r.s.prepare(ctx, query)
	if err != nil {
		return nil, r.note(err)
	}
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		return nil, r.note(err)
	}
	return &Rows{Rows: rows, note: r.note}, nil
}

func (r *snapshotReader) QueryRow(ctx context.Context, query string, args ...any) *Row {
	st, err := r.s.prepare(ctx, query)
	if err != nil {
		return &Row{err: r.note(err)}
	}
	return &Row{row: st.QueryRowContext(ctx, args...), note: r.note}
}

// Close lets the callers that were taken finish, then closes everything and
// gives the lock back. It is safe to call twice.
func (d *DB) Close() error {
	d.once.Do(func() {
		close(d.closing)
		close(d.abandon)
		<-d.closed
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
