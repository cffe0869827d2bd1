package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// What is read from a file is bounded: the YAML parser recurses into what it
// nests and a person never needs more.
const (
	maxFile  = 256 << 10
	maxDepth = 32
)

// document is what one file says: the values in it and the names it chose.
type document struct {
	values   []setting
	names    []chosen
	bad      map[string]bool // keys whose value is among the problems
	broken   bool            // the text is no YAML, so what it says is not known
	problems []Problem
}

// chosen is a name a person made up below section.
type chosen struct {
	section, name string
	at            Source
}

// readDocument never panics and never stops at the first problem, except when
// the text is not YAML at all.
func readDocument(name string, data []byte, root *node) *document {
	w := &walker{
		file: name, lines: strings.Split(string(data), "\n"),
		doc: &document{bad: map[string]bool{}},
	}
	if w.doc.broken = !w.readable(data); w.doc.broken {
		return w.doc
	}
	w.secrets()
	body, ok := w.parse(strings.TrimPrefix(string(data), "\ufeff"))
	if w.doc.broken = !ok; ok && body != nil {
		w.section(body, root, place{}, Source{Kind: FromFile, Name: name, Line: 1, Column: 1})
	}
	return w.doc
}

type walker struct {
	file  string
	lines []string
	doc   *document
}

func (w *walker) at(line, column int) Source {
	return Source{Kind: FromFile, Name: w.file, Line: min(max(line, 1), len(w.lines)), Column: max(column, 1)}
}

// position of a node; where says it when the parser left it out.
func (w *walker) position(n ast.Node, where Source) Source {
	switch m := n.(type) {
	case nil:
		return where
	case *ast.MappingNode: // whose own token is the first colon
		if !m.IsFlowStyle && len(m.Values) > 0 {
			return w.position(m.Values[0].Key, where)
		}
	}
	tk := n.GetToken()
	if tk == nil || tk.Position == nil {
		return where
	}
	return w.at(tk.Position.Line, tk.Position.Column)
}

func (w *walker) problem(at Source, key, format string, args ...any) {
	w.doc.problems = append(w.doc.problems, Problem{At: at, Key: key, Msg: fmt.Sprintf(format, args...)})
}

func (w *walker) readable(data []byte) bool {
	if len(data) > maxFile {
		w.problem(w.at(1, 1), "", "the file has more than %d bytes", maxFile)
		return false
	}
	for i, line := range w.lines {
		if !utf8.ValidString(line) {
			w.problem(w.at(i+1, 1), "", "the line is not valid UTF-8")
			return false
		}
		if c := strings.IndexFunc(line, func(r rune) bool { return r < ' ' && r != '\t' && r != '\r' || r == 0x7f }); c >= 0 {
			w.problem(w.at(i+1, 1+utf8.RuneCountInString(line[:c])), "", "the line has a control character")
			return false
		}
	}
	return true
}

// secrets looks at the text itself, so at comments too.
func (w *walker) secrets() {
	for i, line := range w.lines {
		for _, re := range []*regexp.Regexp{secretText, urlPassword, queryPassword} {
			if m := re.FindStringSubmatchIndex(line); m != nil {
				w.problem(w.at(i+1, 1+utf8.RuneCountInString(line[:m[len(m)-2]])), "",
					"this looks like a secret; keep it in an environment variable and write that one's name (api_key_env), for a database use PGPASSFILE or OMBUD_STORE")
				break
			}
		}
	}
}

// parse returns the body of the only document, nil for an empty one.
func (w *walker) parse(text string) (body ast.Node, ok bool) {
	defer func() {
		// The parser is not ours; whatever it stumbles over is not a configuration.
		if r := recover(); r != nil {
			w.problem(w.at(1, 1), "", "the YAML cannot be read: %v", r)
			body, ok = nil, false
		}
	}()
	tokens := lexer.Tokenize(text)
	if at, deep := w.tooDeep(tokens); deep {
		w.problem(at, "", "nested more than %d deep", maxDepth)
		return nil, false
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		w.broken(err)
		return nil, false
	}
	var bodies []ast.Node
	for _, d := range file.Docs {
		if d != nil && d.Body != nil {
			bodies = append(bodies, d.Body)
		}
	}
	switch {
	case len(bodies) == 0:
		return nil, true
	case len(bodies) > 1:
		w.problem(w.position(bodies[1], w.at(1, 1)), "", "a second document starts; write one only")
		return nil, false
	}
	return bodies[0], true
}

// tooDeep bounds nesting before the parser recurses: open brackets, and the
// indicators that nest within one line.
func (w *walker) tooDeep(tokens token.Tokens) (Source, bool) {
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
		if open > maxDepth || inline > maxDepth || open == 0 && tk.Position.Column > 8*maxDepth && tk.Type == token.MappingValueType {
			return w.at(tk.Position.Line, tk.Position.Column), true
		}
	}
	return Source{}, false
}

// broken reports a syntax error with the line it is on.
func (w *walker) broken(err error) {
	p := Problem{At: w.at(1, 1), Msg: "this is not valid YAML"}
	if yerr, ok := errors.AsType[yaml.Error](err); ok {
		p.Msg += ": " + yerr.GetMessage()
		if tk := yerr.GetToken(); tk != nil && tk.Position != nil {
			p.At = w.at(tk.Position.Line, tk.Position.Column)
		}
	}
	p.Excerpt = w.excerpt(p.At)
	w.doc.problems = append(w.doc.problems, p)
}

