package asks

import (
	"context"
	"encoding/json"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/idna"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/form"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// ElicitTool is the tool by which a server asks the operator. Nothing is done by it: its
// result is what they filled in.
const ElicitTool = "mcp.elicit"

// elicitInput is a question to the operator. All but its server and tool is the server's
// own words.
type elicitInput struct {
	Server  string          `json:"server"`
	Tool    string          `json:"tool"`
	Message string          `json:"message"`
	Schema  json.RawMessage `json:"schema,omitempty"` // of a form, or
	URL     string          `json:"url,omitempty"`    // to open
	Before  bool            `json:"before,omitempty"`
}

const elicitSchema = `{"type":"object","additionalProperties":false,"required":["server","tool","message"],"properties":{
"server":{"type":"string","minLength":1,"maxLength":24},"tool":{"type":"string","minLength":1,"maxLength":64},
"message":{"type":"string","maxLength":8192},"schema":{"type":"object"},
"url":{"type":"string","minLength":1,"maxLength":4096},"before":{"type":"boolean"}}}`

// confirmation is the form of a question that wants nothing filled in.
const confirmation = `{"type":"object","properties":{}}`

func elicitDefinition() tool.Definition {
	return tool.Definition{
		Name: ElicitTool, Description: "Asks the operator something for an MCP server.", Input: json.RawMessage(elicitSchema),
		Kind: tool.Local, Within: true, Timeout: 10 * time.Second, MaxOutput: 64 << 10, Source: label.Operator,
		Destination: func(raw json.RawMessage) tool.Destination {
			in, _ := tool.Decode[elicitInput](raw) // validated
			return tool.Destination{Name: "the MCP server " + in.Server}
		},
		Scopes: func(raw json.RawMessage) ([]scope.Scope, error) {
			in, err := tool.Decode[elicitInput](raw)
			if err != nil {
				return nil, err
			}
			need, err := scope.Of("mcp.call", in.Server+"/"+in.Tool)
			return []scope.Scope{need}, err
		},
		Form: func(raw json.RawMessage) json.RawMessage {
			in, _ := tool.Decode[elicitInput](raw) // validated
			if in.URL != "" || in.Schema == nil {
				return json.RawMessage(confirmation)
			}
			return in.Schema
		},
		Summary: func(raw json.RawMessage) string {
			in, _ := tool.Decode[elicitInput](raw) // validated
			return in.summary()
		},
	}
}

// maxShown bounds what a person is shown of a server's words, in bytes; what is left out
// is said.
const maxShown = 2000

func whole(text string) string {
	out := tool.ShowUpTo(text, maxShown)
	if over := len(text) - maxShown; over > 0 {
		out += " [and " + strconv.Itoa(over) + " bytes or more that are NOT shown]"
	}
	return out
}

func (in elicitInput) summary() string {
	if in.URL == "" {
		text := "the MCP server " + in.Server + " asks, in its own words: " + whole(in.Message)
		if secret := in.secrets(); len(secret) > 0 {
			text += " [what it asks for looks secret: " + strings.Join(secret, ", ") + "; what you fill in is sent to " + in.Server + "]"
		}
		return text
	}
	when := "say yes when you have opened it"
	if in.Before {
		when = "it does what it was called for only after that, so say yes when you are done there"
	}
	return "the MCP server " + in.Server + " wants you to open a page of " + host(in.URL) + ": " + whole(in.URL) +
		" [ombud opens nothing: open it yourself if you trust it, and " + when + "]; its own words: " + whole(in.Message)
}

// host is where an address leads, as networks name it: letters that look like others do
// not in it.
func host(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "an address that cannot be read"
	}
	name, err := idna.Lookup.ToASCII(u.Hostname())
	if _, no := netip.ParseAddr(u.Hostname()); no == nil {
		name = u.Hostname()
	} else if err != nil {
		name = tool.Show(u.Hostname()) + " (which is no name of a host)"
	}
	if port := u.Port(); port != "" {
		name += " port " + port
	}
	if u.Scheme == "http" {
		name += " (not encrypted)"
	}
	if slices.ContainsFunc(strings.Split(name, "."), func(part string) bool { return strings.HasPrefix(part, "xn--") }) {
		name += " (shown as " + tool.Show(u.Hostname()) + ", in letters that can look like others)"
	}
	return name
}

// secretWords are how what is secret is called.
var secretWords = regexp.MustCompile(`(?i)pass(word|phrase|code|wd)|\bpin\b|secret|token|credential|api[ _-]?key|private[ _-]?key|\bkey\b|\botp\b|\bcvv\b|card[ _-]?number|recovery|seed[ _-]?phrase|kennwort|passwort`)

// secrets are the fields that look as if what is secret was to be filled in.
func (in elicitInput) secrets() (out []string) {
	if in.Schema == nil {
		return nil
	}
	f, err := form.Parse(in.Schema)
	if err != nil {
		return nil // the call is refused for it
	}
	for _, x := range f.Fields {
		if slices.ContainsFunc([]string{spaced(x.Name), x.Title, x.Description}, secretWords.MatchString) {
			out = append(out, tool.Show(x.Name))
		}
	}
	return out
}

// spaced is a name with its words apart: apiKey is api Key.
func spaced(name string) string {
	var b strings.Builder
	last := ' '
	for _, r := range name {
		if r >= 'A' && r <= 'Z' && last >= 'a' && last <= 'z' {
			b.WriteByte(' ')
		}
		last = r
		if r == '_' || r == '-' || r == '.' {
			r = ' '
		}
		b.WriteRune(r)
	}
	return b.String()
}

// elicit is the handler of mcp.elicit, called when the operator has said yes.
func (s *Service) elicit(_ context.Context, inv tool.Invocation) (tool.Output, error) {
	if inv.Said == nil {
		return tool.Output{}, fault.New(fault.Internal, "a question of a server was answered by nobody")
	}
	if name := s.d.Hide.Find(inv.Said); name != "" {
		return tool.Output{}, fault.New(fault.Denied, "what was filled in holds the value of the secret %s, and was not sent", name)
	}
	return tool.Output{JSON: inv.Said}, nil
}
