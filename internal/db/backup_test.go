package db_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// writers put keys into d until stopped; every commit adds a pair of rows.
func writers(t *testing.T, d *db.DB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
					if _, err := tx.Next(ctx, "log"); err != nil {
						return err
					}
					for _, half := range []string{"a", "b"} {
						if err := db.SetMeta(ctx, tx, fmt.Sprintf("%d-%d-%s", w, n, half), strings.Repeat("v", 700)); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// tally is what a store holds: the counter of its log, and rows.
func tally(t *testing.T, read func(ctx context.Context, fn func(context.Context, db.Q) error) error) (head, rows int64) {
	t.Helper()
	err := read(t.Context(), func(ctx context.Context, q db.Q) error {
		if err := q.QueryRow(ctx, "SELECT value FROM heads WHERE name = 'log'").Scan(&head); err != nil {
			return err
		}
		return q.QueryRow(ctx, "SELECT count(*) FROM meta").Scan(&rows)
	})
	if err != nil {
		t.Fatal(err)
	}
	return head, rows
}

// TestASnapshotIsOneCommitWhateverIsWrittenMeanwhile copies a store while four
// writers go on, in both forms, and opens the copies.
func TestASnapshotIsOneCommitWhateverIsWrittenMeanwhile(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		stop := writers(t, d)
		defer stop()
		for round := range 3 {
			for head, _ := tally(t, d.Read); head < int64(200*(round+1)); head, _ = tally(t, d.Read) {
			}
			s, err := d.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			head, rows := tally(t, s.Read)
			if rows != 2*head {
				t.Errorf("a snapshot in the middle of a commit: %d rows for %d", rows, head)
			}
			for _, kind := range dbtest.Kinds() { // rows go into either store
				o := dbtest.Options(t, kind)
				o.LockFile = ""
				if err := db.Load(t.Context(), o, s.Schema, copyAll(s)); err != nil {
					t.Fatalf("into %s: %v", kind, err)
				}
				c := dbtest.Open(t, o)
				if h, r := tally(t, c.Read); h != head || r != rows {
					t.Errorf("rows in %s: head %d with %d rows, want %d with %d", kind, h, r, head, rows)
				}
			}
			if !d.Postgres() {
				pages(t, s, head, rows)
			}
			if h, r := tally(t, s.Read); h != head || r != rows {
				t.Errorf("the snapshot has moved: %d with %d rows", h, r)
			}
			s.Close()
		}
	})
}

func copyAll(s *db.Snapshot) func(ctx context.Context, l *db.Loader) error {
	return func(ctx context.Context, l *db.Loader) error {
		tables, err := s.Tables(ctx)
		if err != nil {
			return err
		}
		for _, tab := range tables {
			var rows [][]any
			err := s.Rows(ctx, tab, func(row []any) error {
				rows = append(rows, append([]any{}, row...))
				return nil
			})
			if err != nil {
				return err
			}
			if err := l.Rows(ctx, tab, rows); err != nil {
				return err
			}
		}
		return nil
	}
}

func pages(t *testing.T, s *db.Snapshot, head, rows int64) {
	t.Helper()
	var b bytes.Buffer
	if err := s.Pages(t.Context(), func(p []byte) error { b.Write(p); return nil }); err != nil {
		t.Fatal(err)
	}
	if int64(b.Len()) != s.Size {
		t.Errorf("%d bytes of %d", b.Len(), s.Size)
	}
	o := dbtest.Options(t, dbtest.KindSQLite)
	if err := os.WriteFile(strings.TrimPrefix(o.DSN, "sqlite:"), b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	c := dbtest.Open(t, o)
	if err := c.Integrity(t.Context()); err != nil {
		t.Error(err)
	}
	if h, r := tally(t, c.Read); h != head || r != rows {
		t.Errorf("pages: head %d with %d rows, want %d with %d", h, r, head, rows)
	}
}

func TestEveryKindOfValueIsCopied(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			for i, data := range [][]byte{nil, {}, {0, 255, 0}} {
				if _, err := tx.Exec(ctx, `INSERT INTO events (position, id, stream, version, kind, format, at, actor, cause, trace, data, leaf)
					VALUES ($1, $2, 's', $1, 'k', -9223372036854775808, 9223372036854775807, 'ä"''\', '', '', $3, $4)`,
					int64(i+1), fmt.Sprint("e", i), data, []byte("leaf")); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		s, err := d.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, kind := range dbtest.Kinds() {
			o := dbtest.Options(t, kind)
			o.LockFile = ""
			if err := db.Load(t.Context(), o, s.Schema, copyAll(s)); err != nil {
				t.Fatal(err)
			}
			if got, want := events(t, dbtest.Open(t, o)), events(t, d); got != want {
				t.Errorf("into %s: %s, want %s", kind, got, want)
			}
		}
	})
}