// excerpt is the line with a mark under the column, without secrets and cut
// where it gets long.
func (w *walker) excerpt(at Source) string {
	const width = 100
	line := []rune(strings.TrimRight(w.lines[at.Line-1], "\r"))
	column := min(at.Column, len(line)+1)
	if from := column - width/2; from > 0 && len(line) > width {
		line, column = line[from:], column-from
	}
	shown := redact(string(line[:min(len(line), width)]))
	lead := fmt.Sprintf("%5d | ", at.Line)
	if strings.Contains(shown, hidden) {
		return lead + shown // the mark would be off
	}
	blank := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, string(line[:min(column-1, len(line))]))
	return lead + shown + "\n      | " + blank + "^"
}

// place is where the walk is: the key so far and the name within it.
type place struct{ path, name string }

// section reads a mapping beside its part of the table.
func (w *walker) section(n ast.Node, at *node, p place, where Source) {
	path := p.path
	if w.unsupported(n, path, where) {
		return
	}
	if _, empty := n.(*ast.NullNode); empty {
		return // a heading whose lines are all commented out
	}
	m, ok := n.(ast.MapNode)
	if !ok {
		what := "the file is a list of keys"
		if path != "" {
			what = "is a heading, its keys go below it"
		}
		w.problem(w.position(n, where), path, "%s, such as %q", what, exampleKey(at))
		return
	}
	seen := map[string]Source{}
	for it := m.MapRange(); it.Next(); {
		pos := w.position(it.Key(), where)
		key, ok := keyText(it.Key())
		if !ok {
			w.problem(pos, path, "this kind of key is not supported; write a plain name")
			continue
		}
		if first, twice := seen[key]; twice {
			w.problem(pos, join(path, key), "is written twice, first in line %d", first.Line)
			continue
		}
		seen[key] = pos
		w.key(it.Value(), at, p, key, pos)
	}
}

func exampleKey(at *node) string {
	if at.order[0] == "*" {
		return "some-name:"
	}
	return at.order[0] + ":"
}

// keyText returns the text of a plain key.
func keyText(k ast.MapKeyNode) (string, bool) {
	switch k := k.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return k.GetToken().Value, true
	}
	return "", false
}

// key reads one key of a section and what is below it.
func (w *walker) key(n ast.Node, at *node, p place, key string, pos Source) {
	next, full := at.children[key], place{join(p.path, key), p.name}
	if wild := at.children["*"]; wild != nil {
		if wrong := nameProblem(at.path, key); wrong != "" {
			w.problem(pos, p.path, "%q %s", key, wrong)
			return
		}
		next, full.name = wild, key
		w.doc.names = append(w.doc.names, chosen{at.path, key, pos})
	}
	switch {
	case next == nil:
		w.unknown(at, p.path, key, pos)
	case next.entry == nil:
		w.section(n, next, full, pos)
	default:
		w.leaf(n, next.entry, full, pos)
	}
}

var priceNameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}/[^\s"]{1,128}$`)

// nameProblem says what is wrong with a name chosen in a section, or "".
func nameProblem(section, name string) string {
	switch {
	case section == "models.prices":
		if !priceNameRE.MatchString(name) {
			return "is not provider/model"
		}
	case !nameRE.MatchString(name):
		return "is not " + nameRule
	case section == "models.providers" && slices.Contains(builtinProviders, name):
		return "is built in and takes no configuration"
	}
	return ""
}

// unknown names the nearest key of the same section, else the place where a key
// of that name does exist.
func (w *walker) unknown(at *node, path, key string, pos Source) {
	p := Problem{At: pos, Msg: fmt.Sprintf("unknown key %q", key), Near: nearest(key, at.order)}
	if path != "" {
		p.Msg += " in " + path
	}
	for _, e := range table() {
		if p.Near == "" && e.path[strings.LastIndex(e.path, ".")+1:] == key {
			p.Near = e.path
		}
	}
	if key == "api_key" {
		p.Near = "api_key_env"
	}
	w.doc.problems = append(w.doc.problems, p)
}

// leaf reads a text or a list of texts.
func (w *walker) leaf(n ast.Node, e *entry, p place, where Source) {
	v := value{at: w.position(n, where)}
	var ok bool
	if seq, list := n.(*ast.SequenceNode); list {
		v.list = true
		v.items, ok = w.list(seq, p.path, v.at)
	} else {
		v.text, ok = w.scalar(n, p.path, where)
	}
	if !ok {
		w.doc.bad[p.path] = true
		return
	}
	w.doc.values = append(w.doc.values, setting{path: p.path, name: p.name, entry: e, value: v})
}

func (w *walker) list(seq *ast.SequenceNode, path string, where Source) ([]item, bool) {
	out := make([]item, 0, len(seq.Values))
	for _, el := range seq.Values {
		s, ok := w.scalar(el, path, where)
		if !ok {
			return nil, false
		}
		out = append(out, item{s, w.position(el, where)})
	}
	return out, true
}

// scalar returns a plain value as it was written, so 1.50 stays "1.50".
func (w *walker) scalar(n ast.Node, path string, where Source) (string, bool) {
	if w.unsupported(n, path, where) {
		return "", false
	}
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	case nil, *ast.NullNode:
		w.problem(where, path, "has no value")
	default:
		w.problem(w.position(n, where), path, "takes a plain text here, not something nested")
	}
	return "", false
}

// unsupported reports what YAML can do and a configuration does not need.
func (w *walker) unsupported(n ast.Node, path string, where Source) bool {
	var what string
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode:
		what = "anchors and aliases"
	case *ast.TagNode:
		what = "tags"
	case *ast.MergeKeyNode, *ast.MappingKeyNode, *ast.DirectiveNode:
		what = "merge keys, complex keys and directives"
	default:
		return false
	}
	w.problem(w.position(n, where), path, "%s are not supported; write the value out", what)
	return true
}
