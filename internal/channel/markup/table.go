package markup

import (
	"strings"

	"github.com/yuin/goldmark/ast"
	east "github.com/yuin/goldmark/extension/ast"
)

// How wide a table may be to be shown as one, in characters.
const (
	phone  = 60 // where most people read on one
	screen = 100
)

// table adds a table: aligned, as code, whose characters are all as wide. One that is too
// wide for a screen would be torn apart there; it becomes a list.
func (f *flattener) table(t *east.Table) {
	var rows [][]string
	for r := t.FirstChild(); r != nil; r = r.NextSibling() {
		var row []string
		for c := r.FirstChild(); c != nil; c = c.NextSibling() {
			row = append(row, f.cell(c))
			if len(row) == len(t.Alignments) {
				row[len(row)-1] += f.beyond(c)
			}
		}
		rows = append(rows, row)
	}
	widths := make([]int, len(t.Alignments))
	total := -2
	for i := range widths {
		for _, row := range rows {
			if i < len(row) {
				widths[i] = max(widths[i], columns(row[i]))
			}
		}
		total += widths[i] + 2
	}
	if total > f.d.columns && len(rows) > 1 {
		f.records(rows)
		return
	}
	out := make([]string, 0, len(rows)+1)
	for i, row := range rows {
		out = append(out, aligned(row, widths, t.Alignments))
		if i == 0 {
			out = append(out, underline(widths))
		}
	}
	f.fence(out, "")
}

// cell is the text of a cell of a table.
func (f *flattener) cell(n ast.Node) string {
	var b strings.Builder
	for _, r := range f.inline(n, 0) {
		b.WriteString(shown(r))
	}
	return strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll(b.String(), "\n", " "), "\t", " "))
}

// beyond is what stands in a row of a table behind its last cell, as where a model forgot
// to escape a pipe. GFM leaves it out; it was written to be read.
func (f *flattener) beyond(last ast.Node) string {
	if last.Lines().Len() == 0 {
		return ""
	}
	rest, _, _ := strings.Cut(string(f.src[last.Lines().At(0).Stop:]), "\n")
	rest = strings.TrimSuffix(strings.TrimSpace(rest), "|")
	rest = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(rest), "|"))
	if rest == "" {
		return ""
	}
	return " | " + unescape(rest)
}

// shown is a run where nothing can be a link.
func shown(r run) string {
	if r.url == "" || r.url == r.text || r.url == "mailto:"+r.text {
		return r.text
	}
	return r.text + " (" + r.url + ")"
}

func aligned(row []string, widths []int, align []east.Alignment) string {
	var b strings.Builder
	for i, w := range widths {
		cell := ""
		if i < len(row) {
			cell = row[i]
		}
		if i > 0 {
			b.WriteString("  ")
		}
		room := w - columns(cell)
		before := 0
		switch align[i] {
		case east.AlignRight:
			before = room
		case east.AlignCenter:
			before = room / 2
		}
		b.WriteString(strings.Repeat(" ", before) + cell + strings.Repeat(" ", room-before))
	}
	return strings.TrimRight(b.String(), " ")
}

func underline(widths []int) string {
	parts := make([]string, len(widths))
	for i, w := range widths {
		parts[i] = strings.Repeat("─", max(w, 1))
	}
	return strings.Join(parts, "  ")
}

// records adds the rows of a table as a list, each cell behind the head of its column.
func (f *flattener) records(rows [][]string) {
	head := rows[0]
	for n, row := range rows[1:] {
		var block []line
		for i, cell := range row {
			if !visible(cell) {
				cell = "–"
			}
			var runs []run
			if i < len(head) && visible(head[i]) {
				runs = append(runs, run{text: head[i] + ":", style: bold}, run{text: " "})
			}
			block = append(block, line{runs: append(runs, run{text: cell})})
		}
		f.tight = f.tight && n == 0
		f.put(block)
	}
}
