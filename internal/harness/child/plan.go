package child

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/harness"
)

// plan is how a task is put to its program.
type plan struct {
	args  []string // after the program and Task.Args0
	env   []string
	stdin string // what it is given to read, when the run is no dialogue
	files []file // in the room
	talk  func(*dialogue) talker
}

// server is the name ombud has as an MCP server.
const server = "ombud"

// retries is how often a program tries its API again by itself. Whoever started the
// run can try it again as a whole, and knows why.
const retries = "2"

// planOf puts a task to its program. confined says that walls of ours hold it.
func planOf(t *Task, r *room, confined bool) *plan {
	p := &plan{}
	switch t.CLI {
	case harness.Claude:
		p.claude(t, r)
	case harness.Codex:
		p.codex(t, r, confined)
	case harness.Gemini:
		p.gemini(t, r)
	case harness.OpenCode:
		p.opencode(t, r)
	case harness.Pi:
		p.pi(t, r)
	case harness.ACP:
		p.talk = func(d *dialogue) talker { return newACP(d, t.MCP) }
	}
	switch {
	case p.talk != nil:
	case t.CLI == harness.Gemini:
		p.stdin = together(t)
	default:
		p.stdin = t.Prompt
	}
	return p
}

// flag adds a flag with a value, if there is one.
func (p *plan) flag(flag, value string) {
	if value != "" {
		p.args = append(p.args, flag, value)
	}
}

func (p *plan) set(entries ...string) { p.env = append(p.env, entries...) }

// leading are variables the program gets from the daemon.
func leading(environ []string) []string {
	var out []string
	for _, entry := range environ {
		n, _, is := strings.Cut(entry, "=")
		if is && (n == "PATH" || n == "LANG" || n == "TZ" || strings.HasPrefix(n, "LC_")) {
			out = append(out, entry)
		}
	}
	return out
}

// environment is all a program gets: what the caller gives cannot replace what we
// set, and nothing else of the daemon's is handed on.
func environment(environ []string, r *room, p *plan, given []string) []string {
	all := slices.Concat(given, leading(environ), []string{"TERM=dumb", "NO_COLOR=1", "HOME=" + r.home, "TMPDIR=" + r.tmp}, p.env)
	at := map[string]int{}
	var out []string
	for _, entry := range all {
		n, _, _ := strings.Cut(entry, "=")
		if i, is := at[n]; is {
			out[i] = entry
			continue
		}
		at[n] = len(out)
		out = append(out, entry)
	}
	return out
}

// keyOf is the name of the variable that holds the API key, the first that sounds so.
func keyOf(env []string) string {
	for _, end := range []string{"_API_KEY", "_KEY", "_TOKEN"} {
		for _, entry := range env {
			if n, _, _ := strings.Cut(entry, "="); strings.HasSuffix(n, end) {
				return n
			}
		}
	}
	return ""
}

// underscored is a name as most programs offer it to a model.
func underscored(tool string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, tool)
}

// mcpNames are the tools of the server as claude and pi name them.
func mcpNames(m *MCP) []string {
	var out []string
	for _, tool := range m.Tools {
		out = append(out, "mcp__"+server+"__"+underscored(tool))
	}
	return out
}

// variables are an environment as a JSON object.
type variables []string

func (v variables) MarshalJSON() ([]byte, error) {
	out := make(map[string]string, len(v))
	for _, entry := range v {
		n, value, _ := strings.Cut(entry, "=")
		out[n] = value
	}
	return json.Marshal(out)
}

// text is v as JSON. What it is given always has one.
func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // a type of ours that has no JSON: every test would see it
	}
	return string(raw)
}

// noNil is a list that is never null in JSON.
func noNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// together is a prompt with the instructions in front, for programs that take no
// instructions of their own.
func together(t *Task) string {
	if t.System == "" {
		return t.Prompt
	}
	return t.System + "\n\n" + t.Prompt
}
