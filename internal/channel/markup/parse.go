package markup

import (
	"bytes"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// What is read. Beyond it, goldmark's work grows with the square of what it reads.
const (
	maxSource    = 256 << 10 // bytes: more than 20 pieces of any network show
	maxParagraph = 16 << 10  // bytes
	maxTable     = 64 << 10  // bytes
	maxCells     = 20_000    // of a table
	maxPipes     = 100       // pipes of a table that are none
	maxDepth     = 32        // blocks in each other; a list counts twice
)

type style uint8

const (
	bold style = 1 << iota
	italic
	strike
	code // has no other style
)

// run is text of one style. It has no line break.
type run struct {
	text  string
	style style
	url   string // what it links to
}

// line is what stands on one line, unless it is too long for a piece.
type line struct {
	runs  []run
	lead  string // what stands before it: a bullet, or as many spaces
	quote int    // in how many quotes it is
	in    int    // which quote that is
	fence int    // which block of code it is of; 0: of none
	lang  string // of that block
	first bool   // a block begins with it
	gap   bool   // an empty line stands before it
	head  bool   // it is a heading: it stays with what follows
}

func (l *line) text() string {
	if len(l.runs) == 1 {
		return l.runs[0].text
	}
	var b []byte
	for _, r := range l.runs {
		b = append(b, r.text...)
	}
	return string(b)
}

// markdown has no parser for HTML: a tag is text like any other.
var markdown = parser.NewParser(
	parser.WithBlockParsers(
		util.Prioritized(parser.NewSetextHeadingParser(), 100),
		util.Prioritized(parser.NewThematicBreakParser(), 200),
		util.Prioritized(shallow{parser.NewListParser()}, 300),
		util.Prioritized(parser.NewListItemParser(), 400),
		util.Prioritized(parser.NewCodeBlockParser(), 500),
		util.Prioritized(short{parser.NewATXHeadingParser()}, 600),
		util.Prioritized(parser.NewFencedCodeBlockParser(), 700),
		util.Prioritized(shallow{parser.NewBlockquoteParser()}, 800),
		util.Prioritized(parser.NewParagraphParser(), 1000),
	),
	parser.WithInlineParsers(
		util.Prioritized(extension.NewTaskCheckBoxParser(), 0),
		util.Prioritized(parser.NewCodeSpanParser(), 100),
		util.Prioritized(parser.NewLinkParser(), 200),
		util.Prioritized(parser.NewAutoLinkParser(), 300),
		util.Prioritized(bareAddress{}, 400),
		util.Prioritized(parser.NewEmphasisParser(), 500),
		util.Prioritized(extension.NewStrikethroughParser(), 500),
	),
	parser.WithParagraphTransformers(
		util.Prioritized(guard{}, 0),
		util.Prioritized(parser.LinkReferenceParagraphTransformer, 100),
		util.Prioritized(extension.NewTableParagraphTransformer(), 200),
	),
	parser.WithASTTransformers(
		util.Prioritized(extension.NewTableASTTransformer(), 0),
	),
)

// shallow is a parser of blocks that opens none deep in others.
type shallow struct{ parser.BlockParser }

func (s shallow) Open(parent ast.Node, reader text.Reader, pc parser.Context) (ast.Node, parser.State) {
	if len(pc.OpenedBlocks()) >= maxDepth {
		return nil, parser.NoChildren
	}
	return s.BlockParser.Open(parent, reader, pc)
}

// short is a parser of headings that takes no line for one that is longer than any.
type short struct{ parser.BlockParser }

func (s short) Open(parent ast.Node, reader text.Reader, pc parser.Context) (ast.Node, parser.State) {
	if line, _ := reader.PeekLine(); len(line) > maxParagraph {
		return nil, parser.NoChildren
	}
	return s.BlockParser.Open(parent, reader, pc)
}

// guard takes paragraphs that would take long to read for what they are, letter by letter.
type guard struct{}

func (guard) Transform(p *ast.Paragraph, reader text.Reader, _ parser.Context) {
	if affordable(p.Lines(), reader.Source()) {
		return
	}
	// HTML is not read, so this kind of node is free. goldmark looks for nothing in it.
	verbatim := ast.NewHTMLBlock(ast.HTMLBlockType7)
	verbatim.SetLines(p.Lines())
	verbatim.SetBlankPreviousLines(p.HasBlankPreviousLines())
	p.Parent().ReplaceChild(p.Parent(), p, verbatim)
}

func affordable(lines *text.Segments, src []byte) bool {
	size, cells, escaped, table := 0, 0, 0, false
	for i := range lines.Len() {
		l := lines.At(i)
		v := src[l.Start:l.Stop]
		size += len(v)
		if i < 8 && i > 0 && len(bytes.Trim(v, "|-: \t\n")) == 0 && bytes.Contains(v, []byte("--")) {
			table = true
		}
		cells = max(cells, bytes.Count(v, []byte("|")))
		escaped += bytes.Count(v, []byte(`\|`))
		if len(v) > maxParagraph/4 {
			table = false
		}
	}
	if cells*lines.Len() > maxCells || escaped > maxPipes {
		return false
	}
	return size <= maxParagraph || table && size <= maxTable
}

// read makes lines of Markdown. rest is how many characters it did not look at.
func read(md string, d *dialect) (lines []line, rest int) {
	md, rest = bound(md)
	md = clean(md)
	src := []byte(md)
	f := flattener{src: src, d: d}
	f.children(markdown.Parse(text.NewReader(src)))
	if !seen(f.lines) { // such as a definition of a link, and no link
		f = flattener{src: src, d: d}
		f.text([]run{{text: md}}, false)
	}
	if !seen(f.lines) {
		return []line{{runs: []run{{text: nothing}}}}, rest
	}
	f.finish()
	return f.lines, rest
}

// bound cuts md where the last line begins that is not read to its end.
func bound(md string) (string, int) {
	if len(md) <= maxSource {
		return md, 0
	}
	at := maxSource
	for at > maxSource-utf8.UTFMax && !utf8.RuneStart(md[at]) {
		at--
	}
	for i := at; i > maxSource/2; i-- {
		if md[i-1] == '\n' {
			at = i
			break
		}
	}
	return md[:at], utf8.RuneCountInString(md[at:])
}

func seen(lines []line) bool {
	for i := range lines {
		for _, r := range lines[i].runs {
			if visible(r.text) {
				return true
			}
		}
	}
	return false
}
