package memory

import (
	"fmt"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

func TestPagesHoldEveryFactOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d, Options{})
		const n = 7
		for i := range n {
			b.said("", fmt.Sprintf("note %d", i))
		}
		seen, before := map[string]bool{}, ""
		for {
			page, err := b.Page(t.Context(), "main", before, 3)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			for _, f := range page {
				if seen[f.ID] {
					t.Fatalf("%s is on two pages", f.ID)
				}
				seen[f.ID], before = true, f.ID
			}
		}
		if len(seen) != n {
			t.Errorf("%d facts on all pages, want %d", len(seen), n)
		}
		if _, err := b.Page(t.Context(), "main", "mem_none", 3); !fault.Is(err, fault.NotFound) {
			t.Errorf("behind a fact that is not there: %v", err)
		}
	})
}
