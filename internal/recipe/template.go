package recipe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/ombud-run/ombud/internal/fault"
)

// maxText bounds what a template renders.
const maxText = 256 << 10

// use says what a rendered text is for, and so what becomes of the values in it.
type use uint8

const (
	asText   use = iota // they stand as they are
	asPrompt            // those of others are fenced, for a model reads them
	asURL               // they are escaped, but for one that begins the address
	asHeader            // they are one line, and name no secret
)

// Template is a text with values in it. Only a text with "{{" is one; others render
// as they are.
type Template struct {
	src     string
	file    string
	at      Place
	lines   bool // a line of it is a line of the file
	use     use
	foreign bool
	tmpl    *template.Template // nil: plain
	names   []string           // what it refers to, outermost
	whole   bool               // all there is can come out of it
	lone    bool               // it is one value and nothing else
}

// String is the text as it was written.
func (t *Template) String() string {
	if t == nil {
		return ""
	}
	return t.src
}

// Plain reports whether no value is in it.
func (t *Template) Plain() bool { return t.tmpl == nil }

// Names are the outermost names it refers to.
func (t *Template) Names() []string { return t.names }

// ForeignTemplate reads a text of a step by the rules of another format: what is missing is
// empty, whatever it is called. Problems are noted, and the template is then nil.
func ForeignTemplate(n *Node, verb, key string, notes *Notes) *Template {
	u := asText
	if v := verbOf(verb); v != nil {
		if a := v.arg(key); a != nil {
			u = a.use
		}
	}
	if key == "header" {
		u = asHeader
	}
	return newTemplate(n, u, true, nil, notes)
}

// newTemplate reads a text. Problems are noted, and the template is then nil. known is
// what can be referred to; nil leaves that unchecked.
func newTemplate(n *Node, use use, foreign bool, known *shape, notes *Notes) *Template {
	t := &Template{src: n.Text, file: notes.File, at: n.Place, lines: n.Lines, use: use, foreign: foreign}
	if !strings.Contains(t.src, "{{") {
		return t
	}
	funcs := template.FuncMap{"_out": func(string, any) (any, error) { return nil, nil }, "_first": func(string, any) (any, error) { return nil, nil }}
	maps.Copy(funcs, functions)
	tmpl := template.New("text").Funcs(funcs)
	if foreign {
		tmpl.Option("missingkey=zero")
	} else {
		tmpl.Option("missingkey=error")
	}
	src := t.src
	if use == asHeader { // the place of a secret is kept for whoever sends the request
		src = secretPlace.ReplaceAllString(src, "{{`$0`}}")
	}
	tmpl, err := tmpl.Parse(src)
	if err != nil {
		line, msg := parseFault(err)
		at := t.at
		if t.lines {
			at = Place{t.at.Line + line, 0}
		}
		notes.Bad(at, "", "the template cannot be read: %s", msg)
		return nil
	}
	t.tmpl = tmpl
	w := &templateWalk{t: t, notes: notes, known: known}
	for _, each := range tmpl.Templates() {
		if each.Tree != nil && each.Root != nil {
			w.names(each.Root)
		}
	}
	t.names, w.whole = w.roots, len(tmpl.Templates()) > 1
	for _, each := range tmpl.Templates() {
		if each.Tree == nil || each.Root == nil {
			continue
		}
		if !foreign && each.Name() != "text" {
			notes.Bad(t.at, "write the text where it is used", "a template cannot define others")
			return nil
		}
		dot := scopeOf{known: known, root: true}
		if w.part = each.Name() != "text"; w.part {
			dot = scopeOf{roots: []string{everything}} // whatever it is used with
		}
		w.list(each.Root, dot, !w.part)
	}
	t.whole = w.whole
	if w.bad {
		return nil
	}
	if root := tmpl.Root; root != nil && len(root.Nodes) == 1 && root.Nodes[0].Type() == parse.NodeAction {
		t.lone = true
	}
	return t
}

var secretPlace = regexp.MustCompile(`\{\{\s*secret:[A-Za-z0-9._-]+\s*\}\}`)

