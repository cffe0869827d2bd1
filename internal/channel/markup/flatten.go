package markup

import (
	"strconv"
	"strings"

	"github.com/yuin/goldmark/ast"
	east "github.com/yuin/goldmark/extension/ast"
)

const (
	nothing  = "(nothing)"
	ruleLine = "──────────"
	maxHang  = 12 // columns; what is nested deeper stands below it
)

// dialect is what reading has to know of a network.
type dialect struct {
	bullets []string // of lists in lists; the last is for all deeper ones
	schemes []string // what a link may begin with
	maxURL  int      // bytes: a link with a longer one is shown as it was written
	columns int      // a wider table is shown as a list
	quiet   bool     // nothing in a text may call people
	angles  bool     // also not <@…
}

// flattener turns a tree of blocks into lines.
type flattener struct {
	src   []byte
	d     *dialect
	lines []line

	lead  string // of the next line
	hang  string // of the lines after it
	quote int
	in    int
	depth int // of lists
	tight bool
	ids   int // of quotes and blocks of code
	after bool
}

// put adds the lines of a block.
func (f *flattener) put(block []line) {
	for i := range block {
		l := &block[i]
		l.lead, f.lead = f.lead, f.hang
		l.quote, l.in = f.quote, f.in
		l.first = i == 0
		l.gap = i == 0 && len(f.lines) > 0 && !f.tight && !f.after
	}
	if len(block) == 0 {
		return
	}
	f.lines = append(f.lines, block...)
	f.tight, f.after = false, block[len(block)-1].head
}

func (f *flattener) children(n ast.Node) {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		f.block(c)
	}
}

func (f *flattener) block(n ast.Node) {
	switch n := n.(type) {
	case *ast.Heading:
		f.text(f.inline(n, bold), true)
	case *ast.Paragraph:
		f.text(f.inline(n, 0), false)
	case *ast.TextBlock:
		f.text(f.inline(n, 0), false)
	case *ast.HTMLBlock: // too much to look into: see guard
		f.text([]run{{text: string(n.Lines().Value(f.src))}}, false)
	case *ast.FencedCodeBlock:
		f.code(n.Lines().Value(f.src), language(n.Language(f.src)))
	case *ast.CodeBlock:
		f.code(n.Lines().Value(f.src), "")
	case *ast.ThematicBreak:
		f.after = false
		f.put([]line{{runs: []run{{text: ruleLine}}}})
	case *ast.Blockquote:
		f.inQuote(n)
	case *ast.List:
		f.list(n)
	case *east.Table:
		f.table(n)
	default:
		f.children(n)
	}
}

// text adds a block of text, broken where runs have line breaks.
func (f *flattener) text(runs []run, heading bool) {
	block := []line{{head: heading}}
	for _, r := range runs {
		for {
			part, rest, more := strings.Cut(r.text, "\n")
			if part != "" {
				l := &block[len(block)-1]
				if n := len(l.runs); n > 0 && l.runs[n-1].style == r.style && l.runs[n-1].url == r.url {
					l.runs[n-1].text += part
				} else {
					l.runs = append(l.runs, run{part, r.style, r.url})
				}
			}
			if !more {
				break
			}
			block = append(block, line{head: heading})
			r.text = rest
		}
	}
	kept := block[:0]
	for i := range block {
		if trim(&block[i]); seen(block[i : i+1]) {
			kept = append(kept, block[i])
		}
	}
	if len(kept) == 0 && strings.TrimSpace(f.lead) != "" { // an item with nothing in it
		kept = []line{{}}
	}
	f.put(kept)
}

// trim takes away the spaces at the ends of a line.
func trim(l *line) {
	for len(l.runs) > 0 {
		if l.runs[0].text = strings.TrimLeft(l.runs[0].text, " \t"); l.runs[0].text != "" {
			break
		}
		l.runs = l.runs[1:]
	}
	for n := len(l.runs); n > 0; n = len(l.runs) {
		if l.runs[n-1].text = strings.TrimRight(l.runs[n-1].text, " \t"); l.runs[n-1].text != "" {
			break
		}
		l.runs = l.runs[:n-1]
	}
}

// code adds a block of code.
func (f *flattener) code(content []byte, lang string) {
	rows := strings.Split(string(content), "\n")
	for len(rows) > 0 && strings.TrimSpace(rows[0]) == "" {
		rows = rows[1:]
	}
	for len(rows) > 0 && strings.TrimSpace(rows[len(rows)-1]) == "" {
		rows = rows[:len(rows)-1]
	}
	f.fence(rows, lang)
}

