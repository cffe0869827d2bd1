package arch

import (
	"go/ast"
	"os"
	"testing"
)

// Where values leave the daemon, and who may let them out. Each of these places hides
// what is registered as secret; a new one has to do so before it is listed here.
var borderNames = []ownedUse{
	{module + "/internal/ipc", "New", []string{"internal/daemon"}, "the daemon gives every server what hides its answers"},
	{module + "/internal/wire", "ResultFrame", []string{"internal/ipc"}, "an answer leaves through conn.write, which hides"},
	{module + "/internal/wire", "NoteFrame", []string{"internal/ipc"}, "a note leaves through conn.write, which hides"},
	{module + "/internal/wire", "ErrorFrame", []string{"internal/ipc"}, "an error leaves through conn.write, which hides"},
	{"net/http", "Server", []string{"internal/guard", "internal/httpd", "internal/harness/keyproxy"}, "what serves HTTP has to hide as conn.write does; the guard's proxy carries a job's own bytes only, the proxy that has the keys of coding agents takes them out, and the listener's writer hides"},
	{"net/http", "Serve", nil, "what serves HTTP has to hide as conn.write does"},
	{"net/http", "ListenAndServe", nil, "what serves HTTP has to hide as conn.write does"},
	{"log/slog", "NewJSONHandler", []string{"internal/logfile"}, "the daemon wraps the one logger it is given"},
	{"log/slog", "NewTextHandler", []string{"internal/cli"}, "the daemon wraps the one logger it is given"},
	{"log/slog", "SetDefault", nil, "loggers are passed in, and the daemon's hides"},
	{"log/slog", "Default", nil, "loggers are passed in, and the daemon's hides"},
}

// A provider is asked by model.Hiding alone: whatever else calls Generate would tell
// it what is secret.
const asksProvider = "Generate"

func TestEveryWayOutHidesSecrets(t *testing.T) {
	t.Parallel()
	h, err := parseHouse(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, s := range h.files {
		if !s.shipped {
			continue
		}
		checkOwned(s, borderNames, func(format string, args ...any) { t.Errorf(format, args...) })
		ast.Inspect(s.tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == asksProvider {
				asked++
				if !anyMatches([]string{"internal/model", "internal/model/*"}, s.pkg) {
					t.Errorf("%s: asks a provider without model.Hiding", s.at(sel))
				}
			}
			return true
		})
	}
	if asked == 0 {
		t.Error("nobody asks a provider: is the rule about a name that is gone?")
	}
}
