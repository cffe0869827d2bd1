//go:build unix

package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ombud-run/ombud/internal/signed/signedtest"
	"github.com/ombud-run/ombud/wasmloop"
)

// TestLoopScripts plays testdata/loops with the real daemon. Beside code there are:
//
//	artifact FILE v1|v2 PUBLISHER REGISTRY MANIFEST   makes an artifact; - for no signature
//	key NAME VARIABLE                                 the public key of a name
//	registry DIR                                      serves a directory as OMBUD_REGISTRY
//	swap FILE                                         changes a byte in the middle of a file
func TestLoopScripts(t *testing.T) {
	t.Parallel()
	play(t, "loops", true, map[string]func(*testscript.TestScript, bool, []string){
		"artifact": func(ts *testscript.TestScript, _ bool, args []string) { makeArtifact(t, ts, args) },
		"key": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Setenv(args[1], signedtest.Public(args[0]))
		},
		"registry": serveRegistry,
		"swap": func(ts *testscript.TestScript, _ bool, args []string) {
			path := ts.MkAbs(args[0])
			data, err := os.ReadFile(path)
			ts.Check(err)
			data[len(data)/2] ^= 1
			ts.Check(os.WriteFile(path, data, 0o600))
		},
	})
}

func makeArtifact(t *testing.T, ts *testscript.TestScript, args []string) {
	var m wasmloop.Manifest
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[4])), &m))
	name := func(s string) string { return strings.TrimPrefix(s, "-") }
	pack := signedtest.V2
	if args[1] == "v1" {
		pack = signedtest.V1
	}
	data := pack(t, m, signedtest.Module(m.Name+m.Version), name(args[2]), name(args[3]))
	path := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
	ts.Check(os.WriteFile(path, data, 0o600))
}

func serveRegistry(ts *testscript.TestScript, _ bool, args []string) {
	s := httptest.NewServer(http.FileServer(http.Dir(ts.MkAbs(args[0]))))
	ts.Defer(s.Close)
	ts.Setenv("OMBUD_REGISTRY", s.URL)
}
