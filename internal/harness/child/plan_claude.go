package child

import (
	"strconv"
	"strings"
)

// The tools of claude that are offered. The list is of what is known: later versions
// bring tools that outlive a run, start others or wait for a person.
const (
	claudeReads   = "Read,Grep,Glob"
	claudeChanges = "Bash,Edit,Glob,Grep,NotebookEdit,Read,TaskStop,WebFetch,Write"
)

// claudeHeld has WebFetch not ask api.anthropic.com about a host first: it is asked there
// alone, wherever the API is, and not reached. Whoever allows the fetch, and ombud's proxy,
// have judged the host.
const claudeHeld = `{"skipWebFetchPreflight":true}`

type claudeMCP struct {
	Servers map[string]claudeServer `json:"mcpServers"`
}

type claudeServer struct {
	Type    string    `json:"type,omitempty"`
	Command string    `json:"command"`
	Args    []string  `json:"args"`
	Env     variables `json:"env"`
}

func (p *plan) claude(t *Task, r *room) {
	p.args = []string{"-p", "--output-format", "stream-json", "--verbose", "--setting-sources", "", "--strict-mcp-config"}
	if t.Spent != nil {
		p.args = append(p.args, "--include-partial-messages") // else the output of a response is not told until all have come
	}
	tools := claudeReads
	switch {
	case t.Brain:
		tools = ""
	case t.changes():
		tools = claudeChanges
	}
	p.args = append(p.args, "--tools", tools)
	if t.MCP != nil {
		p.files = append(p.files, file{"mcp.json", text(claudeMCP{map[string]claudeServer{
			server: {Type: "stdio", Command: t.MCP.Command, Args: noNil(t.MCP.Args), Env: t.MCP.Env},
		}})})
		allowed := mcpNames(t.MCP)
		if len(allowed) == 0 {
			allowed = []string{"mcp__" + server}
		}
		p.args = append(p.args, "--mcp-config", r.path("mcp.json"), "--allowedTools", strings.Join(allowed, ","))
	}
	if t.twoWay() {
		p.args = append(p.args, "--input-format", "stream-json", "--permission-prompt-tool", "stdio")
		p.talk = func(d *dialogue) talker { return &claudeTalk{dialogue: d} }
	}
	p.flag("--model", t.Model)
	p.flag("--append-system-prompt", notAFlag(t.System))
	p.flag("--resume", t.Session)
	p.flag("--session-id", t.NewSession)
	if t.Turns > 0 {
		p.flag("--max-turns", strconv.Itoa(t.Turns))
	}
	if t.BudgetMicroUSD > 0 {
		p.flag("--max-budget-usd", strconv.FormatFloat(float64(t.BudgetMicroUSD)/1e6, 'f', -1, 64))
	}
	if t.Held && t.changes() {
		p.args = append(p.args, "--settings", claudeHeld)
	}
	p.claudeEnv(r, t.BaseURL)
	p.set("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1") // SUBPROCESS_ENV_SCRUB would start nothing where bubblewrap is not installed
}

func (p *plan) claudeEnv(r *room, base string) {
	p.set("CLAUDE_CONFIG_DIR="+r.shared("claude"), "CLAUDE_CODE_MAX_RETRIES="+retries, "ENABLE_TOOL_SEARCH=false",
		"DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1")
	if base != "" {
		p.set("ANTHROPIC_BASE_URL=" + base)
	}
}

// notAFlag is a text that no program takes for a flag of its own.
func notAFlag(text string) string {
	if strings.HasPrefix(text, "-") {
		return "\n" + text
	}
	return text
}
