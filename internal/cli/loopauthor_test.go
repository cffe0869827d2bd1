//go:build unix

package cli

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestAuthorScripts plays testdata/author: what an author of loops does, with the Go of this
// machine, an empty cache of modules and no proxy. Beside the usual commands there are:
//
//	gocache          what the Go of this machine has compiled before can be used
//	onlypath [DIR]   PATH has ombud, and DIR in front of it, and nothing else
func TestAuthorScripts(t *testing.T) {
	t.Parallel()
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	play(t, "author", false, map[string]func(*testscript.TestScript, bool, []string){
		"gocache": func(ts *testscript.TestScript, _ bool, _ []string) {
			ts.Setenv("GOCACHE", strings.TrimSpace(string(cache)))
		},
		"onlypath": func(ts *testscript.TestScript, _ bool, dirs []string) {
			first, _, _ := strings.Cut(ts.Getenv("PATH"), string(filepath.ListSeparator))
			ts.Setenv("PATH", strings.Join(append(dirs, first), string(filepath.ListSeparator)))
		},
	})
}

func TestVersionsOfGoAreCompared(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]bool{
		"1.23.4": true, "1.9": true, "1": true, "0.9": true, "1.24": false, "1.24rc1": false, "1.26.8": false, "2.0": false, "1.100": false, "": false, "devel": false,
	} {
		if older(got, "1.24") != want {
			t.Errorf("Go %s is older than 1.24: %t", got, !want)
		}
	}
	if got := goVersion("go version go1.26.8 linux/amd64\n"); got != "1.26.8" {
		t.Error(got)
	}
}
