package recipe

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// What is ejected compiles against the kit, for every verb and for what KARMAX's format
// leaves out.
func TestWhatIsEjectedCompiles(t *testing.T) {
	t.Parallel()
	every, err := os.ReadFile("testdata/every.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := []*Recipe{read(t, string(every))}
	for _, name := range Examples() {
		text, err := Example(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, read(t, string(text)))
	}
	var dirs []string
	for _, r := range all {
		code, err := r.Eject()
		if err != nil {
			t.Fatalf("%s: %v", r.Name, err)
		}
		dir, err := os.MkdirTemp("testdata", "ejected-") // below internal, and no package of ./...
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		})
		if err := os.WriteFile(filepath.Join(dir, "x.go"), code, 0o600); err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, "./"+dir)
	}
	out, err := exec.Command("go", append([]string{"vet"}, dirs...)...).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