func (f *flattener) fence(rows []string, lang string) {
	f.ids++
	block := make([]line, len(rows))
	for i, row := range rows {
		block[i] = line{fence: f.ids, lang: lang}
		if row = strings.TrimRight(row, " \t"); row != "" {
			block[i].runs = []run{{text: row}}
		}
	}
	if len(rows) > 0 && strings.TrimSpace(f.lead) != "" { // an item that begins with code
		f.put([]line{{}})
		f.tight = true
	}
	f.put(block)
}

// language is what of a fence's info a network can take for the name of a language.
func language(info []byte) string {
	for i, c := range info {
		if i == 32 || c >= 0x80 || !word(rune(c)) && !strings.ContainsRune("+#-_.", rune(c)) {
			return ""
		}
	}
	return string(info)
}

func (f *flattener) inQuote(n ast.Node) {
	outer := f.in
	if f.quote++; f.quote == 1 {
		f.ids++
		f.in = f.ids
	}
	f.children(n)
	f.quote--
	f.in = outer
	f.after = false
}

func (f *flattener) list(n *ast.List) {
	lead, hang := f.lead, f.hang
	dense := n.IsTight || single(n)
	nested := f.depth > 0
	f.depth++
	number := n.Start
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		mark := f.d.bullets[min(f.depth, len(f.d.bullets))-1]
		if n.IsOrdered() {
			mark = strconv.Itoa(number) + "."
			number++
		} else if done, is := task(c); is {
			mark = map[bool]string{true: "☑", false: "☐"}[done]
		}
		f.lead = lead + mark + " "
		f.hang = hang
		if len(hang) < maxHang {
			f.hang += strings.Repeat(" ", columns(mark)+1)
		}
		f.tight = dense && (nested || c.PreviousSibling() != nil) || f.tight
		f.item(c, dense)
		lead = hang
	}
	f.depth--
	f.lead, f.hang = hang, hang
	f.tight, f.after = false, false
}

// item adds what is in an item of a list.
func (f *flattener) item(n ast.Node, dense bool) {
	before := len(f.lines)
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if c != n.FirstChild() {
			f.tight = dense
		}
		f.block(c)
	}
	if len(f.lines) == before {
		f.put([]line{{}})
	}
	f.tight = dense
}

// single reports whether each item of a list is one paragraph: then no empty lines are
// needed to tell them apart.
func single(n *ast.List) bool {
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		if c.ChildCount() > 1 {
			return false
		}
	}
	return true
}

// task reports whether an item has a box to tick, and whether it is ticked.
func task(item ast.Node) (done, is bool) {
	if text := item.FirstChild(); text != nil {
		if box, ok := text.FirstChild().(*east.TaskCheckBox); ok {
			return box.IsChecked, true
		}
	}
	return false, false
}

// finish takes out of the lines what would call people.
func (f *flattener) finish() {
	if !f.d.quiet {
		return
	}
	for i := range f.lines {
		hush(&f.lines[i], f.d.angles)
	}
}

// hush puts a character that nobody sees between an @ and a name that stands for all. In an
// address, which would lead elsewhere with it, the @ is written in the other way there is.
func hush(l *line, angles bool) {
	for i := range l.runs {
		r := &l.runs[i]
		if !strings.Contains(r.text, "@") {
			continue
		}
		var b strings.Builder
		address := false
		for j := range len(r.text) {
			c := r.text[j]
			if c <= ' ' {
				address = false
			} else if c == ':' && r.style != code {
				address = address || strings.HasPrefix(r.text[j:], "://")
			}
			switch {
			case c != '@' || !calls(l, i, j+1) && !(angles && opened(l, i, j)):
				b.WriteByte(c)
			case address:
				b.WriteString("%40")
			default:
				b.WriteString("@" + zwsp)
			}
		}
		r.text = b.String()
	}
}

// calls reports whether a line goes on, behind byte j of run i, with a name for all.
func calls(l *line, i, j int) bool {
	after := l.runs[i].text[j:]
	for i++; i < len(l.runs) && len(after) < len("everyone"); i++ {
		after += l.runs[i].text
	}
	for _, name := range []string{"everyone", "channel", "here"} {
		if len(after) >= len(name) && strings.EqualFold(after[:len(name)], name) {
			return true
		}
	}
	return false
}

// opened reports whether a < stands before byte j of run i.
func opened(l *line, i, j int) bool {
	if j > 0 {
		return l.runs[i].text[j-1] == '<'
	}
	return i > 0 && strings.HasSuffix(l.runs[i-1].text, "<")
}