var parseFaultText = regexp.MustCompile(`(?s)^template: text:(\d+)(?::\d+)?: (.*)$`)

func parseFault(err error) (line int, msg string) {
	m := parseFaultText.FindStringSubmatch(err.Error())
	if m == nil {
		return 1, err.Error()
	}
	line, _ = strconv.Atoi(m[1])
	return line, m[2]
}

// Place is where byte pos of the text stands in the file, as well as can be told.
func (t *Template) place(pos parse.Pos) Place {
	before := t.src[:min(int(pos), len(t.src))]
	if t.lines {
		return Place{t.at.Line + 1 + strings.Count(before, "\n"), 0}
	}
	return t.at
}

// scopeOf is what a dot stands for at a place in a template.
type scopeOf struct {
	known *shape   // nil: it is not known
	root  bool     // the dot is the whole
	roots []string // what the dot came from, if it is not
}

// templateWalk checks a template and marks the places where values come out of it.
type templateWalk struct {
	t      *Template
	notes  *Notes
	known  *shape
	roots  []string
	whole  bool // all there is was handed on, so it may be in a variable
	part   bool // the text is one that another uses, so $ is not known
	ranges int
	bad    bool
}

// everything stands for every name there is.
const everything = "*"

func (w *templateWalk) fail(n parse.Node, fix, format string, args ...any) {
	w.bad = true
	w.notes.Bad(w.t.place(n.Position()), fix, format, args...)
}

// names collects every outermost name.
func (w *templateWalk) names(n parse.Node) {
	eachNode(n, func(n parse.Node) {
		switch n := n.(type) {
		case *parse.FieldNode:
			w.addName(n.Ident[0])
		case *parse.VariableNode:
			if n.Ident[0] == "$" && len(n.Ident) > 1 {
				w.addName(n.Ident[1])
			}
		}
	})
}

func (w *templateWalk) addName(name string) {
	if !slices.Contains(w.roots, name) {
		w.roots = append(w.roots, name)
	}
}

// eachNode calls fn for n and all below it.
func eachNode(n parse.Node, fn func(parse.Node)) {
	branch := func(b *parse.BranchNode) {
		eachNode(b.Pipe, fn)
		eachNode(b.List, fn)
		if b.ElseList != nil {
			eachNode(b.ElseList, fn)
		}
	}
	fn(n)
	switch n := n.(type) {
	case *parse.ListNode:
		for _, c := range n.Nodes {
			eachNode(c, fn)
		}
	case *parse.ActionNode:
		eachNode(n.Pipe, fn)
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			eachNode(c, fn)
		}
	case *parse.CommandNode:
		for _, c := range n.Args {
			eachNode(c, fn)
		}
	case *parse.ChainNode:
		eachNode(n.Node, fn)
	case *parse.IfNode:
		branch(&n.BranchNode)
	case *parse.WithNode:
		branch(&n.BranchNode)
	case *parse.RangeNode:
		branch(&n.BranchNode)
	case *parse.TemplateNode:
		if n.Pipe != nil {
			eachNode(n.Pipe, fn)
		}
	}
}

// list checks a row of nodes. begins says that nothing of the text comes before it.
func (w *templateWalk) list(l *parse.ListNode, dot scopeOf, begins bool) {
	if l == nil {
		return
	}
	for i, n := range l.Nodes {
		first := begins && i == 0
		switch n := n.(type) {
		case *parse.ActionNode:
			roots, _ := w.pipe(n.Pipe, dot)
			if len(n.Pipe.Decl) == 0 {
				w.mark(n, roots, first)
			}
		case *parse.IfNode:
			w.pipe(n.Pipe, dot)
			w.list(n.List, dot, first)
			w.list(n.ElseList, dot, first)
		case *parse.WithNode:
			roots, s := w.pipe(n.Pipe, dot)
			w.list(n.List, scopeOf{known: s, roots: roots}, first)
			w.list(n.ElseList, dot, first)
		case *parse.RangeNode:
			w.rangeOver(n, dot)
		}
	}
}

