package act

import (
	"encoding/json"
	"testing"

	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

func TestWhatTheOperatorWroteIsNoNews(t *testing.T) {
	t.Parallel()
	said := []string{
		"read https://a.example/x?y=1, please", "and (http://b.example/p_(q)) or <https://c.example/>", "see D.example/Path#part.",
		`do web.fetch {"url":"https://e.example/z"}`,
	}
	for url, want := range map[string]bool{
		"https://a.example/x?y=1":              true,
		"https://a.example/x":                  false, // where a word is cut could tell something
		"https://a.example/x?y=12":             false,
		"https://a.example/":                   false,
		"https://b.example/p_(q)":              true,
		"https://c.example":                    true,
		"https://c.example/":                   true,
		"https://d.example/Path":               true,
		"https://d.example/path":               false,
		"https://e.example/z":                  true,
		"https://e.example/z?leak":             false,
		"https://evil.example/":                false,
		"https://a.example@evil.example/x?y=1": false,
		"":                                     false,
	} {
		if got := wrote(said, url); got != want {
			t.Errorf("%q was written: %t", url, got)
		}
	}
	if wrote(nil, "https://a.example") {
		t.Error("nobody wrote anything")
	}
}

func TestWhomACallTells(t *testing.T) {
	t.Parallel()
	says := func(d tool.Destination) func(json.RawMessage) tool.Destination {
		return func(json.RawMessage) tool.Destination { return d }
	}
	at := &Authority{Readers: label.Conversation("x")}
	anybody := policy.Destination{Emits: true, Name: "t"}
	silent := policy.Destination{Name: "t"}
	for name, c := range map[string]struct {
		def   tool.Definition
		scope string
		want  policy.Destination
	}{
		"an effect whose author forgot it":   {tool.Definition{Kind: tool.Effect}, "tool:a", anybody},
		"reading":                            {tool.Definition{Kind: tool.Effect, ReadOnly: true}, "fs.read:/a", silent},
		"reading over a network":             {tool.Definition{Kind: tool.Effect, ReadOnly: true}, "net.fetch:https://a.example", anybody},
		"rows of the store":                  {tool.Definition{Kind: tool.Local}, "memory.write", silent},
		"rows that are sent later":           {tool.Definition{Kind: tool.Local}, "channel.send:a", anybody},
		"the conversation":                   {tool.Definition{Kind: tool.Local, Destination: says(tool.Destination{Name: "here", Here: true})}, "remind.write", policy.Destination{Emits: true, Readers: "conversation:x", Name: "here"}},
		"nobody":                             {tool.Definition{Kind: tool.Effect, Destination: says(tool.Destination{Nobody: true})}, "tool:a", policy.Destination{}},
		"a host by a URL":                    {tool.Definition{Kind: tool.Effect, Destination: says(tool.Destination{Readers: label.Anyone, Name: "a", Sends: "https://a.example/1"})}, "net.fetch:https://a.example", policy.Destination{Emits: true, Readers: label.Anyone, Name: "a"}},
		"a host by a URL the operator wrote": {tool.Definition{Kind: tool.Effect, Destination: says(tool.Destination{Readers: label.Anyone, Name: "a", Sends: "https://a.example/2"})}, "net.fetch:https://a.example", policy.Destination{Readers: label.Anyone, Name: "a"}},
	} {
		c.def.Name = "t"
		k := call{Call: Call{Tool: "t", Authority: at, Said: []string{"go to https://a.example/2"}}, def: c.def, scopes: []scope.Scope{scope.Must(c.scope)}}
		if got := k.destination(); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
