package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	hider "github.com/ombud-run/ombud/internal/redact"
)

const envPrefix = "OMBUD_"

// otherVariables are OMBUD_ variables that are no keys: paths, and what tests use.
var otherVariables = []string{"OMBUD_HOME", "OMBUD_INSTANCE", passphraseVariable}

const testPrefix = "OMBUD_TEST_"

// Input is what a configuration is loaded from.
type Input struct {
	File     string                   // need not exist; "" for none
	Getenv   func(string) string      // nil for none
	EnvNames []string                 // names to check for misspelt OMBUD_ variables
	Flags    []Override               // in order, the last wins
	Scope    func(scope string) error // says whether a role's scope is one; nil accepts all
	Tool     func(tool string) error  // says whether an agent's tool is one; nil accepts all
	read     func(string) ([]byte, error)
}

// Override is one value given on the command line.
type Override struct {
	Flag  string // as typed, for messages: "--set"
	Key   string
	Value string // lists with commas between
}

// Loaded is a valid configuration and where each value came from.
type Loaded struct {
	Config   Config
	order    []string
	settings map[string]setting
	known    *hider.Redactor // the secrets of the environment that the configuration is about
}

// setting is one key with its value.
type setting struct {
	path  string // without "*"
	name  string // in the place of "*", or ""
	entry *entry
	def   value
	value value
}

// Explanation is the life of one value, for people: no secret is in it.
type Explanation struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Source  string `json:"source"`
	Default string `json:"default"`
	Doc     string `json:"doc"`
	Env     string `json:"env,omitempty"` // the variable that sets it, "" if none does
}

// Load reads every layer. Its error is fault.Config around an *Error with every
// problem, or tells that the file cannot be read.
func Load(in Input) (*Loaded, error) {
	if in.Getenv == nil {
		in.Getenv = func(string) string { return "" }
	}
	if in.read == nil {
		in.read = readFile
	}
	l := &loader{in: in, entries: table(), out: &Loaded{settings: map[string]setting{}}}
	l.defaults()
	l.found()
	if err := l.file(); err != nil {
		return nil, err
	}
	l.environment()
	l.flags()
	l.apply()
	l.check()
	l.hide()
	if err := asFault(l.problems); err != nil {
		return nil, err
	}
	l.finish()
	return l.out, nil
}

type loader struct {
	in       Input
	entries  []entry
	out      *Loaded
	names    map[string][]string // section → names, in order of appearance
	problems []Problem
}

func (l *loader) problem(at Source, key, near, format string, args ...any) {
	l.problems = append(l.problems, Problem{At: at, Key: key, Near: near, Msg: fmt.Sprintf(format, args...)})
}

// sectionOf returns "roles" of "roles.*.allow", or false for a fixed key.
func sectionOf(pattern string) (string, bool) {
	section, _, wild := strings.Cut(pattern, ".*")
	return section, wild
}

func (l *loader) defaults() {
	l.names = map[string][]string{}
	for i, e := range l.entries {
		if _, wild := sectionOf(e.path); !wild {
			l.out.settings[e.path] = setting{path: e.path, entry: &l.entries[i], def: e.def, value: e.def}
		}
	}
	names := make([]string, 0, len(shipped))
	for full := range shipped {
		names = append(names, full)
	}
	slices.Sort(names)
	for _, full := range names {
		i := strings.LastIndex(full, ".")
		l.addName(full[:i], full[i+1:])
	}
}

// addName makes the keys below a name, with their defaults.
func (l *loader) addName(section, name string) {
	if slices.Contains(l.names[section], name) {
		return
	}
	l.names[section] = append(l.names[section], name)
	for i, e := range l.entries {
		if of, wild := sectionOf(e.path); !wild || of != section {
			continue
		}
		s := setting{path: concrete(e.path, name), name: name, entry: &l.entries[i], def: e.def, value: e.def}
		if own, ok := shipped[join(section, name)][e.path[strings.LastIndex(e.path, ".")+1:]]; ok {
			s.def, s.value = text(own), text(own)
		}
		l.out.settings[s.path] = s
	}
}

func (l *loader) put(path string, v value) {
	s := l.out.settings[path]
	s.value = v
	l.out.settings[path] = s
}

// found takes OLLAMA_HOST, which a person set for Ollama and not for us, so it
// moves the default only.
func (l *loader) found() {
	const variable, path = "OLLAMA_HOST", "models.providers.ollama.base_url"
	host := l.in.Getenv(variable)
	if host == "" {
		return
	}
	at := Source{Kind: FromFound, Name: variable}
	base, ok := ollamaURL(host)
	if !ok {
		l.problem(at, path, "", "does not look like host:port")
		return
	}
	l.put(path, value{text: base, at: at})
}

// ollamaURL reads the forms Ollama itself accepts: a scheme, a host and a port,
// each of which may be missing. A server's "every address" is this machine.
func ollamaURL(host string) (string, bool) {
	scheme, rest, has := strings.Cut(strings.TrimSpace(host), "://")
	port := map[string]string{"http": "80", "https": "443"}[scheme]
	if !has {
		scheme, rest, port = "http", strings.TrimSpace(host), "11434"
	}
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil || port == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", false
	}
	name := u.Hostname()
	if name == "" || name == "0.0.0.0" || name == "::" {
		name = "127.0.0.1"
	}
	if u.Port() != "" {
		port = u.Port()
	}
	return scheme + "://" + net.JoinHostPort(name, port) + strings.TrimRight(u.Path, "/") + "/v1", true
}