func events(t *testing.T, d *db.DB) (out string) {
	t.Helper()
	err := d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
		lines, err := db.All(ctx, q, func(r *db.Rows) (string, error) {
			var id, actor string
			var format, at, none int64
			var data, leaf []byte
			err := r.Scan(&id, &format, &at, &actor, &none, &data, &leaf)
			return fmt.Sprintf("%s %d %d %s %d %x %s", id, format, at, actor, none, data, leaf), err
		}, "SELECT id, format, at, actor, CASE WHEN data IS NULL THEN 1 ELSE 0 END, data, leaf FROM events ORDER BY position")
		out = strings.Join(lines, "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A load that fails leaves a store that can be loaded again, and one that holds
// something is refused.
func TestALoadIsAllOrNothing(t *testing.T) {
	t.Parallel()
	src := dbtest.SQLite(t)
	if err := src.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error { return db.SetMeta(ctx, tx, "k", "v") }); err != nil {
		t.Fatal(err)
	}
	s, err := src.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			o := dbtest.Options(t, kind)
			o.LockFile = ""
			broken := errors.New("broken")
			err := db.Load(t.Context(), o, s.Schema, func(ctx context.Context, l *db.Loader) error {
				return errors.Join(copyAll(s)(ctx, l), broken)
			})
			if !errors.Is(err, broken) {
				t.Fatal(err)
			}
			for table, class := range map[string]fault.Class{"nothing": fault.Verification, "meta": fault.Verification} {
				err := db.Load(t.Context(), o, s.Schema, func(ctx context.Context, l *db.Loader) error {
					return l.Rows(ctx, db.Table{Name: table, Columns: []string{"other"}}, [][]any{{"x"}})
				})
				if !fault.Is(err, class) {
					t.Errorf("an unknown column of %s: %v", table, err)
				}
			}
			if err := db.Load(t.Context(), o, s.Schema, copyAll(s)); err != nil {
				t.Fatal(err)
			}
			if err := db.Load(t.Context(), o, s.Schema, copyAll(s)); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
				t.Errorf("into a store that holds something: %v", err)
			}
			if err := db.Load(t.Context(), o, 1<<20, copyAll(s)); !fault.Is(err, fault.Config) {
				t.Errorf("a newer schema: %v", err)
			}
		})
	}
}

// TestAnOlderSchemaIsLoadedAndMigrated makes a store of each earlier schema from rows
// and opens it.
func TestAnOlderSchemaIsLoadedAndMigrated(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			newest, err := db.NewestSchema()
			if err != nil {
				t.Fatal(err)
			}
			for schema := int64(1); schema <= newest; schema += 5 {
				o := dbtest.Options(t, kind)
				o.LockFile = ""
				err := db.Load(t.Context(), o, schema, func(ctx context.Context, l *db.Loader) error {
					return errors.Join(
						l.Rows(ctx, db.Table{Name: "heads", Columns: []string{"at", "name", "value"}}, [][]any{{int64(0), "log", int64(7)}}),
						l.Rows(ctx, db.Table{Name: "meta", Columns: []string{"key", "value"}}, [][]any{{"k", "v"}}))
				})
				if err != nil {
					t.Fatal(schema, err)
				}
				if head, rows := tally(t, dbtest.Open(t, o).Read); head != 7 || rows != 1 {
					t.Errorf("schema %d: head %d, %d rows", schema, head, rows)
				}
			}
		})
	}
}

// What is prepared under the lock is done before the store's file is made.
func TestPrepareRunsBeforeTheFilesAreOpened(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(t, dbtest.KindSQLite)
	path := strings.TrimPrefix(o.DSN, "sqlite:")
	ran := 0
	o.Prepare = func() error {
		ran++
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("the store is there: %v", err)
		}
		if _, err := db.Lock(o.LockFile); !fault.Is(err, fault.Running) {
			t.Errorf("the lock is not held: %v", err)
		}
		return nil
	}
	dbtest.Open(t, o)
	if ran != 1 {
		t.Errorf("%d times", ran)
	}
	unlock, err := db.Lock(filepath.Join(t.TempDir(), "lock"))
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
