package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/secret"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

// hiding returns what takes secrets out of all that is shown, which knows those of the
// environment by now, and the options with a logger that does so. It comes before
// everything that could log or fail.
func hiding(o Options) (Options, *redact.Redactor) {
	hide := redact.New()
	o.Logger = slog.New(hide.Handler(o.Logger.Handler()))
	o.Environment.EachSecret(o.Config.Config, func(name, value string) { know(hide, o.Logger, name, []byte(value)) })
	if o.Handed != nil {
		know(hide, o.Logger, passphrase, o.Handed.Reveal())
	}
	if ask := o.Ask; ask != nil {
		o.Ask = func(ctx context.Context, q vault.Question) (*vault.Secret, error) {
			s, err := ask(ctx, q)
			if err == nil {
				know(hide, o.Logger, passphrase, s.Reveal())
			}
			return s, err
		}
	}
	return o, hide
}

// passphrase is what stands in the place of what opens the vault.
const passphrase = "vault-passphrase"

// know makes a value known that somebody chose without ombud having a say, and tells
// the log what speaks against it. One that answers are made of is not hidden: they
// could not be read without it, and it is no secret.
func know(hide *redact.Redactor, log *slog.Logger, name string, value []byte) {
	why, short := redact.Judge(value)
	switch {
	case len(value) == 0:
		return
	case isOwnWord(value):
		why = "it is a word that ombud's answers are made of, so it is not hidden"
	case !short:
		hide.Register(name, value)
	}
	if why != "" {
		log.Warn("a weak secret", "name", name, "why", why)
	}
}

// openSecrets makes the stored secrets known, before any of them can be used. One that
// cannot be read is told and fails where it is used.
func (d *Daemon) openSecrets(ctx context.Context) {
	if s, err := d.keeper.Given(ctx); err == nil && s != nil { // an error was told when the vault was opened
		know(d.hide, d.log, passphrase, s.Reveal())
		s.Wipe()
	}
	d.secrets = secret.New(d.db, d.vault, d.events, d.audit, d.hide)
	if err := d.secrets.Load(ctx); err != nil {
		d.log.Error("a secret cannot be read", "error", err)
	}
}

// knowToken makes a credential known that was made or has proved itself, as a whole
// and by its secret part.
func (d *Daemon) knowToken(kind, token string) {
	name, part, _ := strings.Cut(token, ".")
	d.hide.Transient(kind+":"+name, []byte(part))
}

// keyOf is how the key of a provider that names a secret is had, each time it is
// needed.
func (c chooser) keyOf(p config.Provider) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		v, err := c.secrets.Resolve(ctx, p.APIKey)
		if err != nil {
			return "", err
		}
		base, err := url.Parse(p.BaseURL)
		if err != nil {
			return "", fault.New(fault.Config, "%s is no address", p.BaseURL)
		}
		return strings.TrimSpace(v.Reveal()), v.For(base)
	}
}

// hasKey reports whether a provider has a key, how it is called for people, and how
// it is given one.
func (c chooser) hasKey(ctx context.Context, p config.Provider) (has bool, name, how string) {
	if p.APIKey != "" {
		return c.secrets.Check(ctx, p.APIKey) == nil, "secret " + p.APIKey, "ombud secret set " + p.APIKey + ", then ombud stop and ask again to use "
	}
	return c.env.Key(p).Set(), p.APIKeyEnv, "set it for the daemon, ombud stop and ask again, or ombud secret set NAME and api_key: secret:NAME, to use "
}

// withKey is a provider that is built with its key.
func (c chooser) withKey(name string, p config.Provider, build func(key string) (model.Provider, error)) (model.Provider, error) {
	if p.APIKey == "" {
		return build(c.env.Key(p).Reveal())
	}
	if _, err := build("a key that is not used"); err != nil { // what else is wrong is told at the start
		return nil, err
	}
	return model.Keyed(name, c.keyOf(p), build), nil
}

// missingSecrets are those that the models in use name and nobody has set.
func (d *Daemon) missingSecrets(ctx context.Context) (out []wire.Missing) {
	for _, name := range d.modelSecrets() {
		if err := d.secrets.Check(ctx, name); err != nil {
			out = append(out, wire.Missing{Name: "secret " + name, Hint: fault.HintOf(err)})
		}
	}
	return out
}