// readFile reads one byte more than is allowed at most, and only what is a file:
// to open a pipe without a writer would wait for ever, and a device need not end.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

func (l *loader) file() error {
	if l.in.File == "" {
		return nil
	}
	data, err := l.in.read(l.in.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.Permission, "read configuration: %w", err)
	case err != nil:
		return fault.New(fault.Config, "read configuration: %w", err)
	}
	doc := readDocument(l.in.File, data, tree(l.entries))
	l.problems = append(l.problems, doc.problems...)
	if doc.broken {
		return asFault(l.problems) // what the other layers refer to may be in it
	}
	for _, n := range doc.names {
		l.addName(n.section, n.name)
	}
	given := doc.bad
	for _, s := range doc.values {
		l.put(s.path, s.value)
		given[s.path] = true
	}
	for _, n := range doc.names {
		l.required(n, given)
		if n.section == "harnesses" {
			acp := concrete("harnesses.*.acp", n.name)
			l.checkHarness(n, len(l.out.settings[acp].value.items) > 0)
		}
	}
	return nil
}

// required reports the keys a name cannot do without.
func (l *loader) required(n chosen, given map[string]bool) {
	for _, e := range l.entries {
		of, _ := sectionOf(e.path)
		path := concrete(e.path, n.name)
		if of == n.section && e.required && !given[path] && l.out.settings[path].value.at.Kind == "" {
			l.problem(n.at, join(n.section, n.name), "", "needs %s", path[strings.LastIndex(path, ".")+1:])
		}
	}
}

// variable returns the name of the environment variable for a key.
func variable(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

func (l *loader) environment() {
	var known []string
	for _, e := range l.entries {
		if _, wild := sectionOf(e.path); wild {
			continue
		}
		name := variable(e.path)
		known = append(known, name)
		if s := l.in.Getenv(name); s != "" {
			l.put(e.path, written(e, s, Source{Kind: FromEnvironment, Name: name}))
		}
	}
	known = append(known, otherVariables...)
	for _, name := range l.in.EnvNames {
		if strings.HasPrefix(name, envPrefix) && !strings.HasPrefix(name, testPrefix) && !slices.Contains(known, name) {
			l.problem(Source{Kind: FromEnvironment, Name: name}, "", nearest(name, known), "no key has this variable")
		}
	}
}

// written makes a value of one line of text, as a variable or flag has it.
func written(e entry, s string, at Source) value {
	v := value{text: s, at: at, list: e.def.list}
	if !v.list {
		return v
	}
	v.text = ""
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			v.items = append(v.items, item{part, at})
		}
	}
	return v
}

func (l *loader) flags() {
	for _, f := range l.in.Flags {
		at := Source{Kind: FromFlag, Name: f.Flag}
		s, ok := l.out.settings[f.Key]
		if !ok {
			l.problem(at, "", nearest(f.Key, l.keys()), "unknown key %q", f.Key)
			continue
		}
		l.put(f.Key, written(*s.entry, f.Value, at))
	}
}

// apply gives every value its type.
func (l *loader) apply() {
	l.out.Config = Config{Agents: map[string]Agent{}, Roles: map[string]Role{}, Loops: map[string]Loop{}, Harnesses: map[string]Harness{}, Models: Models{Providers: map[string]Provider{}, Prices: map[string]Price{}}}
	for _, path := range l.keys() {
		s := l.out.settings[path]
		if s.value.at.Kind == "" {
			continue // required and missing, which is already said
		}
		err := s.entry.set(&l.out.Config, s.name, s.value)
		if err == nil {
			continue
		}
		p := Problem{At: s.value.at, Key: path, Msg: err.Error()}
		if c, ok := errors.AsType[*complaint](err); ok {
			p.Near = c.near
			if c.item >= 0 {
				p.At = s.value.items[c.item].at
			}
		}
		l.problems = append(l.problems, p)
	}
}

// keys lists every key there is now: in the order of the table, names sorted.
func (l *loader) keys() []string {
	var out []string
	done := map[string]bool{}
	for _, e := range l.entries {
		section, wild := sectionOf(e.path)
		if !wild {
			out = append(out, e.path)
			continue
		}
		if done[section] {
			continue
		}
		done[section] = true
		names := slices.Sorted(slices.Values(l.names[section]))
		for _, name := range names {
			for _, below := range l.entries {
				if of, _ := sectionOf(below.path); of == section {
					out = append(out, concrete(below.path, name))
				}
			}
		}
	}
	return out
}

// Keys lists every key that has a value, names included.
func (l *Loaded) Keys() []string { return slices.Clone(l.order) }

// Explain tells where the value of a key came from. An unknown key is
// fault.NotFound with the nearest one as the hint.
func (l *Loaded) Explain(key string) (Explanation, error) {
	s, ok := l.settings[key]
	if !ok {
		err := fault.New(fault.NotFound, "no configuration key %q", key)
		if near := nearest(key, l.order); near != "" {
			return Explanation{}, err.WithHint("did you mean %q?", near)
		}
		return Explanation{}, err.WithHint("`ombud config explain` lists them")
	}
	out := Explanation{Key: key, Value: l.shown(s.value.String()), Source: s.value.at.String(), Default: s.def.String(), Doc: s.entry.doc}
	if s.name == "" {
		out.Env = variable(key)
	}
	if s.def.at.Kind == "" {
		out.Default = ""
	}
	return out, nil
}
