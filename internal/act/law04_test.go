package act

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/tool"
)

const toolPath = "github.com/ombud-run/ombud/internal/tool"

// TestLaw04 (one way to act): a handler is reached through tool.Invoker alone, and
// nobody but act and the roof that makes it can get hold of one.
func TestLaw04(t *testing.T) {
	t.Parallel()
	a := New(Deps{Invoker: &tool.Invoker{}})
	if a.Invoker != nil {
		t.Error("whoever holds an Act can reach its Invoker")
	}
	for _, holder := range []reflect.Type{reflect.TypeFor[tool.Registry](), reflect.TypeFor[tool.Definition]()} {
		for _, typ := range []reflect.Type{holder, reflect.PointerTo(holder)} {
			for i := range typ.NumMethod() {
				m := typ.Method(i)
				for o := range m.Type.NumOut() {
					if out := m.Type.Out(o); out == reflect.TypeFor[tool.Handler]() || out == reflect.TypeFor[*tool.Invoker]() {
						t.Errorf("%s.%s hands out a way to a handler", typ, m.Name)
					}
				}
			}
		}
	}
	seen := 0
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		dir := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), root+string(filepath.Separator)))
		if slices.Contains([]string{"internal/act", "internal/daemon", "internal/tool"}, dir) {
			seen++
			return nil
		}
		for _, at := range reaches(t, path) {
			t.Errorf("%s: names a way to the handlers of tools", at)
		}
		return nil
	})
	if err != nil || seen == 0 {
		t.Errorf("looked at %d files of act: %v", seen, err)
	}
	for source, want := range map[string]int{
		"package x\nimport \"" + toolPath + "\"\nfunc f(i *tool.Invoker) {}":                1,
		"package x\nimport t \"" + toolPath + "\"\nvar _, _ = t.NewRegistry(nil)":           1,
		"package x\nfunc f(a *act.Act) { a.Invoker.Call(nil, \"\", nil) }":                  1,
		"package x\nimport \"" + toolPath + "\"\nfunc f(r *tool.Registry) { r.Get(\"x\") }": 0,
	} {
		if got := len(reachesIn(t, "x.go", source)); got != want {
			t.Errorf("%q: found %d, want %d", source, got, want)
		}
	}
}

func reaches(t *testing.T, path string) []string { return reachesIn(t, path, nil) }

// reachesIn lists where a file names the Invoker or its constructor.
func reachesIn(t *testing.T, path string, source any) (out []string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, im := range file.Imports {
		if strings.Trim(im.Path.Value, `"`) != toolPath {
			continue
		}
		names["tool"] = true
		if im.Name != nil {
			names[im.Name.Name] = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, _ := sel.X.(*ast.Ident)
		made := x != nil && names[x.Name] && (sel.Sel.Name == "NewRegistry" || sel.Sel.Name == "Invoker")
		if made || sel.Sel.Name == "Invoker" && !(x != nil && names[x.Name]) {
			out = append(out, set.Position(sel.Pos()).String())
		}
		return true
	})
	return out
}
