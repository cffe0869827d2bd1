package harness

import (
	"encoding/json"
	"slices"
	"strings"
)

// claude reads `claude -p --output-format stream-json --verbose`, the one object
// of `--output-format json`, and what the two-way mode prints.
type claude struct {
	asked   map[string]string         // permission requests: request id to tool id
	delta   bool                      // the text so far is of partial messages
	authErr bool                      // the API's last error was about the key
	last    map[string]claudeResponse // of the agent and of each of its sub-agents, by what called them
}

// claudeResponse is a response of the API whose use was seen.
type claudeResponse struct {
	id     string
	output int64 // tokens, so far
}

type claudeUse struct {
	Input  count `json:"input_tokens"`
	Write  count `json:"cache_creation_input_tokens"`
	Read   count `json:"cache_read_input_tokens"`
	Output count `json:"output_tokens"`
}

func (u claudeUse) usage() Usage {
	return Usage{Input: int64(u.Input), CacheRead: int64(u.Read), CacheWrite: int64(u.Write), Output: int64(u.Output)}
}

// used notes what a response used: each is told of more than once, and its output grows.
func (c *claude) used(b *book, parent, id string, u claudeUse) {
	parent, id = word(parent), word(id)
	was, known := c.last[parent]
	if id == "" || id == was.id { // more of the response under way
		if more := int64(u.Output) - was.output; known && more > 0 {
			c.last[parent] = claudeResponse{was.id, int64(u.Output)}
			b.saw(Usage{Output: more})
		}
		return
	}
	if !known && len(c.last) >= maxTools {
		return
	}
	if c.last == nil {
		c.last = map[string]claudeResponse{}
	}
	c.last[parent] = claudeResponse{id, int64(u.Output)}
	b.saw(u.usage())
}

type claudeLine struct {
	Type      string          `json:"type"`
	Subtype   string          `json:"subtype"`
	Session   string          `json:"session_id"`
	Model     string          `json:"model"`
	Version   string          `json:"claude_code_version"`
	Parent    string          `json:"parent_tool_use_id"`
	Message   json.RawMessage `json:"message"` // an object, of permission_denied a text
	APIError  bool            `json:"is_api_error_message"`
	Error     string          `json:"error"`
	ToolMeta  json.RawMessage `json:"tool_result_meta"`
	ToolName  string          `json:"tool_name"`
	ToolID    string          `json:"tool_use_id"`
	RequestID string          `json:"request_id"`
	Request   json.RawMessage `json:"request"`
	Response  json.RawMessage `json:"response"`
	Event     json.RawMessage `json:"event"`
	Servers   []struct {
		Name   string `json:"name"`
		Status string `json:"status"`
	} `json:"mcp_servers"`
}

func (c *claude) line(b *book, raw []byte) {
	b.writers = []writer{{"Write", "file_path"}, {"Edit", "file_path"}, {"NotebookEdit", "notebook_path"}}
	var l claudeLine
	b.decode(raw, &l)
	b.session(l.Session)
	switch l.Type {
	case "system":
		c.system(b, &l)
	case "assistant":
		c.assistant(b, &l)
	case "user":
		c.user(b, &l)
	case "result":
		c.result(b, raw)
	case "stream_event":
		c.event(b, &l)
	case "control_request":
		c.request(b, &l)
	case "control_response":
		c.response(b, &l)
	default:
		b.unknown(l.Type)
	}
}

func (c *claude) system(b *book, l *claudeLine) {
	switch l.Subtype {
	case "init": // again before every turn of the two-way mode
		b.open()
		b.model(l.Model)
		b.version(l.Version)
		for _, s := range l.Servers {
			if s.Status == "failed" {
				b.warn(WarnNotice, "mcp server "+s.Name+" failed")
			}
		}
	case "api_retry":
		b.rec.Retries++
	case "permission_denied":
		b.permission(Permission{ToolID: l.ToolID, Tool: l.ToolName, Decision: Refusal})
	case "status", "ui_invalidate", "hook_started", "hook_response", "informational", "model_refusal_no_fallback":
	default:
		b.unknown("system/" + l.Subtype)
	}
}

