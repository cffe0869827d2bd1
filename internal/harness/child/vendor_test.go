package child

import (
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/keyproxy"
)

func TestWhereAKeyIsGood(t *testing.T) {
	t.Parallel()
	const base = "https://gate.example/v1"
	upstream := func(base string, place keyproxy.Place) Vendor {
		return Vendor{keyproxy.Upstream{Base: base, Place: place}, false}
	}
	own := func(base string, place keyproxy.Place) Vendor {
		return Vendor{keyproxy.Upstream{Base: base, Place: place}, true}
	}
	none := Vendor{}
	for _, c := range []struct {
		cli                   harness.Name
		model, variable, base string
		want                  Vendor
	}{
		{harness.Claude, "", "ANTHROPIC_API_KEY", "", own("https://api.anthropic.com", keyproxy.XAPIKey)},
		{harness.Claude, "x", "ANTHROPIC_API_KEY", base, upstream(base, keyproxy.XAPIKey)},
		{harness.Claude, "", "ANTHROPIC_AUTH_TOKEN", base, upstream(base, keyproxy.Bearer)},
		{harness.Claude, "", "CLAUDE_CODE_OAUTH_TOKEN", "", none}, // a login
		{harness.Codex, "", "CODEX_API_KEY", "", own("https://api.openai.com/v1", keyproxy.Bearer)},
		{harness.Codex, "", "GATE_KEY", base, upstream(base, keyproxy.Bearer)},
		{harness.Codex, "", "GATE_KEY", "", none},
		{harness.Codex, "", "GATE", base, none}, // codex is not told of it
		{harness.Gemini, "", "GEMINI_API_KEY", "", own("https://generativelanguage.googleapis.com", keyproxy.XGoogAPIKey)},
		{harness.Gemini, "", "GOOGLE_API_KEY", "", none}, // of another API, which has another address
		{harness.OpenCode, "anthropic/x", "ANTHROPIC_API_KEY", "", own("https://api.anthropic.com/v1", keyproxy.XAPIKey)},
		{harness.OpenCode, "google/x", "ANY_KEY", "", own("https://generativelanguage.googleapis.com/v1beta", keyproxy.XGoogAPIKey)},
		{harness.OpenCode, "openrouter/a/b", "OPENROUTER_API_KEY", "", own("https://openrouter.ai/api/v1", keyproxy.Bearer)},
		{harness.OpenCode, "somebody/x", "SOME_API_KEY", "", none},
		{harness.OpenCode, "somebody/x", "SOME_API_KEY", base, upstream(base, keyproxy.Bearer)},
		{harness.OpenCode, "anthropic/x", "SOME_API_KEY", base, upstream(base, keyproxy.XAPIKey)},
		{harness.Pi, "anthropic/x", "ANTHROPIC_API_KEY", "", own("https://api.anthropic.com", keyproxy.XAPIKey)},
		{harness.Pi, "anthropic/x", "MY_API_KEY", "", none}, // pi does not look there
		{harness.Pi, "mistral/x", "MISTRAL_API_KEY", "", own("https://api.mistral.ai", keyproxy.Bearer)},
		{harness.Pi, "x", "ANTHROPIC_API_KEY", base, upstream(base, keyproxy.XAPIKey)},
		{harness.Pi, "google/x", "MY_API_KEY", base, upstream(base, keyproxy.Bearer)},
		{harness.Pi, "x", "", "", none},
		{harness.ACP, "", "ANTHROPIC_API_KEY", base, none},
	} {
		if got, known := VendorOf(c.cli, c.model, c.variable, c.base); got != c.want && known || known != (c.want != none) {
			t.Errorf("%s %s %s %s: %+v, %v", c.cli, c.model, c.variable, c.base, got, known)
		}
	}
	b := keyproxy.New(keyproxy.Config{})
	for name, p := range providers {
		for _, base := range []string{p.opencode, p.pi} {
			if base == "" {
				continue
			}
			l, err := b.Lend("run", keyproxy.Upstream{Base: base, Place: p.place}, "some-key")
			if err != nil || !strings.HasPrefix(base, "https://") {
				t.Errorf("%s: %s: %v", name, base, err)
				continue
			}
			l.End()
		}
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
