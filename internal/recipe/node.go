package recipe

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// What is read from a file is bounded: the parser recurses into what it nests, an
// alias can stand for much more than it says, and a recipe never needs more.
const (
	// MaxFile is how many bytes a file may have.
	MaxFile  = 256 << 10
	maxDepth = 40
	maxNodes = 20_000
)

// NodeKind says what a Node is.
type NodeKind uint8

// The kinds of node.
const (
	NullNode NodeKind = iota
	TextNode
	MapNode
	ListNode
)

var nodeKinds = [...]string{"nothing", "a text", "a mapping", "a list"}

func (k NodeKind) String() string { return nodeKinds[k] }

// Node is one value of a file and where it stands.
type Node struct {
	Kind   NodeKind
	Text   string  // of a TextNode: as it was written, so 1.50 stays "1.50"
	Bare   bool    // it was written without quotes, so it may be a number or a truth value
	Lines  bool    // it was written below its key, a line for a line
	Fields []Field // of a MapNode, in order
	Items  []*Node // of a ListNode
	Place
}

// Field is one key of a mapping.
type Field struct {
	Key string
	Place
	Value *Node
}

// Get returns the value of a key, nil if there is none.
func (n *Node) Get(key string) *Node {
	for _, f := range n.Fields {
		if f.Key == key {
			return f.Value
		}
	}
	return nil
}

// Parse reads the text of a file; nil with a note if it is not YAML that is taken. With
// aliases anchors, aliases and merge keys are followed, else they are refused.
func Parse(data []byte, aliases bool, notes *Notes) *Node {
	r := reader{notes: notes, aliases: aliases, anchors: map[string]ast.Node{}}
	if !r.readable(data) {
		return nil
	}
	body := r.parse(strings.TrimPrefix(string(data), "\ufeff"))
	if body == nil {
		return nil
	}
	n := r.node(body, Place{1, 1}, 0)
	if len(notes.Problems) > 0 {
		return nil
	}
	return n
}

type reader struct {
	notes   *Notes
	aliases bool
	anchors map[string]ast.Node
	open    []string // anchors whose value is being read
	count   int
	full    bool
}

func (r *reader) readable(data []byte) bool {
	if len(data) > MaxFile {
		r.notes.Bad(Place{}, "", "the file is too long: at most %d bytes are taken", MaxFile)
		return false
	}
	for i, line := range strings.Split(string(data), "\n") {
		if !utf8.ValidString(line) {
			r.notes.Bad(Place{i + 1, 1}, "", "the line is not valid UTF-8")
			return false
		}
		if c := strings.IndexFunc(line, func(r rune) bool { return r < ' ' && r != '\t' && r != '\r' || r == 0x7f }); c >= 0 {
			r.notes.Bad(Place{i + 1, 1 + utf8.RuneCountInString(line[:c])}, "", "the line has a control character")
			return false
		}
	}
	return true
}

// parse returns the body of the only document, or nil with a note.
func (r *reader) parse(text string) (body ast.Node) {
	defer func() {
		// The parser is not ours; whatever it stumbles over is not a recipe.
		if p := recover(); p != nil {
			r.notes.Bad(Place{1, 1}, "", "the YAML cannot be read: %v", p)
			body = nil
		}
	}()
	tokens := lexer.Tokenize(text)
	if at, deep := tooDeep(tokens); deep {
		r.notes.Bad(at, "", "nested more than %d deep", maxDepth)
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		at, msg := Place{1, 1}, "this is not valid YAML"
		if yerr, ok := errors.AsType[yaml.Error](err); ok {
			msg += ": " + yerr.GetMessage()
			if tk := yerr.GetToken(); tk != nil && tk.Position != nil {
				at = Place{tk.Position.Line, tk.Position.Column}
			}
		}
		r.notes.Bad(at, "", "%s", msg)
		return nil
	}
	var bodies []ast.Node
	for _, d := range file.Docs {
		if d != nil && d.Body != nil {
			bodies = append(bodies, d.Body)
		}
	}
	switch len(bodies) {
	case 0:
		r.notes.Bad(Place{1, 1}, "ombud recipe example shows one", "the file is empty")
		return nil
	case 1:
		return bodies[0]
	}
	r.notes.Bad(placeOf(bodies[1], Place{1, 1}), "write one recipe a file", "a second document starts")
	return nil
}

// tooDeep bounds nesting before the parser recurses: open brackets, the indicators
// that nest within one line, and what stands so far to the right that it can only be
// deep.
func tooDeep(tokens token.Tokens) (Place, bool) {
	open, line, inline := 0, 0, 0
	for _, tk := range tokens {
		if tk == nil || tk.Position == nil {
			continue
		}
		if tk.Position.Line != line {
			line, inline = tk.Position.Line, 0
		}
		switch tk.Type {
		case token.SequenceStartType, token.MappingStartType:
			open++
		case token.SequenceEndType, token.MappingEndType:
			open--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			inline++
		}
		if open > maxDepth || inline > maxDepth || open == 0 && tk.Position.IndentNum > 8*maxDepth && tk.Type == token.MappingValueType {
			return Place{tk.Position.Line, tk.Position.Column}, true
		}
	}
	return Place{}, false
}

