//go:build unix

package cli

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestRunScripts plays testdata/runs with the real daemon. Beside the commands of
// TestScripts there is:
//
//	append FILE TEXT   the file goes on with this
func TestRunScripts(t *testing.T) {
	t.Parallel()
	play(t, "runs", true, map[string]func(*testscript.TestScript, bool, []string){
		"append": func(ts *testscript.TestScript, _ bool, args []string) {
			text := ts.ReadFile(args[0]) + args[1]
			ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
		},
	})
}