// modelSecrets are the secrets that the models in use name.
func (d *Daemon) modelSecrets() []string {
	var out []string
	use := []string{d.models.main.provider}
	if s := d.models.summary; s != nil {
		use = append(use, s.provider)
	}
	for _, provider := range use {
		if name := d.o.Config.Config.Models.Providers[provider].APIKey; name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// namedBy lists the configuration keys that name a secret.
func (d *Daemon) namedBy(name string) []string {
	var out []string
	providers := d.o.Config.Config.Models.Providers
	for _, provider := range slices.Sorted(maps.Keys(providers)) {
		if providers[provider].APIKey == name {
			out = append(out, "models.providers."+provider+".api_key")
		}
	}
	return out
}

func (d *Daemon) operatorSecrets(m *ipc.Mux) {
	ipc.Handle(m, wire.SecretSet, d.secretSet)
	ipc.Handle(m, wire.SecretList, func(ctx context.Context, _ wire.Empty) (out wire.SecretListResult, err error) {
		list, err := d.secrets.List(ctx)
		for _, i := range list {
			out.Secrets = append(out.Secrets, wireSecret(i))
		}
		return out, err
	})
	ipc.Handle(m, wire.SecretRemove, func(ctx context.Context, req wire.SecretRemoveRequest) (out wire.SecretRemoveResult, err error) {
		i, err := d.secrets.Remove(ctx, req.Name, secret.ByOperator)
		out.Secret = wireSecret(i)
		for _, key := range d.namedBy(req.Name) {
			out.Notes = append(out.Notes, key+" still names it: what needs it fails until it is set again")
		}
		return out, err
	})
}

func wireSecret(i secret.Info) wire.Secret {
	return wire.Secret{
		Name: i.Name, Version: i.Version, Hosts: i.Hosts, SetBy: i.By, SetAt: i.SetAt, UsedAt: i.UsedAt, Fingerprint: i.Fingerprint,
	}
}

func (d *Daemon) secretSet(ctx context.Context, req wire.SecretSetRequest) (out wire.SecretSetResult, err error) {
	if isOwnWord(req.Value) {
		return out, fault.New(fault.Invalid, "the value is a word that ombud itself uses in its answers, which could not be read without it").
			WithHint("such a word is guessed at once: take another value")
	}
	i, err := d.secrets.Set(ctx, secret.Setting{Name: req.Name, Value: req.Value, Hosts: req.Hosts}, secret.ByOperator)
	if err != nil {
		return out, err
	}
	d.channels.Renewed(req.Name)
	out.Secret = wireSecret(i)
	if why, _ := redact.Judge(req.Value); why != "" {
		out.Warnings = append(out.Warnings, why)
	}
	for _, key := range d.namedBy(req.Name) {
		note := key + " uses it from the next request on"
		if !slices.Contains(d.modelSecrets(), req.Name) {
			note = key + " is not of a model in use: ombud stop, and the next daemon chooses anew"
		}
		out.Notes = append(out.Notes, note)
	}
	return out, nil
}

// isOwnWord reports whether a value is part of a word that answers are made of: names
// of fields and methods, states, classes. Hidden there, no front end could read them.
func isOwnWord(value []byte) bool {
	text := strings.TrimSpace(string(value))
	if len(text) < redact.MinLen {
		return false // not hidden at all
	}
	found := false
	look := func(word string) { found = found || strings.Contains(word, text) }
	for _, m := range slices.Concat(wire.Methods(), wire.AgentMethods()) {
		look(m.Name)
		fieldNames(m.Result, look)
		for _, n := range m.Notes {
			look(n.Name)
			fieldNames(n.Type, look)
		}
	}
	for _, c := range fault.Codes() {
		look(string(c.Class))
	}
	for _, b := range scope.Bases() {
		look(b.String())
	}
	for _, s := range []run.State{run.Queued, run.Running, run.Waiting, run.Cancelling, run.Uncertain, run.Completed, run.Failed, run.Cancelled} {
		look(string(s))
	}
	for _, s := range []act.Status{act.OK, act.Failed, act.Refused, act.Parked, act.Unclear} {
		look(string(s))
	}
	for _, l := range []policy.Tier{policy.Untrusted, policy.SemiTrusted, policy.Paired, policy.Trusted, policy.Kernel} {
		look(l.String())
	}
	for word := range strings.FieldsSeq("jsonrpc operator assistant conversation untrusted anthropic scripted postgres environment") {
		look(word)
	}
	return found
}

// fieldNames calls fn for the JSON names of a type and all below it.
func fieldNames(t reflect.Type, fn func(string)) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		fieldNames(t.Elem(), fn)
	case reflect.Struct:
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			fn(name)
			fieldNames(f.Type, fn)
		}
	default:
	}
}

// secretChecks are doctor's lines about secrets.
func (d *Daemon) secretChecks(ctx context.Context) []wire.Check {
	list, err := d.secrets.List(ctx)
	if err != nil {
		return []wire.Check{{ID: "secrets.readable", Status: "fail", Detail: err.Error(), Hint: fault.HintOf(err)}}
	}
	out := []wire.Check{{ID: "secrets.readable", Status: "ok", Detail: fmt.Sprintf("%d stored, none damaged", len(list))}}
	for _, i := range list {
		if err := d.secrets.Check(ctx, i.Name); err != nil {
			out[0] = wire.Check{ID: "secrets.readable", Status: "fail", Detail: err.Error(), Hint: "ombud secret set " + i.Name}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.o.Config.Config.Models.Providers)) {
		p := d.o.Config.Config.Models.Providers[name]
		if p.APIKey == "" {
			continue
		}
		if err := d.secrets.Check(ctx, p.APIKey); fault.Is(err, fault.NotFound) {
			out = append(out, wire.Check{ID: "secrets.named", Status: "warn", Detail: "models.providers." + name + ".api_key: " + err.Error(), Hint: fault.HintOf(err)})
		}
	}
	return out
}
