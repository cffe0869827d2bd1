package arch

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func TestTheHouseStandsAsDesigned(t *testing.T) {
	t.Parallel()
	h, err := parseHouse(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(h.packages) < 5 {
		t.Fatalf("found only %v: is this the root of the module?", h.packages)
	}
	for _, line := range check(h) {
		t.Error(line)
	}
}

func TestEdgesOfAFloorFormNoCycle(t *testing.T) {
	t.Parallel()
	for _, e := range sameFloor {
		from, ok1 := floorOf(e.from)
		to, ok2 := floorOf(e.to)
		if !ok1 || !ok2 || from != to {
			t.Errorf("edge %s → %s does not join two packages of one floor", e.from, e.to)
		}
		if e.why == "" {
			t.Errorf("edge %s → %s gives no reason", e.from, e.to)
		}
		if reaches(e.to, e.from, map[string]bool{}) {
			t.Errorf("edge %s → %s closes a cycle", e.from, e.to)
		}
	}
}

func reaches(from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	if seen[from] {
		return false
	}
	seen[from] = true
	for _, e := range sameFloor {
		if e.from == from && reaches(e.to, to, seen) {
			return true
		}
	}
	return false
}

// TestEachRuleIsEnforced breaks every rule once, in a house of its own.
func TestEachRuleIsEnforced(t *testing.T) {
	t.Parallel()
	const doc = "// Package x is a probe.\n"
	ours := func(pkg string) string { return `import _ "` + module + "/" + pkg + "\"\n" }
	for name, c := range map[string]struct {
		file, text string
		want       string // part of the one complaint; empty: none
	}{
		"import from below":         {"internal/db/x.go", "package db\n" + ours("internal/fault"), ""},
		"import from above":         {"internal/db/x.go", "package db\n" + ours("internal/run"), "from a floor above"},
		"test may look up":          {"internal/db/x_test.go", "package db\n" + ours("internal/run"), ""},
		"edges import each other":   {"internal/tools/fs/x.go", "package fs\n" + ours("internal/tools/web"), "no such edge"},
		"listed edge":               {"internal/act/x.go", "package act\n" + ours("internal/run"), ""},
		"edge the wrong way":        {"internal/run/x.go", "package run\n" + ours("internal/act"), "no such edge"},
		"daemon for all":            {"internal/httpd/x.go", "package httpd\n" + ours("internal/daemon"), "from a floor above"},
		"unknown package":           {"internal/util/x.go", "package util\n", "not in the table"},
		"unknown below a known one": {"internal/db/deep/x.go", "package deep\n", "not in the table"},
		"test support shipped":      {"internal/run/x.go", "package run\n" + ours("internal/db/dbtest"), "for tests"},
		"cgo":                       {"internal/db/x.go", "package db\nimport \"C\"\n", "without cgo"},
		"driver elsewhere":          {"internal/run/x.go", "package run\nimport _ \"github.com/jackc/pgx/v5\"\n", "one door"},
		"driver at home":            {"internal/db/x.go", "package db\nimport _ \"github.com/jackc/pgx/v5\"\n", ""},
		"cipher elsewhere":          {"internal/blob/x.go", "package blob\nimport _ \"golang.org/x/crypto/chacha20poly1305\"\n", "one place"},
		"log":                       {"internal/run/x.go", "package run\nimport _ \"log\"\n", "slog"},
		"slog":                      {"internal/run/x.go", "package run\nimport _ \"log/slog\"\n", ""},
		"program from a low floor":  {"internal/run/x.go", "package run\nimport _ \"os/exec\"\n", "an effect"},
		"testing shipped":           {"internal/run/x.go", "package run\nimport _ \"testing\"\n", "not shipped"},
		"policy with a store":       {"internal/policy/x.go", "package policy\n" + ours("internal/db"), "input alone"},
		"environment":               {"internal/run/x.go", "package run\nimport \"os\"\nvar f = os.Getenv\n", "one entrance"},
		"environment renamed":       {"internal/run/x.go", "package run\nimport sys \"os\"\nfunc f() string { return sys.Getenv(\"A\") }\n", "one entrance"},
		"environment in config":     {"internal/config/x.go", "package config\nimport \"os\"\nvar f = os.Getenv\n", ""},
		"environment in campaign":   {"internal/failpoint/x.go", "//go:build failpoint\n\npackage failpoint\nimport \"os\"\nvar f = os.Getenv\n", ""},
		"local of that name":        {"internal/run/x.go", "package run\ntype s struct{ Getenv int }\nfunc f(os s) int { return os.Getenv }\n", ""},
		"sleep":                     {"internal/run/x.go", "package run\nimport \"time\"\nfunc f() { time.Sleep(1) }\n", "cannot be stopped"},
		"sleep in a test":           {"internal/run/x_test.go", "package run\nimport \"time\"\nfunc f() { time.Sleep(1) }\n", "cannot be stopped"},
		"handler behind act":        {"internal/agent/x.go", "package agent\nimport \"" + module + "/internal/tool\"\nvar f tool.Invoker\n", "law 4"},
		"handler in act":            {"internal/act/x.go", "package act\nimport \"" + module + "/internal/tool\"\nvar f tool.Invoker\n", ""},
		"client of its own":         {"internal/daemon/x.go", "package daemon\nimport \"net/http\"\nvar c = http.Client{}\n", "without the guard"},
		"client by new":             {"internal/daemon/x.go", "package daemon\nimport \"net/http\"\nvar c = new(http.Client)\n", "without the guard"},
		"client in a field":         {"internal/daemon/x.go", "package daemon\nimport \"net/http\"\ntype t struct{ http.Client }\n", "without the guard"},
		"client as a value":         {"internal/daemon/x.go", "package daemon\nimport \"net/http\"\nfunc f() { var c http.Client; _ = c }\n", "without the guard"},
		"client handed in":          {"internal/tools/web/x.go", "package web\nimport \"net/http\"\nfunc f(c *http.Client) *http.Client { d := *c; return &d }\n", ""},
		"shared client":             {"internal/daemon/x.go", "package daemon\nimport web \"net/http\"\nvar c = web.DefaultClient\n", "without the guard"},
		"get":                       {"internal/daemon/x.go", "package daemon\nimport \"net/http\"\nvar f = http.Get\n", "without the guard"},
		"net/http without name":     {"internal/daemon/x.go", "package daemon\nimport . \"net/http\"\nvar f = Get\n", "without its name"},
		"server":                    {"internal/daemon/x.go", "package daemon\nimport \"net/http\"\nvar s http.Server\n", ""},
		"dial":                      {"internal/daemon/x.go", "package daemon\nimport \"net\"\nvar f = net.DialTimeout\n", "without the guard"},
		"dialler":                   {"internal/tools/web/x.go", "package web\nimport \"net\"\nfunc f() { var d net.Dialer; _ = d }\n", "without the guard"},
		"tls":                       {"internal/daemon/x.go", "package daemon\nimport \"crypto/tls\"\nvar f = tls.Dial\n", "without the guard"},
		"look-up":                   {"internal/daemon/x.go", "package daemon\nimport \"net\"\nvar f = net.LookupTXT\n", "without the guard"},
		"dial in the guard":         {"internal/guard/x.go", "package guard\nimport \"net\"\nvar f = net.Dial\n", ""},
		"dial in a test":            {"internal/daemon/x_test.go", "package daemon\nimport \"net\"\nvar f = net.Dial\n", ""},
		"init":                      {"internal/run/x.go", "package run\nfunc init() {}\n", "init function"},
		"init method":               {"internal/run/x.go", "package run\ntype t int\nfunc (t) init() {}\n", ""},
		"table":                     {"internal/run/x.go", "package run\nvar t = map[string]int{\"a\": 1}\nfunc f() int { return t[\"a\"] }\n", ""},
		"registry":                  {"internal/run/x.go", "package run\nvar t = map[string]int{}\nfunc f() { t[\"a\"] = 1 }\n", "changes the package variable t"},
		"registry by append":        {"internal/run/x.go", "package run\nvar t []int\nfunc f() { t = append(t, 1) }\n", "changes the package variable t"},
		"registry by delete":        {"internal/run/x.go", "package run\nvar t = map[string]int{}\nfunc f() { delete(t, \"a\") }\n", "changes the package variable t"},
		"shadowed":                  {"internal/run/x.go", "package run\nvar t = map[string]int{}\nfunc f() { t := map[string]int{}; t[\"a\"] = 1 }\n", ""},
		"lock":                      {"internal/run/x.go", "package run\nimport \"sync\"\nvar mu sync.Mutex\n", "type sync.Mutex"},
		"atomic":                    {"internal/run/x.go", "package run\nimport \"sync/atomic\"\nvar p atomic.Pointer[int]\n", "type atomic.Pointer"},
		"lock where allowed":        {"internal/id/x.go", "package id\nimport \"sync\"\nvar mu sync.Mutex\nvar n int\nfunc f() { n++ }\n", ""},
		"untyped":                   {"internal/run/x.go", "package run\n" + strings.Repeat("var _ map[string]any\n", maxUntyped+1), "give the domain types"},
		"untyped, old spelling":     {"internal/run/x.go", "package run\n" + strings.Repeat("var _ map[string]interface{}\n", maxUntyped+1), "give the domain types"},
		"testdata is not code":      {"internal/run/testdata/x.go", "package util\nfunc init() {}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := c.text
			if !strings.HasPrefix(text, "//go:build") {
				text = doc + text
			} else {
				text = strings.Replace(text, "\npackage", "\n"+doc+"package", 1)
			}
			h, err := parseHouse(fstest.MapFS{c.file: {Data: []byte(text)}})
			if err != nil {
				t.Fatal(err)
			}
			got := check(h)
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("complains about what is allowed: %q", got)
			case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)):
				t.Errorf("got %q, want one complaint with %q", got, c.want)
			}
		})
	}
}

func TestPackageWithoutACommentIsRefused(t *testing.T) {
	t.Parallel()
	h, err := parseHouse(fstest.MapFS{"internal/run/x.go": {Data: []byte("package run\n")}})
	if err != nil {
		t.Fatal(err)
	}
	if got := check(h); len(got) != 1 || !strings.Contains(got[0], "no package comment") {
		t.Errorf("got %q", got)
	}
}

// TestVariableOfAnotherFileIsStillThePackages: the parser resolves names file by file.
func TestVariableOfAnotherFileIsStillThePackages(t *testing.T) {
	t.Parallel()
	h, err := parseHouse(fstest.MapFS{
		"internal/run/a.go": {Data: []byte("// Package run is a probe.\npackage run\nvar t = map[string]int{}\n")},
		"internal/run/b.go": {Data: []byte("package run\nfunc f() { t[\"a\"] = 1 }\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := check(h); len(got) != 1 || !strings.Contains(got[0], "changes the package variable t") {
		t.Errorf("got %q", got)
	}
}
