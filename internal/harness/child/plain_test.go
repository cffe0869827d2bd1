package child

import (
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
)

// What stands here was put into the secret of a server and came out as something
// else: gemini wrote a path, opencode looked for a file, pi would have run a command.
func TestWhatAProgramWouldReplaceIsRefused(t *testing.T) {
	t.Parallel()
	for word, good := range map[string]bool{
		"plain-0123.456/=+@:,~": true, "with a space": true, "not!first": true, "": true,
		"$HOME": false, "a${HOME}": false, "{env:HOME}": false, "{file:/etc/passwd}": false, "!id": false, "`id`": false,
	} {
		for where, m := range map[string]*MCP{
			"variable": {Command: "/bin/server", Env: []string{"A=" + word}},
			"argument": {Command: "/bin/server", Args: []string{word}},
			"command":  {Command: "/bin/" + word},
		} {
			task := Task{CLI: harness.Claude, Program: "/bin/claude", Prompt: "p", Dir: "/work", State: "/state", MCP: m}
			switch err := task.check(); {
			case good && err != nil:
				t.Errorf("%s %q: %v", where, word, err)
			case !good && where == "command" && word == "!id": // not first in a path
			case !good && !fault.Is(err, fault.Invalid):
				t.Errorf("%s %q: %v", where, word, err)
			}
		}
	}
}
