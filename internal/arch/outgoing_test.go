package arch

import (
	"go/ast"
	"path"
	"strconv"
	"strings"
)

// What opens a way out of the process: a client, a transport, a dialler, a look-up
// of a name (whose question may itself carry something out). "*" stands for any
// ending. A type that is only pointed at has been made elsewhere, and is free.
var outgoing = map[string][]string{
	"net/http":                   {"Client", "Transport", "Default*", "Get", "Head", "Post", "PostForm", "ProxyFromEnvironment", "NewFileTransport*"},
	"net/http/httputil":          {"ReverseProxy", "NewSingleHostReverseProxy", "NewClientConn"},
	"net":                        {"Dial*", "Resolver", "DefaultResolver", "Lookup*", "Resolve*"},
	"net/rpc":                    {"Dial*"},
	"net/smtp":                   {"Dial", "SendMail"},
	"crypto/tls":                 {"Dial*", "Client"},
	"syscall":                    {"Connect"},
	"golang.org/x/sys/unix":      {"Connect"},
	"golang.org/x/net/proxy":     {"*"},
	"golang.org/x/net/http2":     {"Transport"},
	"github.com/coder/websocket": {"Dial"},
}

// goesOut lists who may use them, and why that is no way around the guard.
var goesOut = map[string]string{
	"internal/guard": "it is the guard: addresses are judged when the socket connects",
	"internal/wire":  "the unix socket of our own daemon, whose owner is checked",
	"internal/cli":   "ombud doctor knocks at the PostgreSQL that the configuration names; it sends nothing",
}

// checkOutgoing finds what would connect without asking the guard.
func checkOutgoing(s *source, report reporter) {
	if !s.shipped || goesOut[s.pkg] != "" {
		return
	}
	imports := map[string]string{} // local name → path
	for _, spec := range s.tree.Imports {
		to, _ := strconv.Unquote(spec.Path.Value) // checkImports reports the error
		if outgoing[to] == nil {
			continue
		}
		name := path.Base(to)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == "." {
			report("%s: imports %s without its name, so what it uses of it cannot be told", s.at(spec), to)
		}
		imports[name] = to
	}
	pointed := map[*ast.SelectorExpr]bool{}
	ast.Inspect(s.tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StarExpr:
			if sel, ok := n.X.(*ast.SelectorExpr); ok {
				pointed[sel] = true
			}
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if !ok || x.Obj != nil || pointed[n] {
				return true
			}
			if to := imports[x.Name]; to != "" && named(outgoing[to], n.Sel.Name) {
				report("%s: %s.%s connects without the guard: take a client of guard.HTTPClient, or guard.Egress.DialContext", s.at(n), x.Name, n.Sel.Name)
			}
		}
		return true
	})
}

func named(patterns []string, name string) bool {
	for _, p := range patterns {
		if prefix, open := strings.CutSuffix(p, "*"); p == name || open && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
