package config

import (
	"net/url"
	"slices"

	hider "github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/secret"
)

// parseSecretRef reads secret:NAME or none. No message repeats the text: it may well
// be the key itself.
func parseSecretRef(v value) (string, error) {
	s, err := v.one()
	if err != nil || s == none {
		return "", err
	}
	name, is, err := secret.ParseRef(s)
	if !is || err != nil {
		return "", complain("is not secret:NAME; keep the key by `ombud secret set NAME`, never in here")
	}
	return name, nil
}

// checkKeys refuses two keys for one provider where both were written.
func (l *loader) checkKeys() {
	for _, name := range l.names["models.providers"] {
		path := "models.providers." + name
		if at := l.where(path + ".api_key_env"); l.out.Config.Models.Providers[name].APIKey != "" && at.Kind != FromDefault && l.out.Config.Models.Providers[name].APIKeyEnv != "" {
			l.problem(at, path+".api_key_env", "", "there is an api_key too; one of them is too many")
		}
	}
}

// keyVariables are those that hold secrets whatever is configured.
var keyVariables = []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", passphraseVariable, "PGPASSWORD"}

// eachSecret calls fn for what the environment holds that must not be shown: the keys
// of the providers, the password of the store, the passphrase.
func eachSecret(getenv func(string) string, c Config, fn func(name, value string)) {
	variables := slices.Clone(keyVariables)
	for _, p := range c.Models.Providers {
		if p.APIKeyEnv != "" && !slices.Contains(variables, p.APIKeyEnv) {
			variables = append(variables, p.APIKeyEnv)
		}
	}
	for _, name := range variables {
		fn(name, getenv(name))
	}
	if u, err := url.Parse(c.Store.Postgres.Reveal()); err == nil && u.User != nil {
		if password, has := u.User.Password(); has {
			fn("store", password)
		}
	}
}

// EachSecret calls fn for the secrets of the environment that a configuration uses.
func (e Environment) EachSecret(c Config, fn func(name, value string)) {
	if e.getenv != nil {
		eachSecret(e.getenv, c, fn)
	}
}

// hide makes the secrets of the environment known and takes them out of what is wrong.
func (l *loader) hide() {
	l.out.known = hider.New()
	eachSecret(l.in.Getenv, l.out.Config, func(name, value string) {
		l.out.known.Register(name, []byte(value))
	})
	for i := range l.problems {
		p := &l.problems[i]
		p.Msg, p.Near, p.Excerpt = l.out.known.String(p.Msg), l.out.known.String(p.Near), l.out.known.String(p.Excerpt)
	}
}

// shown is a value as it may be shown.
func (l *Loaded) shown(text string) string { return redact(l.known.String(text)) }