func placeOf(n ast.Node, where Place) Place {
	switch m := n.(type) {
	case nil:
		return where
	case *ast.MappingNode: // whose own token is the first colon
		if !m.IsFlowStyle && len(m.Values) > 0 {
			return placeOf(m.Values[0].Key, where)
		}
	case *ast.MappingValueNode:
		return placeOf(m.Key, where)
	}
	tk := n.GetToken()
	if tk == nil || tk.Position == nil {
		return where
	}
	return Place{max(tk.Position.Line, 1), max(tk.Position.Column, 1)}
}

// node makes a Node of the parser's; nil where it noted a problem.
func (r *reader) node(n ast.Node, where Place, depth int) *Node {
	at := placeOf(n, where)
	if r.count++; depth > maxDepth || r.count > maxNodes {
		if !r.full {
			r.full = true
			r.notes.Bad(at, "", "the file stands for more than %d values, or nests them more than %d deep", maxNodes, maxDepth)
		}
		return nil
	}
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return &Node{Kind: NullNode, Place: where}
	case *ast.StringNode:
		return &Node{Kind: TextNode, Text: n.Value, Bare: n.GetToken().Type == token.StringType, Place: at}
	case *ast.LiteralNode:
		return &Node{Kind: TextNode, Text: n.Value.Value, Lines: strings.HasPrefix(n.Start.Value, "|"), Place: at}
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return &Node{Kind: TextNode, Text: n.GetToken().Value, Bare: true, Place: at}
	case *ast.SequenceNode:
		out := &Node{Kind: ListNode, Place: at}
		for _, item := range n.Values {
			out.Items = append(out.Items, r.node(item, at, depth+1))
		}
		return out
	case ast.MapNode:
		out := &Node{Kind: MapNode, Place: at}
		r.fields(n, out, depth)
		return out
	case *ast.AnchorNode, *ast.AliasNode:
		return r.reference(n, at, depth)
	}
	r.notes.Bad(at, "write the value out", "tags, complex keys and directives are not supported")
	return nil
}

// reference follows an anchor or an alias, or refuses it.
func (r *reader) reference(n ast.Node, at Place, depth int) *Node {
	if !r.aliases {
		r.notes.Bad(at, "write the value out", "anchors and aliases are not supported")
		return nil
	}
	if a, ok := n.(*ast.AnchorNode); ok {
		name := a.Name.String()
		r.anchors[name] = a.Value
		r.open = append(r.open, name)
		defer func() { r.open = r.open[:len(r.open)-1] }()
		return r.node(a.Value, at, depth+1)
	}
	name := n.(*ast.AliasNode).Value.String()
	if slices.Contains(r.open, name) {
		r.notes.Bad(at, "", "the alias *%s stands within what it stands for", name)
		return nil
	}
	value, ok := r.anchors[name]
	if !ok {
		r.notes.Bad(at, "", "no anchor &%s comes before", name)
		return nil
	}
	return r.node(value, at, depth+1)
}

// fields reads a mapping into out.
func (r *reader) fields(m ast.MapNode, out *Node, depth int) {
	seen := map[string]Place{}
	var merged []Field
	for it := m.MapRange(); it.Next(); {
		at := placeOf(it.Key(), out.Place)
		if _, merge := it.Key().(*ast.MergeKeyNode); merge {
			if !r.aliases {
				r.notes.Bad(at, "write the keys out", "merge keys are not supported")
				continue
			}
			from := r.node(it.Value(), at, depth+1)
			if from == nil {
				continue
			}
			if from.Kind != MapNode {
				r.notes.Bad(at, "", "a merge key takes a mapping, not %s", from.Kind)
				continue
			}
			merged = append(merged, from.Fields...)
			continue
		}
		key, ok := keyText(it.Key())
		if !ok {
			r.notes.Bad(at, "", "this kind of key is not supported; write a plain name")
			continue
		}
		if first, twice := seen[key]; twice {
			r.notes.Bad(at, "", "%q is written twice, first in line %d", key, first.Line)
			continue
		}
		seen[key] = at
		out.Fields = append(out.Fields, Field{Key: key, Place: at, Value: r.node(it.Value(), at, depth+1)})
	}
	for _, f := range merged {
		if _, own := seen[f.Key]; !own {
			seen[f.Key] = f.Place
			out.Fields = append(out.Fields, f)
		}
	}
}

func keyText(k ast.MapKeyNode) (string, bool) {
	switch k := k.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return k.GetToken().Value, true
	}
	return "", false
}

// Truth reads a truth value of a file.
func (n *Node) Truth() (value, ok bool) {
	if n == nil || n.Kind != TextNode || !n.Bare {
		return false, false
	}
	switch n.Text {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

// what names a node for a message.
func (n *Node) what() string {
	if n == nil {
		return NullNode.String()
	}
	return fmt.Sprint(n.Kind)
}
