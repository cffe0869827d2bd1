package delegate

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db/dbtest"
)

// goEnv is what the go command says of its environment.
func goEnv(t testing.TB, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// sums are the lines of our own go.sum about a module.
func sums(t testing.TB, module string) (lines, version string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if parts := strings.Fields(line); parts[0] == module {
			lines += line
			version = strings.TrimSuffix(parts[1], "/go.mod")
		}
	}
	return lines, version
}

// TestChecksReadWhatToolchainsHaveDownloaded, change nothing of it, and say what they have no
// network for.
func TestChecksReadWhatToolchainsHaveDownloaded(t *testing.T) {
	t.Parallel()
	cache := goEnv(t, "GOMODCACHE")
	cargo := t.TempDir()
	write(t, cargo, "credentials.toml", "token")
	write(t, cargo, "config.toml", "")
	h := open(t, dbtest.SQLite(t), func(c *Config) {
		c.Shell, c.Path = "/bin/sh", filepath.Join(goEnv(t, "GOROOT"), "bin")+":/usr/bin:/bin"
		c.Caches = []Cache{{"GOMODCACHE", cache}, {"CARGO_HOME", cargo}}
	})
	launcher, err := confine.New(confine.Options{Enforce: confine.EnforceBest})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(launcher.Close)
	h.deps.Launcher = launcher
	walls := launcher.Report().Confined
	const module = "github.com/google/uuid"
	lines, version := sums(t, module)
	dir := h.cfg.Workspace
	write(t, dir, "go.mod", "module example.com/x\n\ngo 1.24\n\nrequire "+module+" "+version+"\n")
	write(t, dir, "go.sum", lines)
	write(t, dir, "x.go", "package x\n\nimport _ \""+module+"\"\n")
	repo(t, dir)
	h.stage.play(answers("built", 10))
	res := h.call(CallTool, callInput{Prompt: "x", Harness: "claude", Write: true, Checks: []string{
		"go list -deps ./... | grep -x " + module, "go get example.com/not/there@v1.0.0", "touch \"$GOMODCACHE/ours\"", "cat \"$CARGO_HOME\"/*", "test -w \"$HOME\"",
	}})
	_, rep := h.last()
	if res.Status != act.OK || len(rep.Checks) != 5 {
		t.Fatalf("%+v", res)
	}
	if c := rep.Checks[0]; !c.OK {
		t.Errorf("a module that is there: %+v", c)
	}
	if c := rep.Checks[1]; c.OK || len(rep.Notes) != 1 || !strings.Contains(rep.Notes[0], "want of a network") || !strings.Contains(rep.Notes[0], "not/there") {
		t.Errorf("one that is not: %+v, %q", c, rep.Notes)
	}
	if c := rep.Checks[4]; !c.OK {
		t.Errorf("its home: %+v", c)
	}
	if !walls || runtime.GOOS != "linux" {
		if err := os.Remove(filepath.Join(cache, "ours")); err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
		return // nothing holds a program here
	}
	if c := rep.Checks[2]; c.OK {
		t.Errorf("it wrote to the cache: %+v", c)
	}
	if c := rep.Checks[3]; strings.Contains(c.Output, "token") {
		t.Errorf("it read a credential: %+v", c)
	}
}
