package markup

import (
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// address is how long the address is that a text begins with, without what formatting may
// be; 0 if it begins with none.
func address(text string) int {
	if !strings.HasPrefix(text, "https://") && !strings.HasPrefix(text, "http://") {
		return 0
	}
	if n := strings.IndexAny(text, " \t\n<>`|*~\\[]"); n >= 0 {
		text = text[:n]
	}
	return len(strings.TrimRight(text, "_.,;:!?)'\""))
}

// bareAddress reads addresses that stand in a text, so that no _ in one is taken for
// emphasis: it would lead elsewhere without. They stay text, of which networks make links
// by themselves.
type bareAddress struct{}

// Trigger has what may stand before an address. A space stands for the start of a line too.
func (bareAddress) Trigger() []byte { return []byte{' ', '('} }

func (bareAddress) Parse(parent ast.Node, block text.Reader, _ parser.Context) ast.Node {
	line, segment := block.PeekLine()
	before := 0
	if line[0] != 'h' {
		before = 1
	}
	if segment.Padding != 0 || len(line) < before+8 || line[before] != 'h' {
		return nil
	}
	n := address(string(line[before:min(len(line), before+2048)]))
	if n == 0 {
		return nil
	}
	if before > 0 {
		ast.MergeOrAppendTextSegment(parent, segment.WithStop(segment.Start+before))
	}
	block.Advance(before + n)
	return ast.NewTextSegment(text.NewSegment(segment.Start+before, segment.Start+before+n))
}
