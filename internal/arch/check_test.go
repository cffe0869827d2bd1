package arch

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// house is the source of the module, parsed.
type house struct {
	files    []*source
	packages []string // directories with Go files, sorted
}

// source is one Go file.
type source struct {
	pkg     string // its directory, which is its import path below the module
	name    string // path of the file
	tree    *ast.File
	fset    *token.FileSet
	test    bool // _test.go
	shipped bool // part of a binary we ship
}

func (s *source) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", s.name, s.fset.Position(n.Pos()).Line)
}

// parseHouse reads every Go file below fsys but those the go command leaves out
// too (testdata, names that begin with a dot or an underscore, other modules).
func parseHouse(fsys fs.FS) (*house, error) {
	h := &house{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		hidden := name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_"))
		switch {
		case d.IsDir() && (hidden || base == "testdata" || name != "." && isModule(fsys, name)):
			return fs.SkipDir
		case d.IsDir() || hidden || path.Ext(name) != ".go":
			return nil
		}
		s, err := parseSource(fsys, name)
		if err != nil {
			return err
		}
		h.files = append(h.files, s)
		if !slices.Contains(h.packages, s.pkg) {
			h.packages = append(h.packages, s.pkg)
		}
		return nil
	})
	slices.Sort(h.packages)
	return h, err
}

func isModule(fsys fs.FS, dir string) bool {
	_, err := fs.Stat(fsys, path.Join(dir, "go.mod"))
	return err == nil
}

func parseSource(fsys fs.FS, name string) (*source, error) {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	s := &source{pkg: path.Dir(name), name: name, fset: token.NewFileSet(), test: strings.HasSuffix(name, "_test.go")}
	// Objects are resolved: the check of package variables has to tell a local one apart.
	if s.tree, err = parser.ParseFile(s.fset, name, text, parser.ParseComments); err != nil {
		return nil, err
	}
	f, known := floorOf(s.pkg)
	s.shipped = !s.test && !(known && f == support) && !onlyForCampaign(s.tree)
	return s, nil
}

// onlyForCampaign reports whether a file is built only under the tag failpoint,
// which no release has.
func onlyForCampaign(f *ast.File) bool {
	for _, group := range f.Comments {
		for _, c := range group.List {
			if !constraint.IsGoBuild(c.Text) {
				continue
			}
			expr, err := constraint.Parse(c.Text)
			return err == nil && !expr.Eval(func(tag string) bool { return tag != "failpoint" })
		}
	}
	return false
}

// matches reports whether a package is meant by an entry of the tables.
func matches(pattern, pkg string) bool {
	parent, below := strings.CutSuffix(pattern, "/*")
	if below {
		return path.Dir(pkg) == parent
	}
	return pattern == pkg
}

func floorOf(pkg string) (floor, bool) {
	if f, ok := floors[pkg]; ok {
		return f, true
	}
	f, ok := floors[path.Dir(pkg)+"/*"]
	return f, ok
}

func anyMatches(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, pkg) })
}

// check returns everything in the house that breaks a rule, one line each.
func check(h *house) []string {
	var bad []string
	report := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	for _, pkg := range h.packages {
		if _, ok := floorOf(pkg); !ok {
			report("%s: not in the table: give it a floor in internal/arch/table_test.go", pkg)
		}
	}
	untyped := 0
	for _, s := range h.files {
		checkImports(s, report)
		checkNames(s, report)
		checkOutgoing(s, report)
		if s.shipped {
			checkInit(s, report)
			if untypedAllowed[s.pkg] == "" {
				untyped += countUntyped(s.tree)
			}
		}
	}
	if untyped > maxUntyped {
		report("map[string]any is used %d times, more than %d: give the domain types", untyped, maxUntyped)
	}
	checkVariables(h, report)
	checkDocs(h, report)
	return bad
}

type reporter func(format string, args ...any)

func checkImports(s *source, report reporter) {
	for _, spec := range s.tree.Imports {
		to, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			report("%s: %v", s.at(spec), err)
			continue
		}
		for _, o := range owned {
			if (s.shipped || o.everywhere) && importMatches(o.path, to) && !anyMatches(o.by, s.pkg) {
				report("%s: imports %s: %s", s.at(spec), to, o.why)
			}
		}
		if !s.shipped {
			continue
		}
		if slices.Contains(pure, s.pkg) && slices.Contains(impure, to) {
			report("%s: imports %s, but %s decides from its input alone", s.at(spec), to, s.pkg)
		}
		if local, ok := strings.CutPrefix(to, module+"/"); ok {
			checkFloor(s, spec, local, report)
		}
	}
}

// importMatches: an entry stands for itself and what is under it.
func importMatches(entry, imported string) bool {
	return imported == strings.TrimSuffix(entry, "/") ||
		entry != "log" && entry != "testing" && strings.HasPrefix(imported, strings.TrimSuffix(entry, "/")+"/")
}

