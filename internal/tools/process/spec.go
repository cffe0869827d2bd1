package process

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/secret"
)

// Spec is what the operator says of a tool process. It is kept as JSON.
type Spec struct {
	Name    string   `json:"name"`
	Command []string `json:"command"` // the program, absolute, and its arguments

	// Scopes are the most its tools may need. If they name tools, those are the only
	// tools it may register.
	Scopes []Bound `json:"scopes"`
	// Narrow gives a tool a narrower scope than it says it needs.
	Narrow []Bound `json:"narrow,omitempty"`

	Network string            `json:"network,omitempty"` // none (default), proxy, all
	Secrets map[string]string `json:"secrets,omitempty"` // variable of its environment → name of a secret
	Read    []string          `json:"read,omitempty"`    // besides the program and the files among its arguments
	Write   []string          `json:"write,omitempty"`   // besides its own directory

	Reads      []string      `json:"reads,omitempty"`      // tools of which the operator says that they change nothing
	Repeatable []string      `json:"repeatable,omitempty"` // tools of which a second call is as good as one
	Timeout    time.Duration `json:"timeout,omitempty"`    // of a call; default 60 s
}

// Bound is a scope, of one tool or of all.
type Bound struct {
	Tool  string      `json:"tool,omitempty"` // as the process calls it; "" for all
	Scope scope.Scope `json:"scope"`
}

// String is what ParseBound reads.
func (b Bound) String() string {
	if b.Tool == "" {
		return b.Scope.String()
	}
	return b.Tool + "=" + b.Scope.String()
}

// ParseBound reads SCOPE or TOOL=SCOPE.
func ParseBound(text string) (b Bound, err error) {
	if tool, rest, ok := strings.Cut(text, "="); ok && toolForm.MatchString(tool) {
		b.Tool, text = tool, rest
	}
	b.Scope, err = scope.Parse(text)
	return b, err
}

const (
	defaultTimeout = 60 * time.Second
	maxTimeout     = 10 * time.Minute
	maxOutput      = 4 << 20 // bytes kept of one result
	maxCommand     = 64 << 10
	maxList        = 64 // entries of each list of a Spec
)

