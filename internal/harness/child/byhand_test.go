//go:build unix

package child

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
)

// TestALoginIsKeptWhereRunsLookForIt: by hand a program keeps its login where one that we
// start reads it.
func TestALoginIsKeptWhereRunsLookForIt(t *testing.T) {
	t.Parallel()
	for _, a := range harness.Adapters() {
		l := setup(t)
		args, env, err := ByHand(a.Name, l.state)
		if a.Name == harness.Pi {
			if !fault.Is(err, fault.Unavailable) {
				t.Errorf("pi: %v", err)
			}
			continue
		}
		if err != nil || len(env) != 1 {
			t.Fatalf("%s: %v %v %v", a.Name, args, env, err)
		}
		r, err := l.rooms.open(l.state, a.Name)
		if err != nil {
			t.Fatal(err)
		}
		task := Task{CLI: a.Name, Program: "/bin/true", Prompt: "x", Dir: t.TempDir(), State: l.state, Version: a.Tested[len(a.Tested)-1]}
		p := planOf(&task, r, true)
		if !slices.Contains(p.env, env[0]) {
			t.Errorf("%s is logged in by %s, and run with %s", a.Name, env[0], strings.Join(p.env, " "))
		}
		if _, dir, _ := strings.Cut(env[0], "="); !strings.HasPrefix(dir, filepath.Clean(l.state)+"/") {
			t.Errorf("%s keeps its login in %s", a.Name, dir)
		}
	}
}