func (c *claude) assistant(b *book, l *claudeLine) {
	if l.APIError {
		// The error in the words of an answer; the closing record has it again.
		c.authErr = l.Error == "authentication_failed"
		return
	}
	var m struct {
		ID      string
		Usage   claudeUse
		Content []struct {
			Type, Text, ID, Name string
			Input                json.RawMessage
		}
	}
	b.decode(l.Message, &m)
	c.used(b, l.Parent, m.ID, m.Usage)
	for _, block := range m.Content {
		switch block.Type {
		case "text":
			if l.Parent == "" { // what a sub-agent says is not the answer
				b.say(block.Text)
				c.delta = false
			}
		case "tool_use":
			b.call(block.ID, block.Name, string(block.Input))
		}
	}
}

func (c *claude) user(b *book, l *claudeLine) {
	refused := map[string]bool{}
	var metas []struct {
		ID       string
		Decision struct{ Decision string } `json:"permission_decision"`
	}
	b.decode(l.ToolMeta, &metas)
	for _, m := range metas {
		refused[m.ID] = m.Decision.Decision == "reject"
	}
	var m struct{ Content json.RawMessage }
	b.decode(l.Message, &m)
	if len(m.Content) == 0 || m.Content[0] != '[' {
		return // what we said ourselves
	}
	var blocks []struct {
		Type    string
		ID      string          `json:"tool_use_id"`
		Content json.RawMessage `json:"content"`
		IsError bool            `json:"is_error"`
	}
	b.decode(m.Content, &blocks)
	for _, block := range blocks {
		if block.Type != "tool_result" {
			continue
		}
		outcome := ToolOK
		switch {
		case refused[block.ID]:
			outcome = ToolDenied
		case block.IsError:
			outcome = ToolError
		}
		b.result(block.ID, outcome, textOf(block.Content))
		if outcome == ToolOK {
			b.decided(block.ID, Allowed) // it ran, so what was asked was allowed
		}
	}
}

// event takes the text of a partial message: it is all there is if the run is
// cut before the message is whole.
func (c *claude) event(b *book, l *claudeLine) {
	var e struct {
		Type    string
		Delta   struct{ Type, Text string }
		Usage   claudeUse // of message_delta: all of the response so far
		Message struct {
			ID    string
			Usage claudeUse
		}
	}
	b.decode(l.Event, &e)
	switch e.Type {
	case "message_start":
		c.used(b, l.Parent, e.Message.ID, e.Message.Usage)
	case "message_delta":
		c.used(b, l.Parent, "", e.Usage)
	}
	if l.Parent != "" || e.Type != "content_block_delta" || e.Delta.Type != "text_delta" {
		return
	}
	if !c.delta {
		b.say("")
		c.delta = true
	}
	b.add(e.Delta.Text)
}

func (c *claude) request(b *book, l *claudeLine) {
	var r struct {
		Subtype  string
		ToolName string `json:"tool_name"`
		ToolID   string `json:"tool_use_id"`
		Input    json.RawMessage
	}
	b.decode(l.Request, &r)
	switch r.Subtype {
	case "can_use_tool":
		b.permission(Permission{ToolID: r.ToolID, Tool: r.ToolName, Input: string(r.Input), Decision: Asked})
		if c.asked == nil {
			c.asked = map[string]string{}
		}
		if len(c.asked) < maxTools {
			c.asked[word(l.RequestID)] = word(r.ToolID)
		}
	case "hook_callback":
	default:
		b.unknown("control_request/" + r.Subtype)
	}
}

