//go:build harness

package real

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/harness"
)

// programs is the variable with the directories of scripts/install-harness.sh.
const programs = "OMBUD_TEST_HARNESS"

// program returns where a program is, with what stands before its own arguments, and
// all that it reads to run. What is missing fails with CI=true and skips else.
func program(t testing.TB, cli harness.Name) (path string, args0, reads []string) {
	t.Helper()
	find := func(name string) string {
		for _, dir := range filepath.SplitList(os.Getenv(programs)) {
			if real, err := filepath.EvalSymlinks(filepath.Join(dir, "bin", name)); err == nil {
				reads = append(reads, dir)
				return real
			}
		}
		why := string(cli) + " is not in $" + programs + ": make test-harness installs it (HARNESS_ALL=1 for gemini, pi and claude-code-acp)"
		if os.Getenv("CI") == "true" && (os.Getenv("HARNESS_ALL") == "1" || always(cli)) {
			t.Fatal("CI=true: " + why)
		}
		t.Skip(why)
		return ""
	}
	name := string(cli)
	if cli == harness.ACP {
		name = "claude-code-acp" // an agent that is none of those ombud knows
	}
	script := find(name)
	if !strings.HasSuffix(script, ".js") {
		return script, nil, reads
	}
	return find("node"), []string{script}, reads
}

// always tells whether a program belongs to those that are tested in any case.
func always(cli harness.Name) bool {
	return cli == harness.Claude || cli == harness.Codex || cli == harness.OpenCode
}
