package child

import (
	"encoding/json"
	"strings"

	"github.com/ombud-run/ombud/internal/harness"
)

// claudeTalk speaks claude's stream-json input: one user line, answers to what it
// asks, and the end of the input behind its result.
type claudeTalk struct {
	*dialogue
	done bool
}

type claudeUser struct {
	Type    string        `json:"type"`
	Message claudeMessage `json:"message"`
	Parent  *string       `json:"parent_tool_use_id"`
	Session string        `json:"session_id"`
}

type claudeMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// claudeControl is a request of ours, or an answer.
type claudeControl struct {
	Type     string         `json:"type"`
	ID       string         `json:"request_id,omitempty"`
	Request  *claudeRequest `json:"request,omitempty"`
	Response *claudeAnswer  `json:"response,omitempty"`
}

type claudeRequest struct {
	Subtype string `json:"subtype"`
}

type claudeAnswer struct {
	Subtype  string        `json:"subtype"`
	ID       string        `json:"request_id"`
	Error    string        `json:"error,omitempty"`
	Response *claudePermit `json:"response,omitempty"`
}

type claudePermit struct {
	Behavior  string          `json:"behavior"`
	Input     json.RawMessage `json:"updatedInput,omitempty"`
	Message   string          `json:"message,omitempty"`
	Interrupt *bool           `json:"interrupt,omitempty"`
}

type claudeHeard struct {
	Type    string `json:"type"`
	ID      string `json:"request_id"`
	Request struct {
		Subtype     string          `json:"subtype"`
		Tool        string          `json:"tool_name"`
		Display     string          `json:"display_name"`
		Description string          `json:"description"`
		Input       json.RawMessage `json:"input"`
		ToolID      string          `json:"tool_use_id"`
	} `json:"request"`
}

func (c *claudeTalk) begin() {
	c.out.send(claudeUser{Type: "user", Message: claudeMessage{"user", c.task.Prompt}})
}

func (c *claudeTalk) line(raw []byte) bool {
	var l claudeHeard
	if len(raw) == 0 || raw[0] != '{' {
		return true
	}
	into(raw, &l)
	switch l.Type {
	case "result":
		c.done = true
		c.over()
	case "control_request":
		c.asked(&l)
	}
	return true
}

func (c *claudeTalk) asked(l *claudeHeard) {
	if len(l.ID) > maxID {
		return // nobody's
	}
	r := &l.Request
	if r.Subtype != "can_use_tool" {
		c.out.send(claudeControl{Type: "control_response", Response: &claudeAnswer{Subtype: "error", ID: l.ID, Error: "not supported here: " + r.Subtype}})
		return
	}
	id, input := l.ID, r.Input
	c.asks.ask(claudeAsk(l), func(a Answer) {
		permit := &claudePermit{Behavior: "allow", Input: input}
		if !a.Allow {
			goOn := false
			permit = &claudePermit{Behavior: "deny", Message: reason(a), Interrupt: &goOn}
		}
		c.out.send(claudeControl{Type: "control_response", Response: &claudeAnswer{Subtype: "success", ID: id, Response: permit}})
	})
}

// claudeAsk is what claude wants leave for.
func claudeAsk(l *claudeHeard) Ask {
	r := &l.Request
	var in struct {
		File     string `json:"file_path"`
		Notebook string `json:"notebook_path"`
		Path     string `json:"path"`
		Command  string `json:"command"`
	}
	into(r.Input, &in)
	q := Ask{ID: r.ToolID, Tool: r.Tool, Input: r.Input, Title: strings.TrimSpace(r.Display + " " + r.Description), Kind: KindOther}
	for _, path := range []string{in.File, in.Notebook, in.Path} {
		if path != "" {
			q.Paths = append(q.Paths, path)
		}
	}
	switch r.Tool {
	case "Write", "Edit", "MultiEdit", "NotebookEdit":
		q.Kind = KindEdit
	case "Bash", "Monitor":
		q.Kind, q.Command = KindCommand, in.Command
	case "WebFetch", "WebSearch":
		q.Kind = KindFetch
	default:
		if strings.HasPrefix(r.Tool, "mcp__") {
			q.Kind = KindMCP
		}
	}
	return q
}

// reason is what an agent is told of a refusal. It must not be empty.
func reason(a Answer) string {
	if a.Why == "" {
		return "it was not allowed"
	}
	return a.Why
}

func (c *claudeTalk) interrupt() bool {
	if c.done {
		return false
	}
	c.out.send(claudeControl{Type: "control_request", ID: "interrupt", Request: &claudeRequest{"interrupt"}})
	return true
}

func (*claudeTalk) amend(*harness.Record) {}
