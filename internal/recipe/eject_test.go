package recipe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// What the head of a recipe says of its values holds for the loop too.
func TestWhatIsEjectedHasTheInputsAndTheZone(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/every.yaml")
	if err != nil {
		t.Fatal(err)
	}
	code, err := read(t, string(text)).Eject()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{Name: "city", Type: "text", Required: false, Default: []byte("\"Oslo\"")}`, `{Name: "count", Type: "number", Required: false}`,
		`{Schedule: &recipe.Schedule{Zone: "Europe/Stockholm"}}`, `Name: "left", Binds: []string{"text"}`,
	} {
		if !strings.Contains(string(code), want) {
			t.Errorf("nothing says %s in\n%s", want, code)
		}
	}
}

// Both ways of a condition can give one name.
func TestWhatIsEjectedKeepsAResultThatElseCouldGiveToo(t *testing.T) {
	t.Parallel()
	code, err := read(t, of("  - when: \"yes\"\n    ask: x\n    as: r\n    else:\n      - ask: y\n        as: r\n      - ask: z\n        as: s\n")).Eject()
	if err != nil {
		t.Fatal(err)
	}
	done, _, _ := strings.Cut(string(code), "} else {")
	if strings.Contains(done, `n.Set("r", "", "")`) || !strings.Contains(done, `n.Set("s", "", "")`) {
		t.Errorf("%s", code)
	}
}

func TestABranchThatDidNotComeFarHasEmptyNamesInALoopToo(t *testing.T) {
	t.Parallel()
	r := &Recipe{Name: "a", File: "a"}
	v, err := r.begin(nil, start(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	n := &Names{r: r, v: v, k: newKit(r)}
	made, err := n.Side(t.Context(), "0-parallel", "all-settled", 0,
		Line{Name: "good", Binds: []string{"x"}, Do: func(_ context.Context, n *Names) error { n.Set("x", "there", ""); return nil }},
		Line{Name: "bad", Binds: []string{"x"}, Do: func(context.Context, *Names) error { return errors.New("broken") }})
	n.Set("both", made, "parallel")
	if got := n.Text("{{ .both.good.x }}, {{ .both.bad.x }}, {{ .both.bad.state }}"); err != nil || n.Err() != nil || got != "there, , failed" {
		t.Error(fmt.Sprint(err, n.Err()), got)
	}
}
