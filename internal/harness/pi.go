package harness

import (
	"encoding/json"
	"strconv"
	"strings"
)

// pi reads `pi --mode json` and `pi --mode rpc`, whose events are the same.
type pi struct {
	last piMessage // the last one of the assistant
}

type piLine struct {
	Type    string          `json:"type"`
	ID      string          `json:"id"`
	Message json.RawMessage `json:"message"`
	CallID  string          `json:"toolCallId"`
	Tool    string          `json:"toolName"`
	Args    json.RawMessage `json:"args"`
	IsError bool            `json:"isError"`
	Result  json.RawMessage `json:"result"`
	Success *bool           `json:"success"`
	Error   string          `json:"error"`
	Data    json.RawMessage `json:"data"`
}

type piMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Model   string          `json:"model"`
	Stop    string          `json:"stopReason"`
	Raw     string          `json:"rawStopReason"` // the API's own, from 1.6
	Error   string          `json:"errorMessage"`
	Usage   struct {
		Input  count `json:"input"`
		Output count `json:"output"`
		Read   count `json:"cacheRead"`
		Write  count `json:"cacheWrite"`
		Cost   struct {
			Total usd `json:"total"`
		} `json:"cost"`
	} `json:"usage"`
}

func (p *pi) line(b *book, raw []byte) {
	b.writers = []writer{{"write", "path"}, {"edit", "path"}}
	var l piLine
	b.decode(raw, &l)
	switch l.Type {
	case "session":
		b.session(l.ID)
	case "agent_start": // once per try
		b.open()
		p.last = piMessage{}
	case "turn_start":
		b.rec.Turns++
	case "message_end":
		p.message(b, l.Message)
	case "tool_execution_start":
		b.call(l.CallID, l.Tool, string(l.Args))
	case "tool_execution_end":
		p.result(b, &l)
	case "agent_end":
		b.end(piEnd(p.last))
	case "auto_retry_start":
		b.open() // the try that ended is not the last
		b.rec.Retries++
	case "response":
		p.response(b, &l)
	case "message_start", "message_update", "tool_execution_update", "turn_end", // all told again by others
		"agent_settled", "auto_retry_end", "compaction_start", "compaction_end", "queue_update":
	default:
		b.unknown(l.Type)
	}
}

func (p *pi) message(b *book, raw json.RawMessage) {
	var m piMessage
	b.decode(raw, &m)
	if m.Role != "assistant" {
		return
	}
	p.last = piMessage{Stop: word(m.Stop), Raw: word(m.Raw), Error: b.cut(m.Error, maxError, "error")}
	b.model(m.Model)
	if text := textOf(m.Content); text != "" {
		b.say(text)
	}
	u := m.Usage
	b.spend(u.Cost.Total)
	b.spent(Usage{Input: int64(u.Input), CacheRead: int64(u.Read), CacheWrite: int64(u.Write), Output: int64(u.Output)})
	if m.Stop == "error" || m.Stop == "aborted" {
		b.rec.Usage.Partial = true // the stream was cut before its last count
	}
}

func (p *pi) result(b *book, l *piLine) {
	var r struct{ Content json.RawMessage }
	b.decode(l.Result, &r)
	outcome := ToolOK
	if l.IsError {
		outcome = ToolError
	}
	b.result(l.CallID, outcome, textOf(r.Content))
}

// response is the answer to a command of ours.
func (p *pi) response(b *book, l *piLine) {
	if l.Success != nil && !*l.Success {
		b.warn(WarnNotice, l.Error)
	}
	var d struct {
		Session string `json:"sessionId"`
	}
	if len(l.Data) > 0 && l.Data[0] == '{' {
		b.decode(l.Data, &d)
	}
	b.session(d.Session)
}

func piEnd(last piMessage) verdict {
	v := verdict{reason: last.Stop, err: last.Error, status: piStatus(last.Error)}
	switch {
	case last.Stop == "stop":
		return verdict{outcome: Completed, reason: last.Stop}
	case last.Stop == "aborted":
		v.outcome = Interrupted
	case last.Raw == "refusal":
		v.outcome, v.reason = Refused, last.Raw
	case v.status != 0:
		v.outcome = byStatus(v.status)
	case v.err == "Connection error.", v.err == "terminated":
		v.outcome = Unavailable
	default:
		v.outcome = Failed
	}
	return v
}

// piStatus reads the status an error begins with: `401 {"type":"error",…}`.
func piStatus(message string) int {
	first, _, _ := strings.Cut(message, " ")
	status, err := strconv.Atoi(first)
	if err != nil || status < 100 || status > 599 {
		return 0
	}
	return status
}

func (p *pi) settle(*book, Exit) {}
