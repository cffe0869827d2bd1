package dbtest

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
)

// Kind is one of the stores ombud runs on.
type Kind string

// The stores. Everything durable is tested on both.
const (
	KindSQLite   Kind = "sqlite"
	KindPostgres Kind = "postgres"
)

// Kinds lists every store, for tests that open, close and open again.
func Kinds() []Kind { return []Kind{KindSQLite, KindPostgres} }

// Each runs fn as a subtest on an empty, migrated store of every kind. fn may
// call t.Parallel.
func Each(t *testing.T, fn func(t *testing.T, d *db.DB)) {
	t.Helper()
	for _, kind := range Kinds() {
		t.Run(string(kind), func(t *testing.T) { fn(t, Open(t, Options(t, kind))) })
	}
}

// SQLite opens an empty, migrated SQLite store.
func SQLite(t testing.TB) *db.DB {
	t.Helper()
	return Open(t, Options(t, KindSQLite))
}

// Postgres opens an empty, migrated PostgreSQL store.
func Postgres(t testing.TB) *db.DB {
	t.Helper()
	return Open(t, Options(t, KindPostgres))
}

// DSN is the address of an empty store that was never opened, to be opened as
// often as the test likes and removed at its end.
func DSN(t testing.TB, kind Kind) string {
	t.Helper()
	if kind == KindPostgres {
		return PostgresDSN(t)
	}
	return "sqlite:" + filepath.Join(t.TempDir(), "ombud.db")
}

// Options are the options a daemon would use on an empty store, but without the
// reserve file, which a test of the full disk adds. The log is shown if the test fails.
func Options(t testing.TB, kind Kind) db.Options {
	t.Helper()
	dir := t.TempDir()
	o := db.Options{DSN: DSN(t, kind), BackupDir: filepath.Join(dir, "backup"), Logger: logger(t)}
	if kind == KindSQLite {
		o.LockFile = filepath.Join(dir, "lock")
	}
	return o
}

// Open opens a store and closes it at the end of the test, if the test has not.
func Open(t testing.TB, o db.Options) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), o)
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return d
}

// logger collects what the store says and prints it when the test has failed.
func logger(t testing.TB) *slog.Logger {
	t.Helper()
	var b buffer
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the store:\n%s", b.String())
		}
	})
	return slog.New(slog.NewTextHandler(&b, nil))
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
