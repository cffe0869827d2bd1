package child

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ombud-run/ombud/internal/harness"
)

// TestWhatARunPlantedIsGone: an agent may change the shared directories of its CLI,
// and must not decide by that what the next run does, nor where we write.
func TestWhatARunPlantedIsGone(t *testing.T) {
	t.Parallel()
	state, elsewhere := t.TempDir(), t.TempDir()
	put := func(dir string, names ...string) {
		t.Helper()
		for _, name := range names {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	there := func(path string) bool { _, err := os.Lstat(path); return err == nil }
	put(state, "codex/config.toml", "codex/rules/default.rules", "codex/sessions/one.jsonl", "codex/auth.json", "run/old/mcp.json")
	put(elsewhere, "config.toml", "run_of_somebody/file")
	var all rooms
	open := func() error {
		r, err := all.open(state, harness.Codex)
		if err != nil {
			return err
		}
		task := full(harness.Codex)
		if err := r.write(planOf(&task, r, true).files); err != nil {
			return err
		}
		return all.close(r)
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"codex/config.toml": false, "codex/rules": false, "codex/sessions/one.jsonl": true, "codex/auth.json": true, "run/old": false} {
		if there(filepath.Join(state, name)) != want {
			t.Errorf("%s is there: %v", name, !want)
		}
	}
	if err := os.RemoveAll(filepath.Join(state, "codex")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(state, "codex")); err != nil {
		t.Skip(err)
	}
	if err := open(); err == nil || !there(filepath.Join(elsewhere, "config.toml")) {
		t.Errorf("a link led us out of the state directory: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(state, "run")); err != nil || len(left) != 1 {
		t.Errorf("the room that failed: %v, %v", left, err) // Run closes it
	}
}

// TestWhatARunLockedIsGone: a build of Go leaves directories that nothing can be removed
// from. A state directory that cannot be cleared would start nothing any more. It says
// something only where the tests are not root's.
func TestWhatARunLockedIsGone(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	lock := func(dir string) {
		t.Helper()
		deep := filepath.Join(dir, "go", "pkg", "mod", "example.com@v1")
		if err := os.MkdirAll(deep, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(deep, "x.go"), nil, 0o400); err != nil {
			t.Fatal(err)
		}
		for _, d := range []string{deep, filepath.Dir(deep)} {
			if err := os.Chmod(d, 0o500); err != nil {
				t.Fatal(err)
			}
		}
	}
	lock(filepath.Join(state, "run", "run_before"))
	var all rooms
	r, err := all.open(state, harness.Claude)
	if err != nil {
		t.Fatal(err)
	}
	lock(r.home)
	if err := all.close(r); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(state, "run")); err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
