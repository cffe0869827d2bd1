package harness

import (
	"encoding/json"
	"strconv"
	"strings"
)

// gemini reads `gemini -o stream-json`; lines with "jsonrpc" are those of
// `gemini --acp`.
type gemini struct {
	acp   acp
	fresh bool // the next words begin a new text: a tool ran since
}

type geminiLine struct {
	RPC     string          `json:"jsonrpc"`
	Type    string          `json:"type"`
	Session string          `json:"session_id"`
	Model   string          `json:"model"`
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Tool    string          `json:"tool_name"`
	ToolID  string          `json:"tool_id"`
	Input   json.RawMessage `json:"parameters"`
	Status  string          `json:"status"`
	Output  string          `json:"output"` // a text for display, often empty
	Message string          `json:"message"`
	Error   struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	Stats json.RawMessage `json:"stats"`
}

func (g *gemini) line(b *book, raw []byte) {
	b.writers = []writer{{"write_file", "file_path"}, {"replace", "file_path"}}
	var l geminiLine
	b.decode(raw, &l)
	if l.RPC != "" {
		g.acp.line(b, raw)
		return
	}
	switch l.Type {
	case "init":
		b.open()
		b.session(l.Session)
		b.model(l.Model)
	case "message":
		g.message(b, &l)
	case "tool_use":
		b.call(l.ToolID, l.Tool, string(l.Input))
		g.fresh = true
	case "tool_result":
		g.result(b, &l)
	case "error":
		b.notice(l.Message)
	case "result":
		g.end(b, &l)
	default:
		b.unknown(l.Type)
	}
}

func (g *gemini) message(b *book, l *geminiLine) {
	if l.Role != "assistant" {
		return // our own words
	}
	if g.fresh {
		b.say("")
		g.fresh = false
	}
	b.add(textOf(l.Content))
}

func (g *gemini) result(b *book, l *geminiLine) {
	outcome, output := ToolOK, l.Output
	if l.Status != "success" {
		outcome = ToolError
		if output == "" {
			output = l.Error.Message
		}
	}
	if l.Error.Type == "policy_violation" {
		p := Permission{ToolID: l.ToolID, Decision: Refusal}
		if t := b.find(l.ToolID); t != nil {
			p.Tool, p.Input = t.Name, t.Input
		}
		b.permission(p)
	}
	b.result(l.ToolID, outcome, output)
}

func (g *gemini) end(b *book, l *geminiLine) {
	var s struct {
		Input  count `json:"input"` // without what came from the cache
		Cached count `json:"cached"`
		Output count `json:"output_tokens"`
	}
	b.decode(l.Stats, &s)
	u := Usage{Input: int64(s.Input), CacheRead: int64(s.Cached), Output: int64(s.Output)}
	if l.Status == "success" {
		b.told(u)
		b.end(verdict{outcome: Completed, reason: l.Status})
		return
	}
	u.Partial = true // a stream that was cut counts nothing, though it was used
	b.told(u)
	v := verdict{outcome: Failed, reason: l.Error.Type, err: l.Error.Message, status: geminiStatus(l.Error.Message)}
	switch {
	case v.status != 0:
		v.outcome = byStatus(v.status)
	case v.err == "[API Error: terminated]":
		v.outcome = Unavailable
	}
	b.end(v)
}

// geminiStatus reads the status from the API's answer, which is given as
// "[API Error: {…}]".
func geminiStatus(message string) int {
	body, is := strings.CutPrefix(message, "[API Error: ")
	if !is {
		return 0
	}
	var answer struct {
		Error struct {
			Code count `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(strings.TrimSuffix(body, "]")), &answer) != nil {
		return 0
	}
	if code := answer.Error.Code; code >= 100 && code <= 599 {
		return int(code)
	}
	return 0
}

// settle reads the exit codes that mean something: 41 is a missing key, and an
// API error ends with the HTTP status modulo 256, so 144 to 255 are 400 to 511.
func (g *gemini) settle(b *book, exit Exit) {
	if exit.Signal != 0 {
		return
	}
	switch {
	case !b.closed && exit.Code == 41:
		b.end(verdict{outcome: Auth, reason: "exit 41"})
	case b.closed && b.verdict.outcome == Failed && b.verdict.status == 0 && exit.Code >= 144 && exit.Code <= 255:
		b.verdict.status = exit.Code + 256
		b.verdict.outcome = byStatus(b.verdict.status)
	case !b.closed && exit.Code != 0 && !b.begun:
		b.verdict.reason = "exit " + strconv.Itoa(exit.Code)
	}
}
