package client

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/secret"
)

// Bounds of what an operator says of a server.
const (
	defaultTimeout = 60 * time.Second // of a call
	maxTimeout     = 10 * time.Minute
	maxCommand     = 64 << 10 // bytes
	maxValue       = 32 << 10 // bytes of a variable or a header
	maxList        = 64       // entries of each list
	maxExcerpt     = 80       // bytes shown of what is wrong
	maxExtra       = 64 << 10 // bytes of settings that mean nothing here
)

var (
	nameForm     = regexp.MustCompile(`^[a-z][a-z0-9-]{0,23}$`)
	variableForm = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	headerForm   = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")
)

// networks are what a program may reach, by the words for it.
var networks = map[string]confine.Network{"": confine.NetProxy, "proxy": confine.NetProxy, "none": confine.NetNone, "all": confine.NetAll}

// Spec is what the operator says of a server. It is kept as JSON. Values of Env and Headers
// may hold {{secret:NAME}}.
type Spec struct {
	Name string `json:"name"`

	// A program, or
	Command []string          `json:"command,omitempty"` // absolute, and its arguments
	Env     map[string]string `json:"env,omitempty"`
	Dir     string            `json:"dir,omitempty"`     // where it works; default: its own directory
	Network string            `json:"network,omitempty"` // proxy (default), none, all
	Read    []string          `json:"read,omitempty"`    // besides the program and the files among its arguments
	Write   []string          `json:"write,omitempty"`   // besides its own directory

	// a server that is there.
	URL      string            `json:"url,omitempty"`
	Headers  map[string]string `json:"headers,omitempty"`
	Private  bool              `json:"private,omitempty"`   // its address may be of this machine or its networks
	ClientID string            `json:"client_id,omitempty"` // who ombud is to its authorization server; empty: it registers itself

	Reads      []string      `json:"reads,omitempty"`      // tools of which the operator says that they change nothing, as the server calls them
	Repeatable []string      `json:"repeatable,omitempty"` // tools of which a second call is as good as one
	Timeout    time.Duration `json:"timeout,omitempty"`    // of a call; default 60 s
	Disabled   bool          `json:"disabled,omitempty"`

	NoElicitation bool `json:"no_elicitation,omitempty"` // it may not ask the operator anything
	Sampling      bool `json:"sampling,omitempty"`       // it may ask a model of the operator's, for whom that was granted

	// Extra are settings of the file it was imported from that mean nothing here.
	Extra map[string]json.RawMessage `json:"extra,omitempty"`
}

// Remote reports whether the server is reached over HTTP.
func (s *Spec) Remote() bool { return s.URL != "" }

// source is the server as who wrote what it answers.
func (s *Spec) source() string { return "mcp:" + s.Name }

// CallTimeout is how long a call may take.
func (s *Spec) CallTimeout() time.Duration {
	if s.Timeout > 0 {
		return s.Timeout
	}
	return defaultTimeout
}

// CheckName refuses what is no name of a server, with class Invalid.
func CheckName(name string) error {
	if nameForm.MatchString(name) {
		return nil
	}
	return fault.New(fault.Invalid, "a server's name begins with a-z and has 1 to 24 of a-z, 0-9 and -, not %q", guard.OneLine(name, maxExcerpt))
}

// Check refuses a Spec that cannot be used, with class Invalid.
func (s *Spec) Check() error {
	if err := CheckName(s.Name); err != nil {
		return err
	}
	switch {
	case s.Remote() == (len(s.Command) > 0):
		return fault.New(fault.Invalid, "%s is either a program or an address", s.Name).
			WithHint("ombud mcp add NAME -- COMMAND ARGS…, or ombud mcp add NAME --url URL")
	case s.Timeout < 0 || s.Timeout > maxTimeout:
		return fault.New(fault.Invalid, "a call takes at most %v, not %v", maxTimeout, s.Timeout)
	}
	for _, n := range []int{len(s.Env), len(s.Headers), len(s.Read), len(s.Write), len(s.Reads), len(s.Repeatable)} {
		if n > maxList {
			return fault.New(fault.Invalid, "%s has a list of %d entries, at most %d", s.Name, n, maxList)
		}
	}
	size := 0
	for _, raw := range s.Extra {
		size += len(raw)
	}
	if size > maxExtra {
		return fault.New(fault.Invalid, "%s has %d bytes of settings that mean nothing here, at most %d", s.Name, size, maxExtra)
	}
	if s.Remote() {
		return s.checkRemote()
	}
	return s.checkProgram()
}

