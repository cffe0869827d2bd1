package signed

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/ombud-run/ombud/wasmloop"
)

// older reports whether next is an older version than now, and whether that can be told:
// by the numbers of their versions, else by when they were built.
func older(now, next wasmloop.Manifest) (is, known bool) {
	a, okA := numbers(now.Version)
	b, okB := numbers(next.Version)
	if okA && okB {
		if c := compare(a, b); c != 0 {
			return c > 0, true
		}
		if pa, pb := pre(now.Version), pre(next.Version); pa != pb { // 1.2.0-rc1 comes before 1.2.0
			return pa == "" || pb != "" && comparePre(pa, pb) > 0, true
		}
	}
	if now.BuiltAt > 0 && next.BuiltAt > 0 && now.BuiltAt != next.BuiltAt {
		return now.BuiltAt > next.BuiltAt, true
	}
	return false, okA && okB
}

// numbers are those of a version: 1.2.0 and v1.2 and 1.2.0-rc1+linux.
func numbers(version string) (out []int, ok bool) {
	version = strings.TrimPrefix(version, "v")
	version, _, _ = strings.Cut(version, "+")
	version, _, _ = strings.Cut(version, "-")
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return nil, false
		}
		out = append(out, n)
	}
	return out, true
}

// pre is what stands behind the numbers: rc1 of 1.2.0-rc1.
func pre(version string) string {
	version, _, _ = strings.Cut(version, "+")
	_, after, _ := strings.Cut(version, "-")
	return after
}

func compare(a, b []int) int {
	for i := range max(len(a), len(b)) {
		x, y := 0, 0
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return x - y
		}
	}
	return 0
}

// comparePre compares what stands behind the numbers part by part, digits as numbers: rc9
// comes before rc10, and a number before a word. Where one ends the other goes on, it is
// the earlier.
func comparePre(a, b string) int {
	one, two := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(one), len(two)) {
		if c := natural(one[i], two[i]); c != 0 {
			return c
		}
	}
	return len(one) - len(two)
}

func natural(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x > 0 && y > 0 {
			m, n := strings.TrimLeft(a[:x], "0"), strings.TrimLeft(b[:y], "0")
			if c := cmp.Or(cmp.Compare(len(m), len(n)), cmp.Compare(m, n)); c != 0 {
				return c
			}
			a, b = a[x:], b[y:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0]) // a digit before a letter
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

// digits is how many a text begins with.
func digits(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }
