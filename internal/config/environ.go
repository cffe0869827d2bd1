package config

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
)

// OSEnv returns the process's environment. Every other package gets a function
// like this one, so that tests can give another.
func OSEnv() func(string) string { return os.Getenv }

// OSEnvNames returns the names of the OMBUD_ variables that are set, for finding
// misspelt ones.
func OSEnvNames() []string {
	var names []string
	for _, kv := range os.Environ() {
		if name, _, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(name, envPrefix) {
			names = append(names, name)
		}
	}
	return names
}

// Home returns the person's home directory, "" if there is none.
func Home() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return home
}

// Secret is a text that prints as "(hidden)", or as "" when empty, in every
// format, in JSON and in logs.
type Secret struct{ text string }

// Reveal returns the text. Call it where it is sent, not before.
func (s Secret) Reveal() string { return s.text }

// Set reports whether there is a text.
func (s Secret) Set() bool { return s.text != "" }

func (s Secret) String() string {
	if s.Set() {
		return hidden
	}
	return ""
}

// Format hides the text from every verb, %#v and %x too.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, s.String()) }

// MarshalText hides the text from encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue hides the text from structured logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Environment is what ombud takes from the environment besides its own variables.
type Environment struct {
	AnthropicAPIKey Secret
	OpenAIAPIKey    Secret
	OllamaHost      string // as written; the ollama provider's base_url has it in full
	getenv          func(string) string
}

// ReadEnvironment reads it once.
func ReadEnvironment(getenv func(string) string) Environment {
	return Environment{
		AnthropicAPIKey: Secret{getenv("ANTHROPIC_API_KEY")},
		OpenAIAPIKey:    Secret{getenv("OPENAI_API_KEY")},
		OllamaHost:      getenv("OLLAMA_HOST"),
		getenv:          getenv,
	}
}

// Key returns the key a provider is configured to use; it may be unset.
func (e Environment) Key(p Provider) Secret {
	if p.APIKeyEnv == "" || e.getenv == nil {
		return Secret{}
	}
	return Secret{strings.TrimSpace(e.getenv(p.APIKeyEnv))}
}

// String says what is set, never to what.
func (e Environment) String() string {
	state := func(name string, set bool) string {
		if set {
			return name + " is set"
		}
		return name + " is not set"
	}
	return strings.Join([]string{
		state("ANTHROPIC_API_KEY", e.AnthropicAPIKey.Set()),
		state("OPENAI_API_KEY", e.OpenAIAPIKey.Set()),
		state("OLLAMA_HOST", e.OllamaHost != ""),
	}, ", ")
}

// GoString is String.
func (e Environment) GoString() string { return e.String() }

// LogValue is String for structured logs.
func (e Environment) LogValue() slog.Value { return slog.StringValue(e.String()) }
