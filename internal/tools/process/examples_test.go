//go:build unix

package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/scope"
)

// python is a Python the system has, which a confined program can run; one of a
// version manager is in somebody's home.
func python(t testing.TB) string {
	t.Helper()
	for _, path := range []string{"/usr/bin/python3", "/usr/local/bin/python3"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	path, err := exec.LookPath("python3")
	switch {
	case err == nil:
		return path
	case os.Getenv("CI") == "true":
		t.Fatal("python3 is needed in CI: scripts/setup-tests.sh installs it")
	}
	t.Skip("there is no python3")
	return ""
}

func example(t testing.TB, path string) string {
	t.Helper()
	whole, err := filepath.Abs(filepath.Join("..", "..", "..", "examples", path))
	if err == nil {
		_, err = os.Stat(whole)
	}
	if err != nil {
		t.Fatal(err)
	}
	return whole
}

// goExample builds the example in Go.
func goExample(t testing.TB) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "digest")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".")
	build.Dir = example(t, "tool-go")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

func TestTheExamplesWork(t *testing.T) {
	t.Parallel()
	s := setup(t, dbtest.SQLite(t), quick())
	s.add(Spec{
		Name: "words", Command: []string{python(t), example(t, "tool-python/words.py")}, Scopes: []Bound{{Scope: scope.Must("tool:words.*")}},
		Reads: []string{"count"},
	})
	s.until("ready", func(i Info) bool { return i.State == Ready })
	if got := s.says("words.count", `{"text":"one twö three"}`); got != `{"words": 3, "characters": 13}` {
		t.Error(got)
	}
	s.add(Spec{Name: "digest", Command: []string{goExample(t)}, Scopes: []Bound{{Tool: "sum", Scope: scope.Must("tool:digest.sum")}}})
	s.until("ready", func(i Info) bool { return i.Spec.Name == "digest" && i.State == Ready })
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	if got := s.says("digest.sum", `{"text":"abc"}`); got != abc {
		t.Error(got)
	}
}
