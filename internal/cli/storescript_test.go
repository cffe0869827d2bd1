//go:build unix

package cli

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ombud-run/ombud/internal/db/dbtest"
)

// TestStoreScripts plays testdata/store with the real daemon and a real PostgreSQL. Beside
// the commands of TestScripts there is:
//
//	database NAME    puts the address of an empty database into $NAME
func TestStoreScripts(t *testing.T) {
	t.Parallel()
	dbtest.PostgresDSN(t) // skips where there is no PostgreSQL
	play(t, "store", true, map[string]func(*testscript.TestScript, bool, []string){
		"database": func(ts *testscript.TestScript, _ bool, args []string) { ts.Setenv(args[0], dbtest.PostgresDSN(t)) },
	})
}
