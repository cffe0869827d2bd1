package signed

import (
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
			return pa == "" || pb != "" && pa > pb, true
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