func (s *Spec) checkProgram() error {
	if _, ok := networks[s.Network]; !ok {
		return fault.New(fault.Invalid, "the network of %s is none, proxy or all, not %q", s.Name, guard.OneLine(s.Network, maxExcerpt))
	}
	if !filepath.IsAbs(s.Command[0]) {
		return fault.New(fault.Invalid, "the program of %s must be an absolute path", s.Name)
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
	for _, variable := range slices.Sorted(maps.Keys(s.Env)) {
		if !variableForm.MatchString(variable) || strings.HasPrefix(strings.ToUpper(variable), "LD_") {
			return fault.New(fault.Invalid, "%s cannot be given the variable %q", s.Name, guard.OneLine(variable, maxExcerpt))
		}
		if err := checkValue(variable, s.Env[variable]); err != nil {
			return err
		}
	}
	paths := slices.Concat(s.Read, s.Write)
	if s.Dir != "" {
		paths = append(paths, s.Dir)
	}
	for _, path := range paths {
		if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
			return fault.New(fault.Invalid, "%q must be a clean absolute path", guard.OneLine(path, maxExcerpt))
		}
	}
	if len(s.Headers) > 0 || s.ClientID != "" || s.Private {
		return fault.New(fault.Invalid, "%s is a program: headers, a client id and private addresses are for an address", s.Name)
	}
	return nil
}

func (s *Spec) checkRemote() error {
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || len(s.URL) > maxValue {
		return fault.New(fault.Invalid, "%q is no http or https address", guard.OneLine(s.URL, maxExcerpt))
	}
	if u.User != nil || u.Fragment != "" {
		return fault.New(fault.Invalid, "the address of %s holds a password or a fragment", s.Name).
			WithHint("give a key as a header: --header 'Authorization=Bearer {{secret:NAME}}'")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		if !headerForm.MatchString(name) || ownHeader(name) {
			return fault.New(fault.Invalid, "%s cannot be given the header %q", s.Name, guard.OneLine(name, maxExcerpt))
		}
		if err := checkValue(name, s.Headers[name]); err != nil {
			return err
		}
	}
	if len(s.Env) > 0 || s.Dir != "" || s.Network != "" || len(s.Read) > 0 || len(s.Write) > 0 {
		return fault.New(fault.Invalid, "%s is an address: an environment, a directory and paths are for a program", s.Name)
	}
	return nil
}

// ownHeader reports whether a header is the protocol's or the transport's.
func ownHeader(name string) bool {
	name = strings.ToLower(name)
	return slices.Contains([]string{"host", "content-length", "content-type", "connection", "transfer-encoding", "accept", "upgrade", "te", "trailer"}, name) ||
		strings.HasPrefix(name, "mcp-")
}

// checkValue refuses what cannot be the value of a variable or a header. It does not
// repeat it, for it may be secret.
func checkValue(name, value string) error {
	if len(value) > maxValue || strings.ContainsAny(value, "\x00\r\n") {
		return fault.New(fault.Invalid, "the value of %s is too long, or has line ends", guard.OneLine(name, maxExcerpt))
	}
	_, err := secret.ParseText(value)
	if err != nil {
		return fmt.Errorf("the value of %s: %w", guard.OneLine(name, maxExcerpt), err)
	}
	return nil
}

// Secrets are the secrets the server is given, each once.
func (s *Spec) Secrets() (out []string) {
	for _, values := range []map[string]string{s.Env, s.Headers} {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			text, err := secret.ParseText(values[key])
			if err != nil {
				continue // Check says so
			}
			for _, name := range text.Names() {
				if !slices.Contains(out, name) {
					out = append(out, name)
				}
			}
		}
	}
	return out
}

// Hidden is NAME=VALUE of each entry, in order, without a value that is not a name of a
// secret: it may be one itself.
func Hidden(values map[string]string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := values[name]
		if text, err := secret.ParseText(value); err != nil || len(text.Names()) == 0 {
			value = "•••"
		}
		out = append(out, name+"="+value)
	}
	return out
}

// profile is what holds the program. dir is its own directory.
func (s *Spec) profile(dir string) confine.Profile {
	p := confine.MCPProfile(dir)
	p.Network = networks[s.Network]
	p.Write = append(p.Write, s.Write...)
	p.Read = append(slices.Clone(p.Read), s.Read...)
	if s.Dir != "" {
		p.Read = append(p.Read, s.Dir)
	}
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
func (s *Spec) environment(dir string, value func(name string) (secret.Value, error)) ([]string, error) {
	env := map[string]string{"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": dir}
	for _, variable := range slices.Sorted(maps.Keys(s.Env)) {
		text, err := secret.ParseText(s.Env[variable])
		if err != nil {
			return nil, err
		}
		filled, err := text.Fill(value)
		if err != nil {
			return nil, fmt.Errorf("the variable %s: %w", variable, err)
		}
		if strings.ContainsRune(filled, 0) {
			return nil, fault.New(fault.Invalid, "the variable %s holds a NUL byte, which none can", variable)
		}
		env[variable] = filled
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out, nil
}
