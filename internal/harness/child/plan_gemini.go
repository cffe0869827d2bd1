package child

import "strings"

// geminiSettings are settings of the system: they go before those of the user and of
// the directory, and each run has a file of its own.
type geminiSettings struct {
	Security struct {
		Auth struct {
			Selected string `json:"selectedType,omitempty"`
		} `json:"auth"`
	} `json:"security"`
	General struct {
		Update bool `json:"enableAutoUpdate"`
		Notify bool `json:"enableAutoUpdateNotification"`
	} `json:"general"`
	Privacy struct {
		Statistics bool `json:"usageStatisticsEnabled"`
	} `json:"privacy"`
	Telemetry struct {
		Enabled bool `json:"enabled"`
	} `json:"telemetry"`
	Tools *geminiTools  `json:"tools,omitempty"`
	Model *geminiModel  `json:"model,omitempty"`
	MCP   *geminiServer `json:"mcpServers,omitempty"`
}

type geminiTools struct {
	Core []string `json:"core"`
}

type geminiModel struct {
	Turns int `json:"maxSessionTurns"`
}

type geminiServer struct {
	Ombud struct {
		Command string    `json:"command"`
		Args    []string  `json:"args"`
		Env     variables `json:"env"`
		Trust   bool      `json:"trust"` // else it is not even offered; ombud decides each call itself
		Include []string  `json:"includeTools,omitempty"`
	} `json:"ombud"`
}

func (p *plan) gemini(t *Task, r *room) {
	p.args = []string{"--skip-trust"}
	if t.twoWay() {
		p.args = append(p.args, "--acp")
		p.talk = func(d *dialogue) talker { return newACP(d, nil) }
	} else {
		p.args = append(p.args, "-o", "stream-json", "--approval-mode", "default")
		p.flag("--resume", t.Session)
		p.flag("--session-id", t.NewSession)
	}
	p.flag("-m", t.Model)
	var s geminiSettings
	if hasKey(t.Env, "GEMINI_API_KEY") {
		s.Security.Auth.Selected = "gemini-api-key"
	}
	if t.Brain {
		s.Tools = &geminiTools{Core: geminiNames(t.MCP)}
	}
	if t.Turns > 0 {
		s.Model = &geminiModel{t.Turns}
	}
	if m := t.MCP; m != nil {
		s.MCP = &geminiServer{}
		o := &s.MCP.Ombud
		o.Command, o.Args, o.Env, o.Trust, o.Include = m.Command, noNil(m.Args), m.Env, true, m.Tools
	}
	p.files = append(p.files, file{"gemini.json", text(s)})
	p.geminiEnv(r, t.BaseURL)
}

// geminiNames are the tools of the server as gemini names them. Where there is a list
// of what it has, they are in it.
func geminiNames(m *MCP) []string {
	out := []string{}
	if m == nil {
		return out
	}
	for _, tool := range m.Tools {
		out = append(out, "mcp_"+server+"_"+tool)
	}
	if len(out) == 0 {
		out = append(out, "mcp_"+server+"_*")
	}
	return out
}

func (p *plan) geminiEnv(r *room, base string) {
	p.set("GEMINI_CLI_HOME="+r.shared("gemini"), "GEMINI_CLI_NO_RELAUNCH=1", "GEMINI_CLI_SYSTEM_SETTINGS_PATH="+r.path("gemini.json"), "NODE_USE_ENV_PROXY=1")
	if base != "" {
		p.set("GOOGLE_GEMINI_BASE_URL=" + base)
	}
}

func hasKey(env []string, name string) bool {
	for _, entry := range env {
		if strings.HasPrefix(entry, name+"=") {
			return true
		}
	}
	return false
}
