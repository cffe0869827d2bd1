package delegate

import (
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
)

func TestRoutes(t *testing.T) {
	t.Parallel()
	admit := func(routes ...string) func(*Config) {
		return func(c *Config) {
			c.Harnesses = append(c.Harnesses, Harness{Name: "mine", CLI: harness.ACP, Program: "/usr/bin/true"}, Harness{Name: "opencode", CLI: harness.OpenCode, Program: "/usr/bin/true"})
			for _, text := range routes {
				r, err := ParseRoute(text)
				if err != nil {
					t.Fatal(err)
				}
				c.Admit = append(c.Admit, r)
			}
		}
	}
	for name, c := range map[string]struct {
		admit []string
		want  Want
		route string
		class fault.Class
		says  string
	}{
		"the first there is":         {want: Want{}, route: "claude", says: "first"},
		"the one asked for":          {want: Want{Harness: "codex"}, route: "codex/gpt-5.5", says: "asked for"},
		"one nobody knows":           {want: Want{Harness: "cursor"}, class: fault.NotFound, says: "cursor"},
		"one that is not here":       {want: Want{Harness: "pi"}, class: fault.Unavailable, says: "not installed"},
		"a model not admitted":       {want: Want{Harness: "claude", Model: "claude-opus-4-6"}, class: fault.Denied, says: "not admitted"},
		"a model that is":            {admit: []string{"claude/claude-opus-4-6"}, want: Want{Harness: "claude", Model: "claude-opus-4-6"}, route: "claude/claude-opus-4-6"},
		"any model of it":            {admit: []string{"claude/*"}, want: Want{Harness: "claude", Model: "claude-opus-4-6"}, route: "claude/claude-opus-4-6"},
		"its own alone":              {admit: []string{"claude"}, want: Want{Harness: "codex"}, class: fault.Denied, says: "not admitted"},
		"of another vendor":          {admit: []string{"claude/*"}, want: Want{Harness: "claude", Model: "gpt-5.5"}, class: fault.Denied, says: "OpenAI"},
		"behind a provider":          {admit: []string{"opencode/*"}, want: Want{Harness: "opencode", Model: "anthropic/claude-opus-4-6"}, class: fault.Denied, says: "Anthropic"},
		"behind an aggregator":       {admit: []string{"opencode/*"}, want: Want{Harness: "opencode", Model: "openrouter/google/gemini-2.5-pro"}, class: fault.Denied, says: "Google"},
		"by another spelling":        {admit: []string{"opencode/*"}, want: Want{Harness: "opencode", Model: "x/GPT5-mini"}, class: fault.Denied, says: "OpenAI"},
		"a choice of the program's":  {want: Want{Harness: "opencode"}, class: fault.Denied, says: "no model of its own"},
		"of no vendor we know":       {admit: []string{"opencode/*"}, want: Want{Harness: "opencode", Model: "x/qwen3"}, route: "opencode/x/qwen3"},
		"an agent of the operator's": {want: Want{Harness: "mine"}, route: "mine"},
		"a flag for a model":         {admit: []string{"claude/*"}, want: Want{Harness: "claude", Model: "--dangerously"}, class: fault.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, dbtest.SQLite(t), admit(c.admit...))
			_, r, why, err := h.Resolve(c.want)
			switch {
			case c.class == "" && (err != nil || r.String() != c.route || why == "" || !strings.Contains(why, c.says)):
				t.Errorf("%s, %q, %v", r, why, err)
			case c.class != "" && (!fault.Is(err, c.class) || !strings.Contains(err.Error(), c.says)):
				t.Errorf("%s, %v", r, err)
			}
		})
	}
}

func FuzzParseRoute(f *testing.F) {
	for _, s := range []string{"claude", "claude/x", "claude/*", "/", "a/", "a/b/c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRoute(text)
		if err == nil && (r.Harness == "" || r.String() != text) {
			t.Errorf("%q is read as %q", text, r)
		}
	})
}
