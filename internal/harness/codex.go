package harness

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// codex reads `codex exec --json`; lines with a method or an id are those of
// `codex app-server` (codexserver.go).
type codex struct {
	speaking string // the item whose words come in pieces
}

type codexLine struct {
	Type   string    `json:"type"`
	Thread string    `json:"thread_id"`
	Item   codexItem `json:"item"`
	Usage  struct {
		Input     count `json:"input_tokens"`
		Cached    count `json:"cached_input_tokens"`
		Write     count `json:"cache_write_input_tokens"`
		Output    count `json:"output_tokens"`
		Reasoning count `json:"reasoning_output_tokens"`
	} `json:"usage"`
	Message string          `json:"message"`
	Error   json.RawMessage `json:"error"`

	Method string          `json:"method"`
	ID     json.RawMessage `json:"id"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
}

type codexItem struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Command   string          `json:"command"`
	Output    string          `json:"aggregated_output"`
	Status    string          `json:"status"`
	Message   string          `json:"message"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Changes   json.RawMessage `json:"changes"`
	Result    struct {
		Content json.RawMessage `json:"content"`
	} `json:"result"`
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
}

func (c *codex) line(b *book, raw []byte) {
	var l codexLine
	b.decode(raw, &l)
	if l.Type == "" && (l.Method != "" || l.Result != nil || l.Error != nil) {
		c.server(b, &l)
		return
	}
	switch l.Type {
	case "thread.started":
		b.session(l.Thread)
		b.begun = true
	case "turn.started":
		b.open()
		b.rec.Turns++
	case "item.started", "item.completed":
		c.item(b, &l.Item)
	case "turn.completed":
		u := l.Usage
		b.told(codexUsage(u.Input, u.Cached, u.Write, u.Output, u.Reasoning))
		b.end(verdict{outcome: Completed, reason: l.Type})
	case "turn.failed":
		var e struct{ Message string }
		b.decode(l.Error, &e)
		b.end(codexFailed(e.Message))
	case "error":
		if strings.HasPrefix(l.Message, "Reconnecting...") {
			b.rec.Retries++
			b.lastErr = b.cut(l.Message, maxError, "error")
			return
		}
		b.notice(l.Message)
	default:
		b.unknown(l.Type)
	}
}

// codexUsage is a total of the thread, over resumed runs too. Its input counts
// what came from the cache.
func codexUsage(input, cached, write, output, reasoning count) Usage {
	return Usage{Cumulative: true, Input: int64(max(input-cached, 0)), CacheRead: int64(cached),
		CacheWrite: int64(write), Output: int64(output), Reasoning: int64(reasoning)}
}

func (c *codex) item(b *book, i *codexItem) {
	switch i.Type {
	case "agent_message":
		b.say(i.Text) // the last one is the answer
	case "command_execution":
		b.call(i.ID, i.Type, i.Command)
		b.result(i.ID, codexOutcome(i.Status), i.Output)
	case "mcp_tool_call":
		b.call(i.ID, i.Server+"/"+i.Tool, string(i.Arguments))
		c.mcp(b, i)
	case "file_change":
		c.changes(b, i)
	case "error":
		b.notice(i.Message)
	default:
		b.unknown("item/" + i.Type)
	}
}

func (c *codex) mcp(b *book, i *codexItem) {
	outcome, output := codexOutcome(i.Status), i.Error.Message
	if len(i.Result.Content) > 0 {
		output = textOf(i.Result.Content)
	}
	if i.Error.Message == "MCP tool call requires approval, but approval policy is never" {
		b.permission(Permission{ToolID: i.ID, Tool: i.Server + "/" + i.Tool, Input: string(i.Arguments), Decision: Refusal})
	}
	b.result(i.ID, outcome, output)
}

func (c *codex) changes(b *book, i *codexItem) {
	b.call(i.ID, i.Type, string(i.Changes))
	outcome := codexOutcome(i.Status)
	b.result(i.ID, outcome, i.Error.Message)
	if outcome != ToolOK {
		return
	}
	var changes []struct {
		Path string
		Kind json.RawMessage // a word from exec, an object from app-server
	}
	b.decode(i.Changes, &changes)
	for _, change := range changes {
		var kind struct{ Type string }
		if json.Unmarshal(change.Kind, &kind.Type) != nil {
			b.decode(change.Kind, &kind)
		}
		b.touched(change.Path, kind.Type)
	}
}

func codexOutcome(status string) ToolOutcome {
	switch status {
	case "completed":
		return ToolOK
	case "failed":
		return ToolError
	case "declined":
		return ToolDenied
	}
	return ToolUnfinished
}

// codexStatusText is the HTTP status in the two sentences that hold one. codex
// tells an API's error in no other way.
var codexStatusText = regexp.MustCompile(`(?:unexpected status|last status:) ([1-5]\d\d)\b`)

func codexStatus(message string) int {
	found := codexStatusText.FindStringSubmatch(message)
	if found == nil {
		return 0
	}
	status, _ := strconv.Atoi(found[1])
	return status
}

func codexFailed(message string) verdict {
	v := verdict{reason: "turn.failed", err: message, status: codexStatus(message)}
	starts := func(prefixes ...string) bool {
		for _, p := range prefixes {
			if strings.HasPrefix(message, p) {
				return true
			}
		}
		return false
	}
	switch {
	case v.status != 0:
		v.outcome = byStatus(v.status)
	case starts("Missing environment variable"):
		v.outcome = Auth
	case starts("stream disconnected", "Connection failed", "exceeded retry limit",
		"We’re currently experiencing high demand", "Selected model is at capacity"):
		v.outcome = Unavailable
	case starts("{"):
		v.outcome = Rejected // the body of a 400, as it came
	default:
		v.outcome = Failed
	}
	return v
}

func (c *codex) settle(*book, Exit) {}
