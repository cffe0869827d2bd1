package recipe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// Place is where in a file something stands, from 1. The zero Place is the file.
type Place struct {
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
}

// Problem is one thing that is wrong with a file, or that was read more kindly than
// it was written.
type Problem struct {
	File string `json:"file"`
	Place
	Msg string `json:"message"`
	Fix string `json:"fix,omitempty"`
}

// String is the problem in the form of a compiler, with the way out below it.
func (p Problem) String() string {
	out := p.File
	if p.Line > 0 {
		out += fmt.Sprintf(":%d", p.Line)
	}
	if p.Column > 0 {
		out += fmt.Sprintf(":%d", p.Column)
	}
	out += ": " + p.Msg
	if p.Fix != "" {
		out += "\n  try: " + p.Fix
	}
	return out
}

// Error is every problem of a file, in its order.
type Error struct{ Problems []Problem }

const shownProblems = 20

func (e *Error) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d problems", len(e.Problems))
	for i, p := range e.Problems {
		if i == shownProblems {
			fmt.Fprintf(&b, "\nand %d more", len(e.Problems)-i)
			break
		}
		b.WriteString("\n" + p.String())
	}
	return b.String()
}

// Fault returns nil for no problems, else fault.Config around an Error.
func Fault(problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return fault.New(fault.Config, "%w", &Error{problems})
}

// Notes collects what is wrong with one file.
type Notes struct {
	File     string
	Problems []Problem // the file is refused if there is any
	Warnings []Problem // it is not, and whoever checks it is told
}

// Bad notes a problem. fix may be "".
func (n *Notes) Bad(at Place, fix, format string, args ...any) {
	n.Problems = append(n.Problems, Problem{File: n.File, Place: at, Msg: fmt.Sprintf(format, args...), Fix: fix})
}

// Warn notes what was let pass.
func (n *Notes) Warn(at Place, fix, format string, args ...any) {
	n.Warnings = append(n.Warnings, Problem{File: n.File, Place: at, Msg: fmt.Sprintf(format, args...), Fix: fix})
}

// nearFix is the fix for a name that is none of names.
func nearFix(name string, names []string) string {
	if near := Nearest(name, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	if len(names) > 24 || len(names) == 0 {
		return ""
	}
	return "it is one of " + strings.Join(names, ", ")
}

// Nearest returns the candidate that s is most likely a slip of, or "". Up to a
// third of the letters may differ, at least one; the first of equals wins.
func Nearest(s string, candidates []string) string {
	best, limit := "", max(1, len(s)/3)+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(s), strings.ToLower(c)); d < limit {
			best, limit = c, d
		}
	}
	return best
}

// distance counts the letters to insert, delete, replace or swap with their
// neighbour. Names over 64 bytes are never near anything.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b))
	}
	var before, prev []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, prev, row = prev, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(prev[j+1]+1, row[j]+1, prev[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
