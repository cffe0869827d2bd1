package child

import "strings"

type piModels struct {
	Providers map[string]piProvider `json:"providers"`
}

type piProvider struct {
	BaseURL string    `json:"baseUrl"`
	API     string    `json:"api,omitempty"`
	Key     string    `json:"apiKey,omitempty"` // the variable that holds it; see piKey
	Models  []piModel `json:"models,omitempty"`
}

type piModel struct {
	ID string `json:"id"`
}

type piSettings struct {
	Retry struct {
		Enabled bool `json:"enabled"`
		Max     int  `json:"maxRetries"`
	} `json:"retry"`
}

type piMCP struct {
	Servers map[string]piServer `json:"mcpServers"`
}

type piServer struct {
	Command  string    `json:"command"`
	Args     []string  `json:"args"`
	Env      variables `json:"env"`
	Exposure string    `json:"exposure"` // direct: else the model sees only a tool that runs code
}

func (p *plan) pi(t *Task, r *room) {
	p.args = []string{"--mode", "json", "--no-extensions", "--no-skills"} // a directory may bring some, and they run
	p.piTools(t)
	p.piModel(t)
	p.flag("--append-system-prompt", notAFlag(t.System))
	p.flag("--session", t.Session)
	p.flag("--session-id", t.NewSession)
	var s piSettings
	s.Retry.Enabled, s.Retry.Max = true, 2
	p.files = append(p.files, file{"pi/settings.json", text(s)})
	if m := t.MCP; m != nil && newPi(t.Version) {
		p.files = append(p.files, file{"pi/mcp.json", text(piMCP{map[string]piServer{server: {m.Command, noNil(m.Args), m.Env, "direct"}}})})
	}
	p.piEnv(r)
}

// piEnv gives each run a directory of settings, and all of them one of sessions.
func (p *plan) piEnv(r *room) {
	p.set("PI_CODING_AGENT_DIR="+r.path("pi"), "PI_CODING_AGENT_SESSION_DIR="+r.shared("sessions"), "PI_OFFLINE=1", "PI_TELEMETRY=0", "NODE_USE_ENV_PROXY=1")
}

// piTools are the tools that are offered: there is nothing else that holds pi.
func (p *plan) piTools(t *Task) {
	var offered []string
	if t.MCP != nil && newPi(t.Version) {
		p.args = append(p.args, "-e", "builtin:mcp") // which is an extension too
		offered = mcpNames(t.MCP)
	} else if newPi(t.Version) {
		p.args = append(p.args, "--no-mcp")
	}
	switch {
	case t.Brain && len(offered) == 0:
		p.args = append(p.args, "--no-tools")
		return
	case t.Brain:
	case t.Write:
		offered = append([]string{"read", "grep", "find", "ls", "bash", "edit", "write"}, offered...)
	default:
		offered = append([]string{"read", "grep", "find", "ls"}, offered...)
	}
	p.flag("--tools", strings.Join(offered, ","))
}

// piModel names the model, and where it is if that is not the provider's own address.
func (p *plan) piModel(t *Task) {
	provider, model, is := strings.Cut(t.Model, "/")
	if !is {
		provider, model = "", t.Model
	}
	switch {
	case t.Stands: // its models and how they are spoken to stay as pi knows them
		p.files = append(p.files, file{"pi/models.json", text(piModels{map[string]piProvider{provider: {BaseURL: t.BaseURL}}})})
	case t.BaseURL != "" && model != "":
		p.files = append(p.files, file{"pi/models.json", text(piModels{map[string]piProvider{
			server: {t.BaseURL, piAPI(provider, keyOf(t.Env)), piKey(t), []piModel{{model}}},
		}})})
		provider = server
	}
	p.flag("--provider", provider)
	p.flag("--model", model)
}

// piKey is how the variable with the key is named: pi takes a name without a dollar
// sign for the key itself, where it was for the variable under its old name.
func piKey(t *Task) string {
	key := keyOf(t.Env)
	switch {
	case key == "":
		return "none"
	case newPi(t.Version):
		return "$" + key
	}
	return key
}

// piAPI is the protocol a provider speaks, by its name or by that of its key.
func piAPI(provider, key string) string {
	switch {
	case provider == "anthropic", provider == "" && strings.HasPrefix(key, "ANTHROPIC"):
		return "anthropic-messages"
	case provider == "openai", provider == "" && strings.HasPrefix(key, "OPENAI"):
		return "openai-responses"
	}
	return "openai-completions"
}