func checkFloor(s *source, spec ast.Node, to string, report reporter) {
	from, ok1 := floorOf(s.pkg)
	below, ok2 := floorOf(to)
	if !ok1 || !ok2 {
		return // reported once, as not in the table
	}
	allowed := slices.ContainsFunc(sameFloor, func(e edge) bool { return matches(e.from, s.pkg) && matches(e.to, to) })
	switch {
	case below == support:
		report("%s: %s is for tests and is imported by shipped code", s.at(spec), to)
	case below > from:
		report("%s: %s imports %s from a floor above its own", s.at(spec), s.pkg, to)
	case below == from && !allowed:
		report("%s: %s imports %s on its own floor, and the table has no such edge", s.at(spec), s.pkg, to)
	}
}

// checkNames looks for the functions and types that only some may use.
func checkNames(s *source, report reporter) { checkOwned(s, ownedNames, report) }

func checkOwned(s *source, names []ownedUse, report reporter) {
	imports := map[string]string{} // local name → path
	for _, spec := range s.tree.Imports {
		to, _ := strconv.Unquote(spec.Path.Value) // checkImports reports the error
		name := path.Base(to)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imports[name] = to
	}
	ast.Inspect(s.tree, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok || x.Obj != nil { // a local thing of the same name
			return true
		}
		for _, u := range names {
			if imports[x.Name] != u.pkg || sel.Sel.Name != u.name {
				continue
			}
			inTests := u.pkg == "time"
			if (s.shipped || s.test && inTests) && !anyMatches(u.by, s.pkg) {
				report("%s: uses %s.%s: %s", s.at(sel), x.Name, u.name, u.why)
			}
		}
		return true
	})
}

func checkInit(s *source, report reporter) {
	for _, decl := range s.tree.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			report("%s: has an init function: pass the value in instead", s.at(f))
		}
	}
}

func countUntyped(f *ast.File) (n int) {
	ast.Inspect(f, func(node ast.Node) bool {
		m, ok := node.(*ast.MapType)
		if !ok {
			return true
		}
		key, ok := m.Key.(*ast.Ident)
		if !ok || key.Name != "string" {
			return true
		}
		switch v := m.Value.(type) {
		case *ast.Ident:
			if v.Name == "any" {
				n++
			}
		case *ast.InterfaceType:
			if v.Methods.NumFields() == 0 {
				n++
			}
		}
		return true
	})
	return n
}

// checkVariables refuses package variables that change: their tables are written
// once, where they are declared, and locks have nothing to guard.
func checkVariables(h *house, report reporter) {
	vars := map[string]map[string]bool{} // package → its variables
	for _, s := range h.files {
		if !s.shipped || stateAllowed[s.pkg] != "" {
			continue
		}
		if vars[s.pkg] == nil {
			vars[s.pkg] = map[string]bool{}
		}
		for _, decl := range s.tree.Decls {
			g, ok := decl.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				for _, name := range v.Names {
					vars[s.pkg][name.Name] = true
				}
				if t := stateful(v.Type); t != "" {
					report("%s: package variable of type %s: state belongs to a value that is passed in", s.at(v), t)
				}
			}
		}
	}
	for _, s := range h.files {
		if s.shipped {
			checkAssignments(s, vars[s.pkg], report)
		}
	}
}

// stateful names the type of a variable that is there to change: a lock, an
// atomic, a map or a channel made empty.
func stateful(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.SelectorExpr:
		if x, ok := t.X.(*ast.Ident); ok && (x.Name == "sync" || x.Name == "atomic") {
			return x.Name + "." + t.Sel.Name
		}
	case *ast.IndexExpr:
		return stateful(t.X)
	case *ast.StructType:
		for _, f := range t.Fields.List {
			if s := stateful(f.Type); s != "" {
				return s
			}
		}
	case *ast.ChanType:
		return "chan"
	}
	return ""
}

func checkAssignments(s *source, vars map[string]bool, report reporter) {
	changed := func(e ast.Expr) {
		id := root(e)
		if id == nil || !vars[id.Name] || id.Name == "_" {
			return
		}
		if id.Obj != nil { // resolved in this file: is it the package's, or a local one?
			if _, ok := id.Obj.Decl.(*ast.ValueSpec); !ok || s.tree.Scope.Lookup(id.Name) != id.Obj {
				return
			}
		}
		report("%s: changes the package variable %s: state belongs to a value that is passed in", s.at(e), id.Name)
	}
	ast.Inspect(s.tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, l := range n.Lhs {
					changed(l)
				}
			}
		case *ast.IncDecStmt:
			changed(n.X)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				changed(n.X)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear") && len(n.Args) > 0 {
				changed(n.Args[0])
			}
		}
		return true
	})
}

// root is the variable an assignable expression starts from, nil if it starts
// from something else (a call, a pointer that was returned).
func root(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		default:
			return nil
		}
	}
}

// checkDocs wants one sentence on every package: one that is hard to write means
// that the package is cut wrong.
func checkDocs(h *house, report reporter) {
	documented := map[string]bool{}
	for _, s := range h.files {
		if s.tree.Doc != nil && !s.test {
			documented[s.pkg] = true
		}
	}
	for _, pkg := range h.packages {
		onlyTests := !slices.ContainsFunc(h.files, func(s *source) bool { return s.pkg == pkg && !s.test })
		if !documented[pkg] && !onlyTests {
			report("%s: has no package comment", pkg)
		}
	}
}
