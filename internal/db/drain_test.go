package db_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
)

func TestDrainRemovesAllThatIsOverAFewAtATime(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		for i := range 25 {
			if err := put(t.Context(), d, fmt.Sprintf("over-%02d", i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := put(t.Context(), d, "stays"); err != nil {
			t.Fatal(err)
		}
		before := keys(t, d)
		const over = "DELETE FROM meta WHERE key IN (SELECT key FROM meta WHERE key LIKE $1 ORDER BY key LIMIT 10)"
		if n, err := d.Drain(t.Context(), over, "over-%"); n != 25 || err != nil {
			t.Errorf("%d removed, %v", n, err)
		}
		if left := keys(t, d); len(left) != len(before)-25 || !left["stays"] {
			t.Errorf("%v are left", left)
		}
		cut, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := d.Drain(cut, over, "stays"); err == nil || !keys(t, d)["stays"] {
			t.Errorf("a drain that was cut off: %v", err)
		}
	})
}

var (
	made      = regexp.MustCompile(`(?m)^CREATE TABLE ([a-z_]+) \(`)
	unmade    = regexp.MustCompile(`(?m)^DROP TABLE ([a-z_]+);`)
	inWriting = regexp.MustCompile("`([a-z_]+)`")
)

// TestEachTableIsSaidWhatBoundsIt: docs/operations.md has every table of the schema once.
func TestEachTableIsSaidWhatBoundsIt(t *testing.T) {
	t.Parallel()
	steps, err := db.Migrations()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for _, s := range steps {
		for _, m := range made.FindAllStringSubmatch(s.Text, -1) {
			want[m[1]] = 0
		}
		for _, m := range unmade.FindAllStringSubmatch(s.Text, -1) {
			delete(want, m[1])
		}
	}
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## What grows, and what bounds it\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found || len(want) < 60 {
		t.Fatalf("the section is there: %v; %d tables", found, len(want))
	}
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		tables, _, _ := strings.Cut(line[2:], " | ")
		for _, m := range inWriting.FindAllStringSubmatch(tables, -1) {
			if _, there := want[m[1]]; !there {
				t.Errorf("docs/operations.md tells of a table %s, which there is not", m[1])
			}
			want[m[1]]++
		}
	}
	for table, n := range want {
		if n != 1 {
			t.Errorf("docs/operations.md says %d times what bounds the table %s; say it once, under \"What grows, and what bounds it\"", n, table)
		}
	}
}