// response is an answer to our own request, or ours to a permission request,
// which is printed back.
func (c *claude) response(b *book, l *claudeLine) {
	var r struct {
		Subtype  string
		ID       string `json:"request_id"`
		Error    string
		Response struct{ Behavior string }
	}
	b.decode(l.Response, &r)
	if r.Subtype == "error" {
		b.warn(WarnNotice, r.Error)
	}
	tool, is := c.asked[word(r.ID)]
	if !is {
		return
	}
	switch r.Response.Behavior {
	case "allow":
		b.permission(Permission{ToolID: tool, Decision: Allowed})
	case "deny":
		b.permission(Permission{ToolID: tool, Decision: Refusal})
	}
}

type claudeResult struct {
	Subtype    string              `json:"subtype"`
	IsError    bool                `json:"is_error"`
	Result     string              `json:"result"`
	Errors     []string            `json:"errors"`
	Terminal   string              `json:"terminal_reason"`
	StopReason string              `json:"stop_reason"`
	Status     int                 `json:"api_error_status"`
	APIError   string              `json:"api_error"`
	Turns      count               `json:"num_turns"`
	Cost       *usd                `json:"total_cost_usd"`
	Usage      claudeUse           `json:"usage"`
	Models     map[string]struct{} `json:"modelUsage"`
	Denials    []struct {
		Tool  string          `json:"tool_name"`
		ID    string          `json:"tool_use_id"`
		Input json.RawMessage `json:"tool_input"`
	} `json:"permission_denials"`
}

func (c *claude) result(b *book, raw []byte) {
	var r claudeResult
	b.decode(raw, &r)
	b.rec.Turns += int(min(r.Turns, maxNumber>>8))
	if r.Cost != nil {
		b.nanoUSD, b.priced, b.rec.Cost.Cumulative = int64(*r.Cost), true, true
	}
	used := r.Usage.usage()
	// A turn that was stopped tells no tokens of its own although some were used.
	if used == (Usage{}) {
		b.rec.Usage.Partial = b.rec.Usage.Partial || len(r.Models) > 0
		used = b.seen
	}
	context := b.context
	b.seen = Usage{}
	b.spent(used)
	b.context = context           // of one response, and that was of all
	for _, d := range r.Denials { // the whole list: a hook's refusal has no line of its own
		b.call(d.ID, d.Tool, string(d.Input))
		b.permission(Permission{ToolID: d.ID, Tool: d.Tool, Input: string(d.Input), Decision: Refusal})
	}
	v := c.verdict(&r)
	if !r.IsError && (v.outcome == Completed || v.outcome == Refused) {
		b.say(r.Result)
	} else if v.err = strings.Join(r.Errors, "\n"); v.err == "" {
		v.err = r.Result
	}
	b.end(v)
	c.authErr = false
}

func (c *claude) verdict(r *claudeResult) verdict {
	v := verdict{reason: r.Terminal, status: r.Status}
	if v.reason == "" {
		v.reason = r.Subtype
	}
	switch {
	case r.StopReason == "refusal": // 2.1.332 calls it an error of the API, without a status
		v.outcome, v.reason = Refused, r.StopReason
	case !r.IsError && r.Subtype == "success":
		v.outcome = Completed
	case r.IsError && slices.ContainsFunc(r.Errors, func(e string) bool { return strings.HasPrefix(e, "No conversation found") }):
		v.outcome = NotStarted // with stream-json it closes a run that never began
	case strings.HasPrefix(r.Terminal, "aborted"):
		v.outcome = Interrupted
	case strings.HasPrefix(r.Subtype, "error_max_"), r.Terminal == "prompt_too_long":
		v.outcome = Limit
	case r.Status != 0:
		v.outcome = byStatus(r.Status)
	case r.APIError == "connection_failed":
		v.outcome = Unavailable
	case c.authErr, strings.HasPrefix(r.Result, "Not logged in"):
		v.outcome = Auth // without a key it tells no status and, in json mode, nothing but this text
	default:
		v.outcome = Failed
	}
	return v
}

func (c *claude) settle(*book, Exit) {}