// rangeOver bounds what a template can be made to do: it ends when its lists do.
func (w *templateWalk) rangeOver(n *parse.RangeNode, dot scopeOf) {
	if w.ranges++; w.ranges > 2 {
		w.fail(n, "", "ranges are nested more than two deep")
	}
	eachNode(n.Pipe, func(p parse.Node) {
		if num, ok := p.(*parse.NumberNode); ok && len(n.Pipe.Cmds) == 1 && len(n.Pipe.Cmds[0].Args) == 1 {
			w.fail(num, "", "range counts to a number; it takes a list")
		}
	})
	roots, s := w.pipe(n.Pipe, dot)
	w.list(n.List, scopeOf{known: s.element(), roots: roots}, false)
	w.list(n.ElseList, dot, false)
	w.ranges--
}

// pipe checks what a pipeline refers to, and returns from which names its value comes
// and what is known of it.
func (w *templateWalk) pipe(p *parse.PipeNode, dot scopeOf) (roots []string, s *shape) {
	add := func(more ...string) { roots = append(roots, more...) }
	for _, c := range p.Cmds {
		var last *shape
		for _, arg := range c.Args {
			last = w.argument(arg, dot, add)
		}
		if len(p.Cmds) == 1 && len(c.Args) == 1 {
			s = last
		}
	}
	return roots, s
}

func (w *templateWalk) argument(arg parse.Node, dot scopeOf, add func(...string)) *shape {
	switch arg := arg.(type) {
	case *parse.FieldNode:
		if dot.root {
			add(arg.Ident[0])
		} else {
			add(dot.roots...)
		}
		return w.path(arg, dot.known, arg.Ident, dot.root)
	case *parse.DotNode:
		if dot.root {
			w.whole = true
			add(everything)
		} else {
			add(dot.roots...)
		}
		return dot.known
	case *parse.VariableNode:
		switch {
		case arg.Ident[0] != "$" && !w.whole:
			add(w.roots...)
			return nil
		case arg.Ident[0] != "$" || w.part:
			add(everything)
			return nil
		case len(arg.Ident) == 1:
			w.whole = true
			add(everything)
			return w.known
		}
		add(arg.Ident[1])
		return w.path(arg, w.known, arg.Ident[1:], true)
	case *parse.PipeNode:
		more, s := w.pipe(arg, dot)
		add(more...)
		return s
	case *parse.ChainNode:
		s := w.argument(arg.Node, dot, add)
		return w.path(arg, s, arg.Field, false)
	}
	return nil
}

// path follows names into what is known.
func (w *templateWalk) path(n parse.Node, s *shape, names []string, root bool) *shape {
	for i, name := range names {
		if s == nil || s.open && s.fields[name] == nil {
			return nil
		}
		next := s.fields[name]
		if next == nil {
			whole := "." + strings.Join(names[:i+1], ".")
			switch {
			case s.text:
				w.fail(n, "", "%s: what it is taken from is a text and has no parts", whole)
			case root && i == 0 && s.later[name] > w.t.at.Line:
				w.fail(n, "move the step up", "%s is used before it is there: the step that makes it stands in line %d", whole, s.later[name])
			default:
				w.fail(n, nearFix(name, s.names()), "%s: there is no %q here", whole, name)
			}
			return nil
		}
		s = next
	}
	return s
}

// escapers end a pipeline that says itself what becomes of its value.
var escapers = map[string]bool{"urlquery": true}

// mark makes what comes out of an action pass _out, or _first at the very beginning.
func (w *templateWalk) mark(n *parse.ActionNode, roots []string, first bool) {
	last := n.Pipe.Cmds[len(n.Pipe.Cmds)-1]
	if id, ok := last.Args[0].(*parse.IdentifierNode); ok && escapers[id.Ident] && w.t.use == asURL {
		return
	}
	name := "_out"
	if first {
		name = "_first"
	}
	call := &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos}
	text := strings.Join(roots, ",")
	call.Args = []parse.Node{
		parse.NewIdentifier(name).SetPos(n.Pos).SetTree(w.t.tmpl.Tree),
		&parse.StringNode{NodeType: parse.NodeString, Pos: n.Pos, Quoted: strconv.Quote(text), Text: text},
	}
	n.Pipe.Cmds = append(n.Pipe.Cmds, call)
}

