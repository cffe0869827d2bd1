package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
)

// Imported is what a file of another program says of its servers.
type Imported struct {
	Specs    []Spec // their programs as they are written, not looked up yet
	Warnings []string
}

const (
	maxFile    = 1 << 20 // bytes
	maxServers = 256     // of a file
)

// Import reads the servers of a file of Claude Desktop, Claude Code or one of the many that
// write the same (an object mcpServers), or of VS Code (an object servers). It is as
// lenient as they are: what means nothing here is kept as Extra and named in a warning.
// The error, class Invalid, says what of the file is no such file at all.
func Import(text []byte) (Imported, error) {
	var out Imported
	if len(text) > maxFile {
		return out, fault.New(fault.Invalid, "the file has %d bytes, at most %d", len(text), maxFile)
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(withoutComments(text), &top); err != nil {
		return out, fault.New(fault.Invalid, "the file is no JSON object: %w", err)
	}
	block := ""
	for _, key := range []string{"mcpServers", "servers"} {
		if _, there := top[key]; there {
			block = key
			break
		}
	}
	if block == "" {
		if nested, there := top["mcp"]; there { // VS Code's settings.json
			return Import(nested)
		}
		return out, fault.New(fault.Invalid, "the file has neither mcpServers nor servers").
			WithHint("it is a .mcp.json, a claude_desktop_config.json or a .vscode/mcp.json")
	}
	for _, key := range slices.Sorted(maps.Keys(top)) {
		if key != block {
			out.warn("%q beside %s means nothing here and stays in the file", guard.OneLine(key, maxExcerpt), block)
		}
	}
	var servers map[string]json.RawMessage
	if err := json.Unmarshal(top[block], &servers); err != nil {
		return out, fault.New(fault.Invalid, "%s is no object of servers: %w", block, err)
	}
	if len(servers) > maxServers {
		return out, fault.New(fault.Invalid, "the file has %d servers, at most %d", len(servers), maxServers)
	}
	taken := map[string]bool{}
	for _, theirs := range slices.Sorted(maps.Keys(servers)) {
		name := importName(theirs)
		if taken[name] {
			name = importName(name[:min(len(name), 20)] + "-" + itoa(len(taken)))
		}
		taken[name] = true
		if name != theirs {
			out.warn("%q is called %s here", guard.OneLine(theirs, maxExcerpt), name)
		}
		if err := out.add(name, servers[theirs]); err != nil {
			out.warn("%s is left out: %v", name, err)
		}
	}
	return out, nil
}

func (i *Imported) warn(format string, args ...any) {
	i.Warnings = append(i.Warnings, fmt.Sprintf(format, args...))
}

// importName is the nearest name a server can have here.
func importName(theirs string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, theirs)
	name = strings.Trim(name[:min(len(name), 24)], "-")
	if name == "" || name[0] < 'a' {
		name = strings.TrimRight(("mcp-" + name)[:min(len(name)+4, 24)], "-")
	}
	return name
}

// add reads one server.
func (i *Imported) add(name string, raw json.RawMessage) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(raw, &keys); err != nil {
		return fault.New(fault.Invalid, "it is no object")
	}
	s := Spec{Name: name}
	var kind, command string
	var args []string
	for _, k := range []struct {
		name string
		into any
	}{
		{"type", &kind}, {"transport", &kind}, {"command", &command}, {"args", &args}, {"env", &s.Env}, {"cwd", &s.Dir}, {"url", &s.URL},
		{"serverUrl", &s.URL}, {"httpUrl", &s.URL}, {"headers", &s.Headers}, {"disabled", &s.Disabled},
	} {
		value, there := keys[k.name]
		if !there {
			continue
		}
		if err := json.Unmarshal(value, k.into); err != nil {
			i.warn("%s: %q is not what it should be and is only kept", name, k.name)
			continue
		}
		delete(keys, k.name)
	}
	if command != "" {
		s.Command = append([]string{command}, args...)
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		i.warn("%s: %q means nothing here and is only kept", name, guard.OneLine(key, maxExcerpt))
	}
	if len(keys) > 0 {
		s.Extra = keys
	}
	i.kind(&s, kind)
	if len(s.Command) == 0 && s.URL == "" {
		return fault.New(fault.Invalid, "it has neither a command nor a url")
	}
	if len(s.Command) > 0 && s.URL != "" {
		i.warn("%s: it has a command and a url; the command is used", name)
		s.Extra = withExtra(s.Extra, "url", s.URL)
		s.URL = ""
	}
	if s.Remote() && len(s.Env) > 0 { // what nobody starts has no environment
		i.warn("%s: \"env\" means nothing for an address and is only kept", name)
		s.Extra = withExtra(s.Extra, "env", s.Env)
		s.Env = nil
	}
	if !s.Remote() && len(s.Headers) > 0 {
		i.warn("%s: \"headers\" mean nothing for a program and are only kept", name)
		s.Extra = withExtra(s.Extra, "headers", s.Headers)
		s.Headers = nil
	}
	i.placeholders(&s)
	i.Specs = append(i.Specs, s)
	return nil
}

