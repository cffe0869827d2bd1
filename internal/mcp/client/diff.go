package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/guard"
)

const (
	around    = 3        // lines of a diff around what differs
	diffLines = 4000     // of one side; beyond, both sides are shown whole
	maxDiff   = 64 << 10 // bytes of one difference
	maxDiffs  = 4 << 20  // bytes of all
)

// Difference is how one thing a server offers differs from what was accepted.
type Difference struct {
	Tool  string // as the server calls it
	State string // StateNew, StateChanged or StateGone
	Text  string // a unified diff of what a model and a person would be told of it
}

// differences compares what was accepted with what is offered.
func differences(pinned, offered []Item) []Difference {
	var out []Difference
	was, is := index(pinned), index(offered)
	for _, i := range offered {
		old, there := was[i.key()]
		switch {
		case !there:
			out = append(out, Difference{guard.OneLine(i.Name, maxExcerpt), StateNew, unified("nothing", "offered", nil, i.lines())})
		case old.hash() != is[i.key()].hash():
			out = append(out, Difference{guard.OneLine(i.Name, maxExcerpt), StateChanged, unified("accepted", "offered", old.lines(), i.lines())})
		}
	}
	for _, i := range pinned {
		if _, there := is[i.key()]; !there {
			out = append(out, Difference{guard.OneLine(i.Name, maxExcerpt), StateGone, unified("accepted", "nothing", i.lines(), nil)})
		}
	}
	slices.SortStableFunc(out, func(a, b Difference) int { return strings.Compare(a.Tool, b.Tool) })
	size := 0
	for i := range out {
		if size += len(out[i].Text); size > maxDiffs {
			out[i].Text = "[" + itoa(len(out[i].Text)) + " bytes, more than can be shown: do not accept what you cannot read]\n"
		}
	}
	return out
}

// lines is an item as text: everything visible, schemas one value to a line.
func (i Item) lines() []string {
	var out []string
	add := func(what, text string) {
		if text == "" {
			return
		}
		out = append(out, what+":")
		for line := range strings.SplitSeq(guard.CleanText(text), "\n") {
			out = append(out, "  "+line)
		}
	}
	add("name", i.Name)
	add("title", i.Title)
	add("description", i.Description)
	add("input", pretty(i.Input))
	add("output", pretty(i.Output))
	add("annotations", pretty(i.Annotations))
	add("refused", i.Refused)
	add("digest", i.Digest)
	return out
}

func pretty(raw json.RawMessage) string {
	var b bytes.Buffer
	if len(raw) == 0 || json.Indent(&b, raw, "", "  ") != nil {
		return string(raw)
	}
	return b.String()
}

// unified is a unified diff of two texts, at most maxDiff bytes of it.
func unified(from, to string, a, b []string) string {
	edits := edit(a, b)
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", from, to)
	for n := 0; n < len(edits); {
		if edits[n].op == ' ' {
			n++
			continue
		}
		start, end := max(0, n-around), n
		for gap := 0; end < len(edits) && gap <= 2*around; end++ {
			if gap++; edits[end].op != ' ' {
				gap = 0
			}
		}
		for end > n && edits[end-1].op == ' ' && trailing(edits[:end]) > around {
			end--
		}
		hunk(&out, edits, start, end)
		n = end
	}
	text, cut := guard.CutText(out.String(), maxDiff)
	if cut {
		text += "\n[…]\n"
	}
	return text
}

// trailing counts the equal lines at the end.
func trailing(edits []edited) (n int) {
	for i := len(edits) - 1; i >= 0 && edits[i].op == ' '; i-- {
		n++
	}
	return n
}

func hunk(out *strings.Builder, edits []edited, start, end int) {
	ofA, ofB := 1, 1
	for _, e := range edits[:start] {
		if e.op != '+' {
			ofA++
		}
		if e.op != '-' {
			ofB++
		}
	}
	inA, inB := 0, 0
	for _, e := range edits[start:end] {
		if e.op != '+' {
			inA++
		}
		if e.op != '-' {
			inB++
		}
	}
	if inA == 0 { // as others write it: behind which line
		ofA--
	}
	if inB == 0 {
		ofB--
	}
	fmt.Fprintf(out, "@@ -%d,%d +%d,%d @@\n", ofA, inA, ofB, inB)
	for _, e := range edits[start:end] {
		out.WriteByte(e.op)
		out.WriteString(e.line)
		out.WriteByte('\n')
	}
}

// edited is a line of a diff: ' ', '-' or '+'.
type edited struct {
	op   byte
	line string
}

// edit makes b of a, by the longest run of common lines. What is very long is exchanged
// whole: a diff of it would not be read.
func edit(a, b []string) (out []edited) {
	if len(a) > diffLines || len(b) > diffLines || len(a)*len(b) > diffLines*diffLines/4 {
		for _, l := range a {
			out = append(out, edited{'-', l})
		}
		for _, l := range b {
			out = append(out, edited{'+', l})
		}
		return out
	}
	common := make([][]int32, len(a)+1) // of a[i:] and b[j:]
	for i := range common {
		common[i] = make([]int32, len(b)+1)
	}
	for i, one := range slices.Backward(a) {
		for j, other := range slices.Backward(b) {
			if one == other {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, edited{' ', a[i]})
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common[i+1][j] >= common[i][j+1]):
			out = append(out, edited{'-', a[i]})
			i++
		default:
			out = append(out, edited{'+', b[j]})
			j++
		}
	}
	return out
}
