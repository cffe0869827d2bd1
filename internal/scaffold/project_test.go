package scaffold

import (
	"errors"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/wasmloop"
)

func TestAProjectHasAllThatItsBuildNeeds(t *testing.T) {
	t.Parallel()
	for _, from := range Examples() {
		files, err := Project{Name: "mine", From: from}.files()
		if err != nil {
			t.Fatal(err)
		}
		m, err := wasmloop.ParseManifest(files["loop.yaml"])
		if err != nil || m.Name != "mine" {
			t.Errorf("%s: it is called %q, %v", from, m.Name, err)
		}
		if problems := Check(m); len(problems) > 0 {
			t.Errorf("%s: %q", from, problems)
		}
		listed := strings.Fields(string(files["vendor/modules.txt"]))
		for name, text := range files {
			if path.Ext(name) != ".go" {
				continue
			}
			tree, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range tree.Imports {
				pkg, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					t.Fatal(err)
				}
				first, _, _ := strings.Cut(pkg, "/")
				if strings.Contains(first, ".") && (!strings.HasPrefix(pkg, module+"/") || !slices.Contains(listed, pkg)) {
					t.Errorf("%s imports %s, which is not in the project", name, pkg)
				}
			}
			if strings.HasPrefix(name, "vendor/") && strings.HasSuffix(name, "_test.go") {
				t.Errorf("%s is nobody's to run there", name)
			}
		}
		for _, name := range []string{"go.mod", "main.go", "main_test.go", "README.md", ".gitignore", vendorDir + "/LICENSE", vendorDir + "/sdk/loop/guest.go"} {
			if len(files[name]) == 0 {
				t.Errorf("%s: there is no %s", from, name)
			}
		}
	}
}

func TestAProjectIsMadeWholeAndOverNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "deep", "mine")
	if err := Make(dir, Project{Name: "mine"}); err != nil {
		t.Fatal(err)
	}
	main := filepath.Join(dir, "main.go")
	if err := os.WriteFile(main, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Make(dir, Project{Name: "mine"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a project is written over: %v", err)
	}
	if text, err := os.ReadFile(main); err != nil || string(text) != "mine" {
		t.Errorf("%q %v", text, err)
	}
	if err := Make(main, Project{Name: "mine"}); !fault.Is(err, fault.Conflict) {
		t.Errorf("a file is written over: %v", err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Make(empty, Project{Name: "mine"}); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), ".ombud-new-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	for _, p := range []Project{{Name: ""}, {Name: "../up"}, {Name: "Up"}, {Name: "a b"}, {Name: "x", Lang: "cobol"}, {Name: "x", From: "../hello"}, {Name: "x", From: "weather-watch", Lang: AssemblyScript}} {
		to := filepath.Join(t.TempDir(), "x")
		if err := Make(to, p); !fault.Is(err, fault.Invalid) && !fault.Is(err, fault.NotFound) {
			t.Errorf("%+v: %v", p, err)
		}
		if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v leaves something: %v", p, err)
		}
	}
}

// What a project in AssemblyScript is called is the same in all its files.
func TestAProjectInAssemblyScriptHasItsName(t *testing.T) {
	t.Parallel()
	files, err := Project{Name: "mine", Lang: AssemblyScript}.files()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"package.json": `"name": "mine"`, "package-lock.json": `"name": "mine"`, "asconfig.json": `"outFile": "mine.wasm"`, "loop.yaml": "name: mine",
		"assembly/index.ts": "export function run", "assembly/ombud/tools.ts": "export function tool", "README.md": "npm ci",
	} {
		if !strings.Contains(string(files[name]), want) {
			t.Errorf("%s does not have %q", name, want)
		}
	}
	if strings.Contains(string(files["package.json"]), "^") {
		t.Error("the compiler is not pinned")
	}
}