func (i *Imported) kind(s *Spec, kind string) {
	switch strings.ToLower(kind) {
	case "", "stdio", "local", "http", "streamable-http", "streamablehttp", "streamable_http", "remote":
		return
	case "sse":
		i.warn("%s: it speaks the old HTTP+SSE transport, which ombud does not; it is added switched off", s.Name)
		s.Disabled = true
	default:
		i.warn("%s: the type %q is not known; it is only kept", s.Name, guard.OneLine(kind, maxExcerpt))
	}
	s.Extra = withExtra(s.Extra, "type", kind)
}

func withExtra(extra map[string]json.RawMessage, key string, value any) map[string]json.RawMessage {
	b, err := json.Marshal(value)
	if err != nil {
		return extra
	}
	out := maps.Clone(extra)
	if out == nil {
		out = map[string]json.RawMessage{}
	}
	out[key] = b
	return out
}

// placeholders switches off what other programs would fill in first: their variables and
// inputs are not ours, and a server with "${KEY}" for a key is of no use.
func (i *Imported) placeholders(s *Spec) {
	var found []string
	look := func(where, value string) {
		if strings.Contains(value, "${") {
			found = append(found, where)
		}
	}
	for n, arg := range s.Command {
		look("args["+itoa(n-1)+"]", arg)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		look("env."+name, s.Env[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		look("headers."+name, s.Headers[name])
	}
	look("url", s.URL)
	look("cwd", s.Dir)
	if len(found) == 0 {
		return
	}
	s.Disabled = true
	i.warn("%s: %s has a ${…}, which is not filled in here; it is added switched off. Write the value, or {{secret:NAME}} for a secret, and add it again",
		s.Name, strings.Join(found, ", "))
}

// withoutComments takes // and /* */ and commas before an end out of JSON, as VS Code
// allows them. Text stays as it is.
func withoutComments(text []byte) []byte {
	out := make([]byte, 0, len(text))
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	for n := 0; n < len(text); {
		switch {
		case text[n] == '"':
			end := n + 1
			for end < len(text) && text[end] != '"' {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			end = min(end+1, len(text))
			out = append(out, text[n:end]...)
			n = end
		case bytes.HasPrefix(text[n:], []byte("//")):
			end := bytes.IndexByte(text[n:], '\n')
			if end < 0 {
				return out
			}
			n += end
		case bytes.HasPrefix(text[n:], []byte("/*")):
			end := bytes.Index(text[n+2:], []byte("*/"))
			if end < 0 {
				return out
			}
			n += 2 + end + 2
		case text[n] == ']' || text[n] == '}':
			if kept := bytes.TrimRight(out, " \t\r\n"); bytes.HasSuffix(kept, []byte(",")) {
				out = kept[:len(kept)-1]
			}
			out = append(out, text[n])
			n++
		default:
			out = append(out, text[n])
			n++
		}
	}
	return out
}

// Seconds is a Timeout of so many.
func Seconds(n int) time.Duration { return time.Duration(n) * time.Second }
