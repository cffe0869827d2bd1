package db_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
)

func open(t *testing.T) *db.DB {
	t.Helper()
	dir := t.TempDir()
	d, err := db.Open(t.Context(), db.Options{DSN: "sqlite:" + filepath.Join(dir, "ombud.db"), LockFile: filepath.Join(dir, "lock")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestManyCallersShareBatchesAndKeepTheirRows(t *testing.T) {
	t.Parallel()
	d := open(t)
	boom := errors.New("boom")
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for n := range 20 {
				key := fmt.Sprintf("k%d-%d", i, n)
				err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
					if _, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2)", key, "v"); err != nil {
						return err
					}
					if n%3 == 0 {
						return boom
					}
					_, err := tx.Next(ctx, "test")
					return err
				})
				if want := n%3 == 0; errors.Is(err, boom) != want || (!want && err != nil) {
					t.Errorf("%s: %v", key, err)
				}
			}
		})
	}
	wg.Wait()
	var rows, head int64
	err := d.Read(t.Context(), func(ctx context.Context, q db.Q) error {
		if err := q.QueryRow(ctx, "SELECT count(*) FROM meta").Scan(&rows); err != nil {
			return err
		}
		return q.QueryRow(ctx, "SELECT value FROM heads WHERE name = $1", "test").Scan(&head)
	})
	if err != nil || rows != 64*13 || head != rows {
		t.Errorf("rows %d, head %d, err %v", rows, head, err)
	}
}
