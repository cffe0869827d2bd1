package harness

import (
	"encoding/json"
	"strconv"
)

// opencode reads `opencode run --format json`; lines with "jsonrpc" are those of
// `opencode acp`.
type opencode struct {
	acp   acp
	run   bool // lines of run were seen
	fresh bool // the next text begins anew
}

type opencodeLine struct {
	RPC     string `json:"jsonrpc"`
	Type    string `json:"type"`
	Session string `json:"sessionID"`
	Part    struct {
		Text   string `json:"text"`
		Tool   string `json:"tool"`
		CallID string `json:"callID"`
		State  struct {
			Status string          `json:"status"`
			Input  json.RawMessage `json:"input"`
			Output string          `json:"output"`
			Error  string          `json:"error"`
		} `json:"state"`
		Reason string `json:"reason"`
		Tokens struct {
			Input     count `json:"input"`
			Output    count `json:"output"`
			Reasoning count `json:"reasoning"`
			Cache     struct {
				Read  count `json:"read"`
				Write count `json:"write"`
			} `json:"cache"`
		} `json:"tokens"`
		Cost usd `json:"cost"`
	} `json:"part"`
	Error struct {
		Name string `json:"name"`
		Data struct {
			Message string `json:"message"`
			Status  int    `json:"statusCode"`
		} `json:"data"`
	} `json:"error"`
}

func (o *opencode) line(b *book, raw []byte) {
	b.writers = []writer{{"write", "filePath"}, {"edit", "filePath"}}
	var l opencodeLine
	b.decode(raw, &l)
	if l.RPC != "" {
		o.acp.line(b, raw)
		return
	}
	o.run = true
	b.session(l.Session)
	switch l.Type {
	case "step_start":
		b.open()
		o.fresh = true
	case "text":
		if o.fresh {
			b.say("")
			o.fresh = false
		}
		b.add(l.Part.Text)
	case "tool_use":
		o.tool(b, &l)
	case "step_finish":
		o.finish(b, &l)
	case "error":
		o.error(b, &l)
	default:
		b.unknown(l.Type)
	}
}

// rejected is how opencode words a refusal; the status is "error" as of any other.
const rejected = "The user rejected permission to use this specific tool call."

func (o *opencode) tool(b *book, l *opencodeLine) {
	s := l.Part.State
	b.call(l.Part.CallID, l.Part.Tool, string(s.Input))
	switch {
	case s.Status == "completed":
		b.result(l.Part.CallID, ToolOK, s.Output)
	case s.Error == rejected:
		b.permission(Permission{ToolID: l.Part.CallID, Tool: l.Part.Tool, Input: string(s.Input), Decision: Refusal})
		b.result(l.Part.CallID, ToolDenied, s.Error)
	default:
		b.result(l.Part.CallID, ToolError, s.Error)
	}
}

func (o *opencode) finish(b *book, l *opencodeLine) {
	b.rec.Turns++
	t := l.Part.Tokens
	b.spend(l.Part.Cost)
	b.spent(Usage{Input: int64(t.Input), CacheRead: int64(t.Cache.Read), CacheWrite: int64(t.Cache.Write),
		Output: int64(t.Output), Reasoning: int64(t.Reasoning)})
	switch reason := l.Part.Reason; reason {
	case "stop":
		b.end(verdict{outcome: Completed, reason: reason})
	case "content-filter":
		b.end(verdict{outcome: Refused, reason: reason})
	case "tool-calls": // the next step answers them; if none comes, settle says what that means
		b.verdict.reason = reason
	default:
		b.end(verdict{outcome: Failed, reason: reason})
	}
}

func (o *opencode) error(b *book, l *opencodeLine) {
	v := verdict{outcome: byStatus(l.Error.Data.Status), reason: l.Error.Name, status: l.Error.Data.Status, err: l.Error.Data.Message}
	switch l.Error.Name {
	case "ContextOverflowError":
		v.outcome = Limit
	case "ContentFilterError":
		v.outcome = Refused
	}
	b.end(v)
}

// settle knows that a refused permission stops a run after its tool calls with
// exit 0, and that success needs exit 0.
func (o *opencode) settle(b *book, exit Exit) {
	if !o.run {
		return
	}
	last := len(b.rec.Tools) - 1
	switch {
	case !b.closed && b.verdict.reason == "tool-calls" && exit.Code == 0 && exit.Signal == 0 &&
		last >= 0 && b.rec.Tools[last].Outcome == ToolDenied:
		b.end(verdict{outcome: Denied, reason: "tool-calls"})
	case b.closed && b.verdict.outcome == Completed && exit.Signal == 0 && exit.Code != 0 && !signalled(exit.Code):
		b.end(verdict{outcome: Failed, reason: "exit " + strconv.Itoa(exit.Code)})
	case b.closed && b.verdict.outcome == Completed && (exit.Signal != 0 || signalled(exit.Code)):
		b.closed = false // "stop" closes a step, not the run: it was killed before its end
	}
}
