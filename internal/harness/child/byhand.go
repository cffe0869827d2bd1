package child

import (
	"path/filepath"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
)

// ByHand is how a person logs a program in by hand, in a terminal: its arguments, and the
// variables by which it keeps the login where its runs find it, below state. Unavailable
// for a program that keeps none there.
func ByHand(cli harness.Name, state string) (args, env []string, err error) {
	at := func(variable, dir string) []string { return []string{variable + "=" + filepath.Join(state, dir)} }
	switch cli {
	case harness.Claude:
		return []string{"auth", "login"}, at("CLAUDE_CONFIG_DIR", "claude"), nil
	case harness.Codex:
		return []string{"login"}, at("CODEX_HOME", "codex"), nil
	case harness.Gemini:
		return nil, at("GEMINI_CLI_HOME", "gemini"), nil
	case harness.OpenCode:
		return []string{"auth", "login"}, at("XDG_DATA_HOME", "data"), nil
	}
	return nil, nil, fault.New(fault.Unavailable, "%s is given a key, and keeps no login between runs", cli).
		WithHint("ombud secret set NAME, and harnesses.%s.api_key: secret:NAME", cli)
}
