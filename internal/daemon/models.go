package daemon

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/model/anthropic"
	"github.com/ombud-run/ombud/internal/model/builtin"
	"github.com/ombud-run/ombud/internal/model/openai"
	"github.com/ombud-run/ombud/internal/model/scripted"
	"github.com/ombud-run/ombud/internal/secret"
	"github.com/ombud-run/ombud/internal/wire"
)

// chosen is a model with the reason it was taken.
type chosen struct {
	model    agent.Model
	provider string
	why      string
}

// models is what serves each role.
type models struct {
	main    chosen
	summary *chosen
	missing []wire.Missing
}

// For implements agent.Models.
func (m *models) For(role string) agent.Model {
	if role == "summary" && m.summary != nil {
		return m.summary.model
	}
	if role == "summary" && m.main.provider == builtin.Name {
		return agent.Model{} // it would take the conversation for an order
	}
	return m.main.model
}

func (m *models) close() {}

// chooser finds providers by the configuration and what this machine has.
type chooser struct {
	cfg     config.Config
	env     config.Environment
	secrets *secret.Secrets
	log     *slog.Logger
}

func chooseModels(ctx context.Context, cfg config.Config, env config.Environment, secrets *secret.Secrets, log *slog.Logger) (*models, error) {
	c := chooser{cfg, env, secrets, log}
	var m models
	main, err := c.named(ctx, cfg.Models.Main)
	if cfg.Models.Main.Auto() {
		main, m.missing, err = c.auto(ctx)
	}
	if err != nil {
		return nil, err
	}
	m.main = main
	if ref := cfg.Models.Summary; !ref.Auto() {
		s, err := c.named(ctx, ref)
		if err != nil {
			return nil, err
		}
		m.summary = &s
	}
	return &m, nil
}

// auto takes the first that is there: a key for anthropic, a key for openai, an
// Ollama that answers, and else the interpreter that comes with ombud.
func (c chooser) auto(ctx context.Context) (chosen, []wire.Missing, error) {
	var missing []wire.Missing
	for _, name := range []string{"anthropic", "openai"} {
		p := c.cfg.Models.Providers[name]
		has, key, how := c.hasKey(ctx, p)
		if !has {
			missing = append(missing, wire.Missing{Name: key, Hint: how + name})
			continue
		}
		got, err := c.named(ctx, config.ModelRef{Provider: name})
		got.why = key + " is set"
		return got, missing, err
	}
	ollama := c.cfg.Models.Providers["ollama"]
	if first, ok := firstModel(ctx, ollama); ok {
		got, err := c.named(ctx, config.ModelRef{Provider: "ollama", Model: first})
		got.why = "an Ollama answers at " + ollama.BaseURL
		return got, missing, err
	}
	missing = append(missing, wire.Missing{Name: "ollama", Hint: "none answers at " + ollama.BaseURL})
	got, err := c.named(ctx, config.ModelRef{Provider: builtin.Name})
	got.why = "no key and no Ollama was found: the interpreter that comes with ombud"
	return got, missing, err
}

// named returns the provider a configuration asks for.
func (c chooser) named(ctx context.Context, ref config.ModelRef) (chosen, error) {
	if ref.Auto() {
		return chosen{}, nil
	}
	out := chosen{provider: ref.Provider, why: "the configuration says so", model: agent.Model{Name: ref.Model}}
	var err error
	switch ref.Provider {
	case builtin.Name:
		out.model.Provider = builtin.New(time.Now)
		return out, nil
	case scripted.Name:
		out.model = agent.Model{}
		out.model.Provider, err = scripted.Open(ref.Model)
		return out, err
	}
	p, ok := c.cfg.Models.Providers[ref.Provider]
	if !ok {
		return out, fault.New(fault.Config, "no provider is called %q", ref.Provider)
	}
	if out.model.Name == "" {
		out.model.Name = p.Model
	}
	if out.model.Name == "" {
		if out.model.Name, ok = firstModel(ctx, p); !ok {
			return out, fault.New(fault.Config, "provider %s lists no model at %s", ref.Provider, p.BaseURL).
				WithHint("name one: models.main: %s/MODEL", ref.Provider)
		}
	}
	out.model.Provider, err = c.connect(ref.Provider, p, out.model.Name)
	return out, err
}

func (c chooser) connect(name string, p config.Provider, modelName string) (model.Provider, error) {
	if p.APIKey == "" && p.APIKeyEnv != "" && !c.env.Key(p).Set() && name == "anthropic" {
		return nil, fault.New(fault.Config, "%s is not set, and %s needs it", p.APIKeyEnv, name).
			WithHint("start the daemon with it set, keep it by ombud secret set NAME and api_key: secret:NAME, or choose another model")
	}
	hint := p.APIKeyEnv
	if p.APIKey != "" {
		hint = "ombud secret set " + p.APIKey
	}
	provider, err := c.withKey(name, p, func(key string) (model.Provider, error) {
		if name == "anthropic" {
			return anthropic.New(anthropic.Config{Name: name, Key: key, KeyHint: hint, BaseURL: p.BaseURL, Model: modelName})
		}
		return openai.New(openai.Config{Name: name, Key: key, KeyHint: hint, BaseURL: p.BaseURL, Model: modelName})
	})
	if err != nil {
		return nil, err
	}
	return model.Retrying(provider, model.RetryPolicy{}, nil), nil
}

// probeTime is how long a server on this machine has to say what it serves.
const probeTime = 300 * time.Millisecond

// firstModel asks an OpenAI-compatible server for its list.
func firstModel(ctx context.Context, p config.Provider) (string, bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.BaseURL, "/")+"/models", nil)
	if err != nil {
		return "", false
	}
	egress, err := guard.ForOrigin(p.BaseURL)
	if err != nil {
		return "", false
	}
	client := guard.HTTPClient(guard.HTTPConfig{Egress: egress, MaxBody: 1 << 20, MaxRedirects: -1})
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return "", false
	}
	defer resp.Body.Close()
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if resp.StatusCode != http.StatusOK || json.NewDecoder(resp.Body).Decode(&list) != nil || len(list.Data) == 0 {
		return "", false
	}
	return list.Data[0].ID, true
}

func override(name string, p config.Price) model.Override {
	provider, rest, _ := strings.Cut(name, "/")
	perToken := func(m config.MicroUSD) float64 { return float64(m) / 1e6 }
	return model.Override{Provider: provider, Model: rest, Price: model.Price{
		Input: perToken(p.Input), Output: perToken(p.Output), CacheRead: perToken(p.CacheRead), CacheWrite: perToken(p.CacheWrite),
	}}
}

// wire is the choice as status shows it.
func (c chosen) wire() wire.Model {
	name := c.model.Name
	if name == "" {
		name = c.provider
	}
	return wire.Model{Provider: c.provider, Model: name, Why: c.why}
}
