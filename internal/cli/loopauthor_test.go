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
		"go1.23.4": true, "go1.9": true, "go1": true, "go1.24": false, "go1.24rc1": false, "go1.26.8": false, "go1.26.8-custom": false, "go2.0": false, "go1.100": false, "": false,
	} {
		if older(got, "go1.24") != want {
			t.Errorf("%s is older than 1.24: %t", got, !want)
		}
	}
	for said, want := range map[string]string{
		"go version go1.26.8 linux/amd64\n": "go1.26.8", "go version devel go1.27-5f1c linux/amd64": "", "go version": "",
	} {
		if got := goVersion(said); got != want {
			t.Errorf("%q says %q", said, got)
		}
	}
}
