package config

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
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
	Passphrase      Secret // opens the vault
	Credentials     string // systemd's directory of credentials, "" if there is none
	SessionBus      string // address of the session's bus, where the keyring is, "" if there is none
	getenv          func(string) string
}

// passphraseVariable holds the passphrase of the vault. It is no key of the
// configuration: nothing shows it.
const passphraseVariable = "OMBUD_PASSPHRASE"

// OSEnvForDaemon is this process's environment without what is handed to a daemon
// in another way: a passphrase.
func OSEnvForDaemon() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, passphraseVariable+"=") })
}

// sessionBus is the address of a bus that is there. None is ever started.
func sessionBus(getenv func(string) string) string {
	if address := getenv("DBUS_SESSION_BUS_ADDRESS"); strings.HasPrefix(address, "unix:") {
		return address
	}
	if dir := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		path := filepath.Join(dir, "bus")
		if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 && !strings.ContainsAny(path, ",;%\\*") {
			return "unix:path=" + path
		}
	}
	return ""
}

// ReadEnvironment reads it once.
func ReadEnvironment(getenv func(string) string) Environment {
	return Environment{
		AnthropicAPIKey: Secret{getenv("ANTHROPIC_API_KEY")},
		OpenAIAPIKey:    Secret{getenv("OPENAI_API_KEY")},
		OllamaHost:      getenv("OLLAMA_HOST"),
		Passphrase:      Secret{getenv(passphraseVariable)},
		Credentials:     getenv("CREDENTIALS_DIRECTORY"),
		SessionBus:      sessionBus(getenv),
		getenv:          getenv,
	}
}

// Programs is what of the environment programs need that ombud starts outside of any job:
// where things are, and how to write.
func (e Environment) Programs() (out []string) {
	if e.getenv == nil {
		return nil
	}
	for _, name := range []string{
		"PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME",
		"SYSTEMROOT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "PATHEXT",
	} {
		if v := e.getenv(name); v != "" {
			out = append(out, name+"="+v)
		}
	}
	return out
}

// Named returns a key by the name of its variable; it may be unset.
func (e Environment) Named(variable string) Secret {
	if e.getenv == nil {
		return Secret{}
	}
	return Secret{strings.TrimSpace(e.getenv(variable))}
}

// Key returns the key a provider is configured to use; it may be unset.
func (e Environment) Key(p Provider) Secret {
	if p.APIKeyEnv == "" {
		return Secret{}
	}
	return e.Named(p.APIKeyEnv)
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
		state(passphraseVariable, e.Passphrase.Set()),
	}, ", ")
}

// GoString is String.
func (e Environment) GoString() string { return e.String() }

// LogValue is String for structured logs.
func (e Environment) LogValue() slog.Value { return slog.StringValue(e.String()) }