var (
	processForm  = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	toolForm     = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]*(\.[a-zA-Z0-9_-]+)*$`)
	variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
)

// ownVariables are set by ombud, or change what runs.
var ownVariables = []string{"PATH", "HOME", "LANG", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "LD_PRELOAD", "LD_LIBRARY_PATH"}

var networks = map[string]confine.Network{"": confine.NetNone, "none": confine.NetNone, "proxy": confine.NetProxy, "all": confine.NetAll}

// Check refuses a Spec that cannot be used, with class Invalid.
func (s *Spec) Check() error {
	switch {
	case !processForm.MatchString(s.Name):
		return fault.New(fault.Invalid, "a tool process's name begins with a-z and has 1 to 32 of a-z, 0-9 and -, not %q", guard.OneLine(s.Name, maxExcerpt))
	case len(s.Command) == 0 || !filepath.IsAbs(s.Command[0]):
		return fault.New(fault.Invalid, "the program of %s must be an absolute path", s.Name)
	case len(s.Scopes) == 0:
		return fault.New(fault.Invalid, "%s needs at least one scope: the most its tools may need", s.Name).
			WithHint("for tools that touch nothing of yours: --scope 'tool:%s.*'", s.Name)
	case s.Timeout < 0 || s.Timeout > maxTimeout:
		return fault.New(fault.Invalid, "a call takes at most %v, not %v", maxTimeout, s.Timeout)
	}
	if _, ok := networks[s.Network]; !ok {
		return fault.New(fault.Invalid, "the network of %s is none, proxy or all, not %q", s.Name, s.Network)
	}
	size := 0
	for _, arg := range s.Command {
		size += len(arg)
		if strings.ContainsRune(arg, 0) {
			return fault.New(fault.Invalid, "the command of %s holds a NUL byte", s.Name)
		}
	}
	if size > maxCommand {
		return fault.New(fault.Invalid, "the command of %s has %d bytes, at most %d", s.Name, size, maxCommand)
	}
	for _, n := range []int{len(s.Scopes), len(s.Narrow), len(s.Secrets), len(s.Read), len(s.Write), len(s.Reads), len(s.Repeatable)} {
		if n > maxList {
			return fault.New(fault.Invalid, "%s has a list of %d entries, at most %d", s.Name, n, maxList)
		}
	}
	if err := s.checkBounds(); err != nil {
		return err
	}
	if err := s.checkSecrets(); err != nil {
		return err
	}
	for _, path := range slices.Concat(s.Read, s.Write) {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
			return fault.New(fault.Invalid, "%q must be a clean absolute path", guard.OneLine(path, maxExcerpt))
		}
	}
	return nil
}

func (s *Spec) checkBounds() error {
	named, all := 0, 0
	for _, b := range slices.Concat(s.Scopes, s.Narrow) {
		if b.Scope.IsZero() {
			return fault.New(fault.Invalid, "%s has an empty scope", s.Name)
		}
	}
	for _, b := range s.Scopes {
		switch {
		case b.Tool != "":
			named++
		case !b.own():
			all++
		}
	}
	if named > 0 && all > 0 {
		return fault.New(fault.Invalid, "either every scope of %s names a tool or none does", s.Name).
			WithHint("write TOOL=SCOPE for each tool it may register")
	}
	seen := map[string]bool{}
	for _, b := range s.Narrow {
		if b.Tool == "" || seen[b.Tool] {
			return fault.New(fault.Invalid, "to narrow a scope takes TOOL=SCOPE, once for a tool: %s", b)
		}
		seen[b.Tool] = true
	}
	for _, tool := range slices.Concat(s.Reads, s.Repeatable, slices.Collect(maps.Keys(seen))) {
		if !toolForm.MatchString(tool) {
			return fault.New(fault.Invalid, "%q is no name of a tool", guard.OneLine(tool, maxExcerpt))
		}
		if !s.lists(tool) {
			return fault.New(fault.Invalid, "%s is not among the tools that %s may register", tool, s.Name)
		}
	}
	return nil
}

func (s *Spec) checkSecrets() error {
	for _, variable := range slices.Sorted(maps.Keys(s.Secrets)) {
		name := s.Secrets[variable]
		if !variableForm.MatchString(variable) || slices.Contains(ownVariables, strings.ToUpper(variable)) {
			return fault.New(fault.Invalid, "a secret cannot be put into the variable %q", guard.OneLine(variable, maxExcerpt))
		}
		if err := secret.CheckName(name); err != nil { // it does not repeat the name, which may be the value
			return err
		}
	}
	return nil
}

// noticeBase is the scope by which a process sends notices of its own accord.
const noticeBase = "notify.send"

// own reports whether a scope is the process's own, not one of its tools.
func (b Bound) own() bool { return b.Tool == "" && b.Scope.Base().String() == noticeBase }

// of reports whether a scope is for a tool.
func (b Bound) of(tool string) bool { return b.Tool == tool || b.Tool == "" && !b.own() }

// lists reports whether the process may register a tool of this name at all.
func (s *Spec) lists(tool string) bool {
	return slices.ContainsFunc(s.Scopes, func(b Bound) bool { return b.of(tool) })
}

// allows reports whether a tool may need scope.
func (s *Spec) allows(tool string, need scope.Scope) bool {
	return slices.ContainsFunc(s.Scopes, func(b Bound) bool { return b.of(tool) && b.Scope.Covers(need) })
}

// notifies reports whether the process may send notices under need.
func (s *Spec) notifies(need scope.Scope) bool {
	return slices.ContainsFunc(s.Scopes, func(b Bound) bool { return b.own() && b.Scope.Covers(need) })
}

// itself reports whether a scope only stands for the process's own tools.
func (s *Spec) itself(need scope.Scope) bool {
	base, name, _ := strings.Cut(need.String(), ":")
	return base == "tool" && (name == s.Name || strings.HasPrefix(name, s.Name+"."))
}

// ceiling is what a tool may need at most, for people.
func (s *Spec) ceiling(tool string) string {
	var out []string
	for _, b := range s.Scopes {
		if b.of(tool) {
			out = append(out, b.Scope.String())
		}
	}
	return strings.Join(out, ", ")
}

func (s *Spec) narrowed(tool string) (scope.Scope, bool) {
	for _, b := range s.Narrow {
		if b.Tool == tool {
			return b.Scope, true
		}
	}
	return scope.Scope{}, false
}

// CallTimeout is how long a call may take.
func (s *Spec) CallTimeout() time.Duration {
	if s.Timeout > 0 {
		return s.Timeout
	}
	return defaultTimeout
}

// Subject is who the process is when it acts by itself, which it does only to send
// a notice.
func (s *Spec) Subject() string { return "tool:" + s.Name }

// profile is what holds the process. dir is its own directory.
func (s *Spec) profile(dir string) confine.Profile {
	p := confine.ToolProfile(dir)
	p.Network = networks[s.Network]
	p.Write = append(p.Write, s.Write...)
	p.Read = append(p.Read, s.Read...)
	for _, arg := range s.Command {
		info, err := os.Stat(arg)
		if err == nil && filepath.IsAbs(arg) && info.Mode().IsRegular() && !slices.ContainsFunc(p.Write, func(w string) bool { return below(arg, w) }) {
			p.Read = append(p.Read, arg) // the operator named it; where it may write, it stays writable
		}
	}
	return p
}

// below reports whether path is dir or in it.
func below(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// environment is all of it. value gives the value of a secret.
func (s *Spec) environment(dir string, value func(name string) (string, error)) ([]string, error) {
	env := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "HOME=" + dir}
	for _, variable := range slices.Sorted(maps.Keys(s.Secrets)) {
		text, err := value(s.Secrets[variable])
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", s.Secrets[variable], err)
		}
		if strings.ContainsRune(text, 0) {
			return nil, fault.New(fault.Invalid, "secret %s holds a NUL byte, which no variable can", s.Secrets[variable])
		}
		env = append(env, variable+"="+text)
	}
	return env, nil
}
