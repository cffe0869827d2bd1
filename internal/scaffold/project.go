package scaffold

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ombud-run/ombud"
	"github.com/ombud-run/ombud/internal/fault"
)

// Languages of a project.
const (
	Go             = "go"
	AssemblyScript = "assemblyscript"
)

// Languages are all there are.
func Languages() []string { return []string{Go, AssemblyScript} }

// MinGo is the oldest Go that builds a loop: the first with go:wasmexport.
const MinGo = "1.24"

// Project says what is to be made.
type Project struct {
	Name string
	Lang string // Go if it is empty
	From string // the example it begins as; "hello" if it is empty
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,40}$`)

const (
	examples  = "examples/loops"
	usual     = "hello"
	assembly  = "sdk/assemblyscript"
	module    = "github.com/ombud-run/ombud"
	vendorDir = "vendor/" + module
)

// Examples are the names of those a project can begin as.
func Examples() []string {
	entries, err := fs.ReadDir(ombud.Sources, examples)
	if err != nil {
		return nil // it is part of this program
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// Make writes a project into a directory, which must not be there or be empty. It is
// written whole or not at all.
func Make(dir string, p Project) (err error) {
	files, err := p.files()
	if err != nil {
		return err
	}
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Conflict, "%s is there already and is no empty directory", dir).WithHint("ombud loop new writes over nothing: choose another name, or --dir")
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := os.MkdirAll(parent, 0o755); err != nil { //nolint:gosec // a project is as public as its place
		return fault.New(fault.Unavailable, "make %s: %w", parent, err)
	}
	part, err := os.MkdirTemp(parent, ".ombud-new-*")
	if err != nil {
		return fault.New(fault.Unavailable, "write in %s: %w", parent, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(part)) }() // gone if it has its name
	for name, text := range files {
		to := filepath.Join(part, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(to), 0o755) //nolint:gosec // as above
		if err == nil {
			err = os.WriteFile(to, text, 0o644) //nolint:gosec // as above
		}
		if err != nil {
			return fault.New(fault.Unavailable, "write the project: %w", err)
		}
	}
	if err := os.Chmod(part, 0o755); err != nil { //nolint:gosec // as above
		return fault.New(fault.Unavailable, "write the project: %w", err)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // an empty one
		return fault.New(fault.Unavailable, "write the project: %w", err)
	}
	if err := os.Rename(part, dir); err != nil {
		return fault.New(fault.Unavailable, "write the project: %w", err)
	}
	return nil
}

// files are the files of a project by their paths, with slashes.
func (p Project) files() (map[string][]byte, error) {
	if !nameForm.MatchString(p.Name) {
		return nil, fault.New(fault.Invalid, "a loop cannot be called %q", p.Name).WithHint("use a-z, 0-9 and -, at most 41 of them, and begin with a letter")
	}
	switch p.Lang {
	case "", Go:
		return p.inGo()
	case AssemblyScript:
		if p.From != "" && p.From != usual {
			return nil, fault.New(fault.Invalid, "the example %s is in Go", p.From).WithHint("leave out --lang, or --from")
		}
		return p.inAssemblyScript()
	}
	return nil, fault.New(fault.Invalid, "there is no kit for loops in %q", p.Lang).WithHint("the languages are %s", strings.Join(Languages(), " and "))
}

func (p Project) inGo() (map[string][]byte, error) {
	from := p.From
	if from == "" {
		from = usual
	}
	if !slices.Contains(Examples(), from) {
		return nil, fault.New(fault.NotFound, "there is no example %q", from).WithHint("the examples are %s", strings.Join(Examples(), ", "))
	}
	files := map[string][]byte{}
	if err := copyDir(files, "", path.Join(examples, from), nil); err != nil {
		return nil, err
	}
	for name, text := range files {
		files[name] = p.renamed(from, text)
	}
	for _, pkg := range []string{"sdk/loop", "sdk/loop/looptest", "wasmloop/abi"} {
		if err := copyDir(files, path.Join(vendorDir, pkg), pkg, isTest); err != nil {
			return nil, err
		}
	}
	license, err := fs.ReadFile(ombud.Sources, "LICENSE")
	if err != nil {
		return nil, err
	}
	files[vendorDir+"/LICENSE"] = license
	files["vendor/modules.txt"] = []byte("# " + module + " v0.0.0\n## explicit; go " + MinGo + "\n" +
		module + "/sdk/loop\n" + module + "/sdk/loop/looptest\n" + module + "/wasmloop/abi\n")
	files["go.mod"] = []byte("module " + p.Name + "\n\ngo " + MinGo + "\n\n// The kit is in the vendor directory, as the ombud that made this project had it.\nrequire " +
		module + " v0.0.0\n")
	p.common(files, "go test ./...       # by the test host, without ombud\n", "main.go is the loop, main_test.go its tests")
	return files, nil
}

func (p Project) inAssemblyScript() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, name := range []string{"package.json", "package-lock.json", "asconfig.json", "loop.yaml"} {
		text, err := fs.ReadFile(ombud.Sources, path.Join(assembly, name))
		if err != nil {
			return nil, err
		}
		text = p.renamed(usual, text)
		text = bytes.ReplaceAll(text, []byte(`"name": "`+usual+`"`), []byte(`"name": "`+p.Name+`"`))
		files[name] = bytes.ReplaceAll(text, []byte(usual+".wasm"), []byte(p.Name+".wasm"))
	}
	for _, dir := range []string{"assembly", "assembly/ombud"} {
		if err := copyDir(files, dir, path.Join(assembly, dir), nil); err != nil {
			return nil, err
		}
	}
	p.common(files, "npm ci              # fetches the compiler, once\n", "assembly/index.ts is the loop, assembly/ombud what it can call")
	return files, nil
}

// common adds what every project has.
func (p Project) common(files map[string][]byte, first, what string) {
	files[".gitignore"] = []byte("/*.wasm\n/*.oloop\n/node_modules/\n")
	files["README.md"] = []byte("# " + p.Name + "\n\nA loop for ombud. " + what + ", and loop.yaml says what it may do.\n\n" +
		"    " + first +
		"    ombud loop build    # checks loop.yaml and compiles " + p.Name + ".wasm\n" +
		"    ombud loop sign     # writes " + p.Name + "-VERSION.oloop\n" +
		"    ombud loop install " + p.Name + "-VERSION.oloop\n" +
		"    ombud loop run " + p.Name + " --wait\n")
}

// renamed has a file of an example speak of this project where it speaks of itself.
func (p Project) renamed(from string, text []byte) []byte {
	for _, before := range []string{"name: ", "// Command ", "ombud loop run ", "ombud loop set "} {
		text = bytes.ReplaceAll(text, []byte(before+from), []byte(before+p.Name))
	}
	return text
}

func isTest(name string) bool { return strings.HasSuffix(name, "_test.go") }

// copyDir takes the files of a directory of the sources, but for those that skip says.
func copyDir(files map[string][]byte, to, from string, skip func(string) bool) error {
	entries, err := fs.ReadDir(ombud.Sources, from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || skip != nil && skip(e.Name()) {
			continue
		}
		text, err := fs.ReadFile(ombud.Sources, path.Join(from, e.Name()))
		if err != nil {
			return err
		}
		files[path.Join(to, e.Name())] = text
	}
	return nil
}
