package tool

import (
	"strconv"
	"strings"
	"unicode"
)

const maxShown = 200 // bytes

// Show returns s as a part of a summary line: on one line, everything in it
// visible, not too long. What could deceive a reader (controls, invisible and
// direction characters, outer spaces) is quoted and escaped.
func Show(s string) string { return ShowUpTo(s, maxShown) }

// ShowUpTo is Show of at most so many bytes.
func ShowUpTo(s string, most int) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
	s = cut(s, most)
	if s == "" || s != strings.TrimSpace(s) || strings.ContainsFunc(s, odd) {
		return strconv.Quote(s)
	}
	return s
}
