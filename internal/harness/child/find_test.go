//go:build unix

package child

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
)

// TestPrograms are found as npm lays them out.
func TestPrograms(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	modules, bin := filepath.Join(root, "lib", "node_modules"), filepath.Join(root, "bin")
	put := func(path, content string) string {
		full := filepath.Join(modules, path)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		return full
	}
	link := func(name, to string) {
		if err := os.MkdirAll(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	const elf, js = "\x7fELF", "#!/usr/bin/env node\n"
	platform := natives(harness.OpenCode)[0] // "opencode-linux-x64/bin/opencode"
	codex := put("@openai/"+"codex"+filepath.Dir(filepath.Dir(platform))[len("opencode"):]+"/vendor/some-triple/bin/codex", elf)
	link("codex", put("@openai/codex/bin/codex.js", js))
	claude := put("@anthropic-ai/claude-code/bin/claude.exe", elf)
	link("claude", claude)
	opencode := put("opencode-ai/node_modules/"+platform, elf)
	link("opencode", put("opencode-ai/bin/opencode", js))
	gemini := put("@google/gemini-cli/bundle/gemini.js", js)
	link("gemini", gemini)
	for cli, want := range map[harness.Name]string{harness.Codex: codex, harness.Claude: claude, harness.OpenCode: opencode, harness.Gemini: gemini} {
		if got, err := Find(cli, "", []string{"relative", "/nowhere", bin}); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", cli, got, err, want)
		}
		if got, err := Find(cli, filepath.Join(bin, string(cli)), nil); err != nil || got != want {
			t.Errorf("%s as configured: %q, %v", cli, got, err)
		}
	}
	for _, c := range []struct {
		cli        harness.Name
		configured string
		class      fault.Class
	}{
		{harness.Pi, "", fault.NotFound}, {harness.Pi, "/nowhere/pi", fault.NotFound}, {harness.Pi, "pi", fault.Config},
		{harness.ACP, "", fault.NotFound}, {"aider", "", fault.NotFound},
	} {
		if _, err := Find(c.cli, c.configured, []string{bin}); !fault.Is(err, c.class) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