// Render writes the text with the values of v.
func (t *Template) render(v *values) (string, error) {
	if t == nil {
		return "", nil
	}
	if t.Plain() {
		return t.src, nil
	}
	tmpl, err := t.tmpl.Clone()
	if err != nil {
		return "", fault.New(fault.Internal, "a template: %w", err)
	}
	out := func(first bool) func(string, any) (any, error) {
		return func(roots string, x any) (any, error) { return t.value(v, roots, x, first) }
	}
	tmpl.Funcs(template.FuncMap{"_out": out(false), "_first": out(true)})
	var b bounded
	err = tmpl.Execute(&b, v.data())
	if err != nil {
		return "", t.failed(err)
	}
	return b.String(), nil
}

// value is what becomes of a value on its way into the text.
func (t *Template) value(v *values, roots string, x any, first bool) (any, error) {
	if x == nil {
		if t.foreign {
			return nil, nil
		}
		return nil, errors.New("it has no value")
	}
	if t.foreign && (t.use == asText || t.use == asURL) {
		return x, nil
	}
	text := show(x, t.foreign)
	switch t.use {
	case asHeader:
		if strings.ContainsAny(text, "\r\n\x00") {
			return nil, errors.New("it has more than one line, and a header has one")
		}
		if roots != "" && strings.Contains(text, "{{") {
			return nil, errors.New("it has {{ in it, which in a header stands for a secret")
		}
	case asPrompt:
		return v.fence(roots, text), nil
	case asURL:
		if first {
			return text, nil
		}
		return url.QueryEscape(text), nil
	}
	return text, nil
}

// show writes a value as text: what has parts, and a fraction, as JSON.
func show(x any, foreign bool) string {
	switch x := x.(type) {
	case string:
		return x
	case object, []any, float64:
		if foreign {
			return fmt.Sprint(x)
		}
		raw, err := json.Marshal(x)
		if err == nil {
			return string(raw)
		}
	}
	return fmt.Sprint(x)
}

// raw is the value of a template that is one value and nothing else.
func (t *Template) raw(v *values) (x any, ok bool, err error) {
	if !t.lone {
		return nil, false, nil
	}
	tmpl, err := t.tmpl.Clone()
	if err != nil {
		return nil, false, fault.New(fault.Internal, "a template: %w", err)
	}
	take := func(_ string, got any) (any, error) { x, ok = got, true; return "", nil }
	tmpl.Funcs(template.FuncMap{"_out": take, "_first": take})
	var b bounded
	if err := tmpl.Execute(&b, v.data()); err != nil {
		return nil, false, t.failed(err)
	}
	return x, ok, nil
}

var executeFault = regexp.MustCompile(`(?s)^template: text:(\d+):(\d+): executing "[^"]*" at <(.*?)>: (.*)$`)

// failed is an error of rendering, with its place in the file.
func (t *Template) failed(err error) error {
	p := Problem{File: t.file, Place: t.at, Msg: err.Error()}
	if m := executeFault.FindStringSubmatch(err.Error()); m != nil {
		line, _ := strconv.Atoi(m[1])
		if t.lines {
			p.Place = Place{t.at.Line + line, 0}
		}
		msg := m[4]
		if i := strings.LastIndex(msg, ": "); strings.HasPrefix(msg, "error calling _") && i >= 0 {
			msg = msg[i+2:]
		}
		if strings.HasPrefix(msg, "map has no entry for key") {
			msg = "there is nothing of that name"
			p.Fix = `write {{ get .payload "name" "what else" }} for what may be missing`
		}
		what := m[3]
		if strings.HasPrefix(what, "_") { // what was added to it
			what = clip(strings.Join(strings.Fields(t.src), " "))
		}
		p.Msg = fmt.Sprintf("the value %s: %s", what, msg)
	}
	return fault.New(fault.Invalid, "%s", p)
}

// bounded is a buffer that refuses to grow beyond maxText.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxText {
		return 0, fmt.Errorf("the text would have more than %d bytes", maxText)
	}
	return b.Buffer.Write(p)
}
