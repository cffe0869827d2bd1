package child

import (
	"strings"

	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/keyproxy"
)

// Vendor is where the API key of a program is good.
type Vendor struct {
	keyproxy.Upstream
	Stands bool // the address is the one the program knows by itself; see Task
}

// provider is one that opencode and pi both know, by the name both give it.
type provider struct {
	opencode, pi string // its documented address, as each takes it; "" where that was not seen to work
	place        keyproxy.Place
	variable     string // pi finds its key in, where no other is named
}

var providers = map[string]provider{
	"anthropic":  {"https://api.anthropic.com/v1", "https://api.anthropic.com", keyproxy.XAPIKey, "ANTHROPIC_API_KEY"},
	"openai":     {"https://api.openai.com/v1", "https://api.openai.com/v1", keyproxy.Bearer, "OPENAI_API_KEY"},
	"google":     {"https://generativelanguage.googleapis.com/v1beta", "https://generativelanguage.googleapis.com/v1beta", keyproxy.XGoogAPIKey, "GEMINI_API_KEY"},
	"openrouter": {"https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1", keyproxy.Bearer, "OPENROUTER_API_KEY"},
	"groq":       {"https://api.groq.com/openai/v1", "https://api.groq.com/openai/v1", keyproxy.Bearer, "GROQ_API_KEY"},
	"mistral":    {"", "https://api.mistral.ai", keyproxy.Bearer, "MISTRAL_API_KEY"},
	"deepseek":   {"https://api.deepseek.com", "https://api.deepseek.com", keyproxy.Bearer, "DEEPSEEK_API_KEY"},
	"xai":        {"https://api.x.ai/v1", "https://api.x.ai/v1", keyproxy.Bearer, "XAI_API_KEY"},
	"cerebras":   {"https://api.cerebras.ai/v1", "https://api.cerebras.ai/v1", keyproxy.Bearer, "CEREBRAS_API_KEY"},
}

// VendorOf tells where a program that runs model with a key in variable takes it, at base
// or, if that is "", at its own address. It does not know where the address or the way the
// key is given is not known: there the key has to be the program's.
func VendorOf(cli harness.Name, model, variable, base string) (v Vendor, known bool) {
	at := func(own string, place keyproxy.Place) (Vendor, bool) {
		if base != "" {
			return Vendor{Upstream: keyproxy.Upstream{Base: base, Place: place}}, true
		}
		return Vendor{keyproxy.Upstream{Base: own, Place: place}, true}, own != ""
	}
	named := keyOf([]string{variable + "="}) != "" // or the program is not told of it
	who, _, split := strings.Cut(model, "/")
	p := providers[who]
	switch cli {
	case harness.Claude:
		switch variable {
		case "ANTHROPIC_API_KEY":
			return at("https://api.anthropic.com", keyproxy.XAPIKey)
		case "ANTHROPIC_AUTH_TOKEN":
			return at("https://api.anthropic.com", keyproxy.Bearer)
		}
	case harness.Codex:
		if base != "" && named || variable == "CODEX_API_KEY" || variable == "OPENAI_API_KEY" {
			return at("https://api.openai.com/v1", keyproxy.Bearer)
		}
	case harness.Gemini:
		if variable == "GEMINI_API_KEY" {
			return at("https://generativelanguage.googleapis.com", keyproxy.XGoogAPIKey)
		}
	case harness.OpenCode:
		if named && split {
			return at(p.opencode, p.place) // of a provider nobody knows: as its protocol takes it, which is OpenAI's
		}
	case harness.Pi:
		switch {
		case base != "" && named && piAPI(map[bool]string{true: who}[split], variable) == "anthropic-messages":
			return at("", keyproxy.XAPIKey)
		case base != "" && named:
			return at("", keyproxy.Bearer)
		case variable == p.variable && split:
			return at(p.pi, p.place)
		}
	}
	return Vendor{}, false
}
