package child

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// codexQuiet keeps codex off the network before its first question to the model.
var codexQuiet = [...]string{"-c", "analytics.enabled=false", "--disable", "plugins", "--disable", "apps"}

// codexNoTools turns off what codex brings; it has no list of what is allowed. What
// is left of its own can look at pictures and at its own plan.
var codexNoTools = [...]string{"--disable", "shell_tool", "--disable", "unified_exec", "--disable", "view_image", "-c", `web_search="disabled"`}

func (p *plan) codex(t *Task, r *room, confined bool) {
	sandbox := codexSandbox(t, confined)
	if t.twoWay() {
		p.args = []string{"app-server"}
		p.talk = func(d *dialogue) talker { return &codexTalk{dialogue: d, sandbox: sandbox} }
	} else {
		// Before "resume", which takes neither of them.
		p.args = []string{"exec", "--json", "--skip-git-repo-check", "-s", sandbox}
		p.flag("-m", t.Model)
	}
	p.args = append(p.args, codexQuiet[:]...)
	if t.Brain {
		p.args = append(p.args, codexNoTools[:]...)
	}
	if t.twoWay() && t.Model != "" {
		p.config("model", toml(t.Model))
	}
	p.config("shell_environment_policy.ignore_default_excludes", "false") // its commands see no keys
	if t.System != "" {
		p.config("developer_instructions", toml(t.System))
	}
	p.codexProvider(t)
	p.codexServer(t.MCP)
	if !t.twoWay() {
		if t.Session != "" {
			p.args = append(p.args, "resume", t.Session)
		}
		p.args = append(p.args, "-")
	}
	p.set("CODEX_HOME=" + r.shared("codex"))
}

// codexSandbox is the box codex puts its commands in. It makes a namespace for each,
// which our walls refuse: where those hold it, they are the box, with the directory
// to be read alone unless the task says otherwise.
func codexSandbox(t *Task, confined bool) string {
	switch {
	case t.Brain: // no command is left to put there, and patches are refused without a box
		return "read-only"
	case confined:
		return "danger-full-access"
	case t.changes():
		return "workspace-write"
	}
	return "read-only"
}

func (p *plan) config(key, value string) { p.args = append(p.args, "-c", key+"="+value) }

// codexProvider is a provider of our own: only there the number of tries can be set,
// and the built-in one asks by WebSocket for seven seconds first.
func (p *plan) codexProvider(t *Task) {
	if t.BaseURL == "" {
		return
	}
	key := ""
	if n := keyOf(t.Env); n != "" {
		key = "env_key=" + toml(n) + ","
	}
	p.config("model_provider", toml(server))
	p.config("model_providers."+server, fmt.Sprintf(`{name=%s,base_url=%s,%swire_api="responses",request_max_retries=%s,stream_max_retries=%s}`,
		toml(server), toml(t.BaseURL), key, retries, retries))
}

// codexServer names the variables of the server, and gives them to codex: their
// values are on no command line.
func (p *plan) codexServer(m *MCP) {
	if m == nil {
		return
	}
	var names []string
	for _, entry := range m.Env {
		n, _, _ := strings.Cut(entry, "=")
		names = append(names, n)
	}
	p.set(m.Env...)
	only := ""
	if len(m.Tools) > 0 {
		only = ",enabled_tools=" + tomlList(m.Tools)
	}
	p.config("mcp_servers."+server, fmt.Sprintf(`{command=%s,args=%s,env_vars=%s,default_tools_approval_mode="approve"%s}`,
		toml(m.Command), tomlList(m.Args), tomlList(names), only))
}

// toml is a text as a basic string of TOML.
func toml(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r < ' ' || r == 0x7f || r == utf8.RuneError:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func tomlList(list []string) string {
	out := make([]string, 0, len(list))
	for _, text := range list {
		out = append(out, toml(text))
	}
	return "[" + strings.Join(out, ",") + "]"
}
