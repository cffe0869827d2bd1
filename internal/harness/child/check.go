package child

import (
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
)

// Bounds of what a program is given.
const (
	maxPrompt = 4 << 20   // it goes over standard input
	maxSystem = 64 << 10  // most take it as one argument, which the kernel bounds at 128 KiB
	maxAsked  = 256 << 10 // of Ask.Input
)

var (
	// word is what becomes an argument. It cannot begin with a "-", so it is never a flag.
	word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/@+~=-]{0,255}$`)
	uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	name = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// check refuses a task that cannot be run, or whose words would mean something else
// on a command line. The error is of class Invalid and shows no value of Env.
func (t *Task) check() error {
	bad := func(format string, args ...any) error {
		return fault.New(fault.Invalid, "run "+string(t.CLI)+": "+format, args...)
	}
	for _, path := range []struct{ what, path string }{{"program", t.Program}, {"state directory", t.State}, {"directory", t.Dir}} {
		if !filepath.IsAbs(path.path) {
			return bad("the path of its %s, %q, is not absolute", path.what, fault.Cut(path.path, 256))
		}
	}
	if within(t.State, t.Dir) {
		return bad("its state directory %s lies in %s, where it works and could change how it is run", t.State, t.Dir)
	}
	for _, w := range []struct{ what, word string }{{"model", t.Model}, {"session", t.Session}} {
		if w.word != "" && !word.MatchString(w.word) {
			return bad("%q is no name of a %s", fault.Cut(w.word, 256), w.what)
		}
	}
	if err := t.checkSession(bad); err != nil {
		return err
	}
	for _, text := range []struct {
		what, text string
		max        int
	}{{"prompt", t.Prompt, maxPrompt}, {"system text", t.System, maxSystem}} {
		switch {
		case len(text.text) > text.max:
			return bad("its %s has %d bytes; at most %d are taken", text.what, len(text.text), text.max)
		case !utf8.ValidString(text.text), strings.ContainsRune(text.text, 0):
			return bad("its %s is no text", text.what)
		}
	}
	if strings.TrimSpace(t.Prompt) == "" {
		return bad("it has no prompt")
	}
	if t.CLI == harness.ACP && t.Model != "" {
		return bad("an agent of the protocol is given its model by its own command")
	}
	if t.CLI == harness.Pi && t.MCP != nil && !newPi(t.Version) {
		return fault.New(fault.Invalid, "run pi: version %q reaches no MCP server", fault.Cut(t.Version, 64)).
			WithHint("install pi 1.6 or later, or give it no server")
	}
	if t.Turns < 0 || t.BudgetMicroUSD < 0 || t.Wall < 0 || t.Quiet < 0 {
		return bad("a limit is below zero")
	}
	return checkAround(t.Env, t.BaseURL, t.MCP, bad)
}

func (t *Task) checkSession(bad func(string, ...any) error) error {
	switch {
	case t.NewSession == "":
	case t.Session != "":
		return bad("it goes on with a session and is given the id of a new one")
	case !uuid.MatchString(t.NewSession):
		return bad("%q is no UUID in small letters", fault.Cut(t.NewSession, 256))
	case !TakesSession(*t):
		return bad("it chooses the ids of its sessions itself")
	}
	return nil
}

// checkAround refuses an environment, an address or a server that is none.
func checkAround(env []string, base string, m *MCP, bad func(string, ...any) error) error {
	if err := checkEnv(env, bad); err != nil {
		return err
	}
	if base != "" {
		u, err := url.Parse(base)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || strings.ContainsAny(base, "\"\\\n") {
			return bad("the address of its API is no http address without a password in it")
		}
	}
	if m == nil {
		return nil
	}
	if !filepath.IsAbs(m.Command) {
		return bad("the path of its MCP server, %q, is not absolute", fault.Cut(m.Command, 256))
	}
	for _, tool := range m.Tools {
		if !word.MatchString(tool) {
			return bad("%q is no name of a tool", fault.Cut(tool, 256))
		}
	}
	if err := checkEnv(m.Env, bad); err != nil {
		return err
	}
	return checkPlain(m, bad)
}

// checkPlain refuses words that a program would replace: most put variables, files or
// the output of a command into what their configuration says of a server, each in
// another way, and not all have a way to write the characters themselves.
func checkPlain(m *MCP, bad func(string, ...any) error) error {
	words := append([]string{m.Command}, m.Args...)
	for _, entry := range m.Env {
		_, value := cutVariable(entry)
		words = append(words, value)
	}
	for _, w := range words {
		if strings.HasPrefix(w, "!") || strings.ContainsAny(w, "$`{}") {
			return bad("the command, an argument or a variable of its MCP server begins with ! or holds one of $ ` { }, which a program would replace")
		}
	}
	return nil
}

func checkEnv(env []string, bad func(string, ...any) error) error {
	for _, entry := range env {
		n, value, is := strings.Cut(entry, "=")
		if !is || !name.MatchString(n) || strings.ContainsRune(value, 0) {
			return bad("a variable of its environment is not NAME=value") // the entry may be a secret
		}
	}
	return nil
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}
