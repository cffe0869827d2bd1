package dbtest

import (
	"context"
	"errors"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
)

func put(t *testing.T, d *db.DB) {
	t.Helper()
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2)", "dbtest", "kept")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, d *db.DB) (value string, err error) {
	t.Helper()
	err = d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT value FROM meta WHERE key = $1", "dbtest").Scan(&value)
	})
	return value, err
}

func TestEachRunsOnBothStoresEmptyAndMigrated(t *testing.T) {
	t.Parallel()
	seen := map[bool]int{}
	Each(t, func(t *testing.T, d *db.DB) {
		seen[d.Postgres()]++
		if got, err := get(t, d); err == nil {
			t.Errorf("a new store already holds %q", got)
		}
		put(t, d)
	})
	wantPostgres := 1
	if _, err := process(); errors.Is(err, errAbsent) {
		wantPostgres = 0 // its subtest was skipped
	}
	if seen[false] != 1 || seen[true] != wantPostgres {
		t.Errorf("SQLite %d times, PostgreSQL %d times, want 1 and %d", seen[false], seen[true], wantPostgres)
	}
}

func TestDSNCanBeOpenedAgainWithItsRows(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			o := Options(t, kind)
			d := Open(t, o)
			put(t, d)
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if got, err := get(t, Open(t, o)); err != nil || got != "kept" {
				t.Errorf("after opening again: %q, %v", got, err)
			}
		})
	}
}
