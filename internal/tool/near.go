package tool

import (
	"cmp"
	"slices"
	"strings"
)

const (
	maxNear     = 3
	maxNearName = 128 // longer names are not worth comparing
)

// near returns up to three of names that name was probably meant to be, the
// likeliest first. Dots, dashes, underscores and case make no difference; the
// last part of a name alone ("read") finds its owners ("fs.read").
func near(name string, names []string) []string {
	if len(name) > maxNearName {
		return nil
	}
	type candidate struct {
		name     string
		distance int
	}
	var found []candidate
	want := plain(name)
	limit := max(2, len(want)/3)
	for _, n := range names {
		have := plain(n)
		d := distance(want, have)
		if strings.HasSuffix(have, "_"+want) || strings.HasSuffix(want, "_"+have) {
			d = min(d, 1)
		}
		if d <= limit {
			found = append(found, candidate{n, d})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.name, b.name))
	})
	out := make([]string, 0, maxNear)
	for _, c := range found[:min(maxNear, len(found))] {
		out = append(out, c.name)
	}
	return out
}

func plain(name string) string {
	return strings.ToLower(strings.NewReplacer(".", "_", "-", "_", "/", "_", " ", "_").Replace(name))
}

// distance counts the single-byte edits, and swaps of two neighbours, between a
// and b.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
