//go:build unix

package cli

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestVaultScripts plays testdata/vault with the real daemon. Beside the commands of
// TestScripts there are:
//
//	nowhere TEXT...   no file of the home holds one of the texts
//	take NAME         keeps the recovery key the last command printed in $NAME
func TestVaultScripts(t *testing.T) {
	t.Parallel()
	play(t, "vault", true, map[string]func(*testscript.TestScript, bool, []string){
		"killdaemon": killCmd,
		"nowhere":    nowhereCmd,
		"take":       takeCmd,
	})
}

func nowhereCmd(ts *testscript.TestScript, _ bool, args []string) {
	err := filepath.WalkDir(ts.Getenv("OMBUD_HOME"), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !d.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, text := range args {
			if bytes.Contains(raw, []byte(text)) {
				ts.Fatalf("%s holds %q", path, text)
			}
		}
		return err
	})
	ts.Check(err)
}

func takeCmd(ts *testscript.TestScript, _ bool, args []string) {
	key, _, _ := strings.Cut(ts.ReadFile("stdout"), "\n")
	if strings.Count(key, "-") != 7 {
		ts.Fatalf("%q is no recovery key", key)
	}
	ts.Setenv(args[0], key)
}
