package child

import (
	"net/url"
	"strings"
)

type opencodeConfig struct {
	Update       bool                        `json:"autoupdate"`
	Share        string                      `json:"share"`
	Model        string                      `json:"model,omitempty"`
	Small        string                      `json:"small_model,omitempty"` // of the call for a title, which would go elsewhere
	Providers    []string                    `json:"enabled_providers,omitempty"`
	Provider     map[string]opencodeProvider `json:"provider,omitempty"`
	Permission   rules                       `json:"permission"`
	Instructions []string                    `json:"instructions,omitempty"`
	MCP          map[string]opencodeServer   `json:"mcp,omitempty"`
}

type opencodeProvider struct {
	NPM     string `json:"npm,omitempty"`
	Options struct {
		BaseURL string `json:"baseURL,omitempty"`
		Key     string `json:"apiKey,omitempty"`
	} `json:"options"`
	Models map[string]opencodeModel `json:"models,omitempty"`
}

type opencodeModel struct {
	Name string `json:"name"`
}

type opencodeServer struct {
	Type    string    `json:"type"`
	Command []string  `json:"command"`
	Env     variables `json:"environment"`
	Enabled bool      `json:"enabled"`
}

// rules are opencode's permissions. Their order counts: the last that fits decides.
type rules []rule

type rule struct{ tool, action string }

func (r rules) MarshalJSON() ([]byte, error) {
	var out []string
	for _, one := range r {
		out = append(out, text(one.tool)+":"+text(one.action))
	}
	return []byte("{" + strings.Join(out, ",") + "}"), nil
}

func (p *plan) opencode(t *Task, r *room) {
	if t.twoWay() {
		// It asks a server of its own over the loopback interface, and would do so by the
		// proxy. That server has another name than the API may have.
		p.args = []string{"acp", "--hostname", opencodeOwn}
		p.set("NO_PROXY="+opencodeOwn, "no_proxy="+opencodeOwn)
		p.talk = func(d *dialogue) talker { return newACP(d, nil) }
	} else {
		p.args = []string{"run", "--format", "json"}
		p.flag("--session", t.Session)
	}
	p.args = append(p.args, "--pure") // plugins would be installed from the network
	c := opencodeConfig{Share: "disabled", Model: t.Model, Small: t.Model, Permission: opencodeRules(t)}
	if provider, model, is := strings.Cut(t.Model, "/"); is {
		c.Providers = []string{provider}
		c.Provider = map[string]opencodeProvider{provider: opencodeProviderOf(t, provider, model)}
	}
	if t.System != "" {
		p.files = append(p.files, file{"instructions.md", t.System})
		c.Instructions = []string{r.path("instructions.md")}
	}
	if m := t.MCP; m != nil {
		c.MCP = map[string]opencodeServer{server: {"local", append([]string{m.Command}, m.Args...), m.Env, true}}
	}
	p.opencodeEnv(r)
	p.set("OPENCODE_CONFIG_CONTENT=" + text(c))
}

// opencodeInstalled says that the package with the types of plugins is there, which
// opencode would fetch from the network into each directory of configuration.
const opencodeInstalled = `{"packages":{"":{"dependencies":{"@opencode-ai/plugin":"*"}}}}`

func (p *plan) opencodeEnv(r *room) {
	p.files = append(p.files, file{"config/opencode/package-lock.json", opencodeInstalled}, file{"config/opencode/node_modules/none", ""})
	p.set("OPENCODE_DISABLE_PROJECT_CONFIG=1", // it could start servers of its own
		"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_DEFAULT_PLUGINS=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
		"XDG_CONFIG_HOME="+r.path("config"), "XDG_DATA_HOME="+r.shared("data"), "XDG_STATE_HOME="+r.shared("state"), "XDG_CACHE_HOME="+r.shared("cache"))
}

func opencodeProviderOf(t *Task, provider, model string) opencodeProvider {
	p := opencodeProvider{Models: map[string]opencodeModel{model: {model}}}
	if t.BaseURL == "" {
		return p
	}
	p.Options.BaseURL = notOwn(t.BaseURL)
	if n := keyOf(t.Env); n != "" {
		p.Options.Key = "{env:" + n + "}"
	}
	switch provider {
	case "anthropic", "openai", "google":
	default:
		if !t.Stands { // it knows the provider, and how to speak to it
			p.NPM = "@ai-sdk/openai-compatible" // built in
		}
	}
	return p
}

// opencodeOwn is the host of opencode's own server.
const opencodeOwn = "localhost"

// notOwn is the address of an API on this machine by another name than opencodeOwn,
// which is not asked for by the proxy.
func notOwn(base string) string {
	u, err := url.Parse(base)
	if err != nil || u.Hostname() != opencodeOwn {
		return base
	}
	u.Host = strings.Replace(u.Host, opencodeOwn, "127.0.0.1", 1)
	return u.String()
}

// opencodeRules allow by name: what is not named is not offered.
func opencodeRules(t *Task) rules {
	out := rules{{"*", "deny"}}
	if !t.Brain {
		out = append(out, rule{"read", "allow"}, rule{"grep", "allow"}, rule{"glob", "allow"}, rule{"list", "allow"})
	}
	if t.changes() {
		out = append(out, rule{"todowrite", "allow"}, rule{"todoread", "allow"},
			rule{"edit", "ask"}, rule{"bash", "ask"}, rule{"webfetch", "ask"}, rule{"external_directory", "ask"})
	}
	if t.MCP == nil {
		return out
	}
	if len(t.MCP.Tools) == 0 {
		return append(out, rule{server + "_*", "allow"})
	}
	for _, tool := range t.MCP.Tools {
		out = append(out, rule{server + "_" + strings.Map(dashed, tool), "allow"})
	}
	return out
}

// dashed keeps what opencode keeps of a tool's name.
func dashed(r rune) rune {
	if r == '-' || underscored(string(r)) == string(r) {
		return r
	}
	return '_'
}
