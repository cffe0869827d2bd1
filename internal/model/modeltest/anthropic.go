package modeltest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
)

type anthropicAPI struct{}

func (anthropicAPI) name() string { return "anthropic" }

type anthropicRequest struct {
	Model       string             `json:"model"`
	MaxTokens   int64              `json:"max_tokens"`
	Stream      bool               `json:"stream"`
	System      json.RawMessage    `json:"system"`
	Messages    []anthropicMessage `json:"messages"`
	Tools       []anthropicTool    `json:"tools"`
	ToolChoice  json.RawMessage    `json:"tool_choice"`
	Temperature *float64           `json:"temperature"`
	Metadata    json.RawMessage    `json:"metadata"`
}

type anthropicTool struct {
	Name         string          `json:"name"`
	Description  string          `json:"description"`
	InputSchema  json.RawMessage `json:"input_schema"`
	CacheControl json.RawMessage `json:"cache_control"`
}

type anthropicMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type anthropicBlock struct {
	Type         string          `json:"type"`
	Text         *string         `json:"text"`
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Input        json.RawMessage `json:"input"`
	ToolUseID    string          `json:"tool_use_id"`
	Content      json.RawMessage `json:"content"`
	IsError      bool            `json:"is_error"`
	Thinking     string          `json:"thinking"`
	Signature    string          `json:"signature"`
	CacheControl json.RawMessage `json:"cache_control"`
}

func (anthropicAPI) check(h http.Header, body []byte) *refusal {
	if h.Get("x-api-key") != Key && h.Get("authorization") != "Bearer "+Key {
		return &refusal{401, "authentication_error", "invalid x-api-key"}
	}
	if h.Get("anthropic-version") == "" {
		return invalid("anthropic-version: header is required")
	}
	var req anthropicRequest
	if bad := decodeStrict(body, &req); bad != nil {
		return bad
	}
	switch {
	case req.Model == "":
		return invalid("model: Field required")
	case strings.HasPrefix(req.Model, "no-such"):
		return &refusal{404, "not_found_error", "model: " + req.Model}
	case req.MaxTokens < 1:
		return invalid("max_tokens: Input should be greater than or equal to 1")
	case len(req.Messages) == 0:
		return invalid("messages: at least one message is required")
	}
	if bad := checkAnthropicTools(req.Tools); bad != nil {
		return bad
	}
	if len(req.System) > 0 {
		if _, bad := anthropicBlocks("system", req.System); bad != nil {
			return bad
		}
	}
	return checkAnthropicMessages(req)
}

func checkAnthropicTools(tools []anthropicTool) *refusal {
	seen := map[string]bool{}
	for _, t := range tools {
		if !anthropicName.MatchString(t.Name) {
			return invalid("tools.%s.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'", t.Name)
		}
		if seen[t.Name] {
			return invalid("tools: Tool names must be unique.")
		}
		seen[t.Name] = true
		if bad := checkSchema("tools."+t.Name+".input_schema", t.InputSchema); bad != nil {
			return bad
		}
	}
	return nil
}

// anthropicBlocks reads content, which is a string or a list of blocks.
func anthropicBlocks(where string, raw json.RawMessage) ([]anthropicBlock, *refusal) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if blank(text) {
			return nil, invalid("%s: text content must be non-empty", where)
		}
		return []anthropicBlock{{Type: "text", Text: &text}}, nil
	}
	var blocks []anthropicBlock
	if bad := decodeStrict(raw, &blocks); bad != nil {
		return nil, bad
	}
	if len(blocks) == 0 {
		return nil, invalid("%s: at least one content block is required", where)
	}
	for _, b := range blocks {
		if b.Type == "text" && (b.Text == nil || blank(*b.Text)) {
			return nil, invalid("%s: text content blocks must contain non-whitespace text", where)
		}
	}
	return blocks, nil
}

func checkAnthropicMessages(req anthropicRequest) *refusal {
	var calls answers
	for i, m := range req.Messages {
		want := [2]string{"user", "assistant"}[i%2]
		if m.Role != want {
			return invalid("messages: roles must alternate between \"user\" and \"assistant\", beginning with \"user\"; message %d is %q", i, m.Role)
		}
		blocks, bad := anthropicBlocks("messages."+m.Role, m.Content)
		if bad != nil {
			return bad
		}
		for k, b := range blocks {
			if bad := checkAnthropicBlock(&calls, req, m.Role, blocks, k, b); bad != nil {
				return bad
			}
		}
		if m.Role == "user" {
			if bad := calls.settled(); bad != nil {
				return bad
			}
		}
	}
	if req.Messages[len(req.Messages)-1].Role != "user" {
		return invalid("This model does not support assistant message prefill. The conversation must end with a user message.")
	}
	return nil
}

func checkAnthropicBlock(calls *answers, req anthropicRequest, role string, blocks []anthropicBlock, k int, b anthropicBlock) *refusal {
	switch b.Type {
	case "text":
		return nil
	case "tool_use":
		if role != "assistant" || len(req.Tools) == 0 {
			return invalid("tool_use blocks need the assistant role and `tools` to be defined")
		}
		if !anthropicName.MatchString(b.Name) || len(b.Input) == 0 || b.Input[0] != '{' {
			return invalid("tool_use %s: name or input is invalid: Input should be a valid dictionary", b.ID)
		}
		return calls.call(b.ID)
	case "tool_result":
		if role != "user" || len(req.Tools) == 0 {
			return invalid("tool_result blocks need the user role and `tools` to be defined")
		}
		if k > 0 && blocks[k-1].Type != "tool_result" {
			return invalid("tool_result blocks must come first in their message")
		}
		if len(b.Content) > 0 {
			if _, bad := anthropicBlocks("tool_result", b.Content); bad != nil {
				return bad
			}
		}
		return calls.result(b.ToolUseID)
	case "thinking":
		if role != "assistant" || b.Signature != sign(b.Thinking) {
			return invalid("thinking: Invalid `signature` in `thinking` block")
		}
		return nil
	}
	return invalid("content block type %q is not allowed here", b.Type)
}

func sign(thinking string) string {
	sum := sha256.Sum256([]byte("signed:" + thinking))
	return hex.EncodeToString(sum[:])
}

type anthropicError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
	RequestID string `json:"request_id,omitempty"`
}

func (anthropicAPI) refuse(w http.ResponseWriter, r refusal, id string) {
	doc := anthropicError{Type: "error", RequestID: id}
	doc.Error.Type, doc.Error.Message = r.kind, r.message
	w.Header().Set("request-id", id)
	_ = writeJSON(w, r.status, doc)
}

func (anthropicAPI) inBand(out *sse, kind string) error {
	doc := anthropicError{Type: "error"}
	doc.Error.Type, doc.Error.Message = kind, "as the test wished"
	return out.event("error", doc)
}

// The documents of an answer. Blocks differ by type, so they are written field by
// field rather than with one struct for all.
type (
	textBlock struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	thinkingBlock struct {
		Type      string `json:"type"`
		Thinking  string `json:"thinking"`
		Signature string `json:"signature"`
	}
	toolBlock struct {
		Type  string          `json:"type"`
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	}
	anthropicUsage struct {
		Input      int64 `json:"input_tokens"`
		Output     int64 `json:"output_tokens"`
		CacheRead  int64 `json:"cache_read_input_tokens"`
		CacheWrite int64 `json:"cache_creation_input_tokens"`
	}
	anthropicAnswer struct {
		ID           string         `json:"id"`
		Type         string         `json:"type"`
		Role         string         `json:"role"`
		Model        string         `json:"model"`
		Content      []any          `json:"content"`
		StopReason   *string        `json:"stop_reason"`
		StopSequence *string        `json:"stop_sequence"`
		Usage        anthropicUsage `json:"usage"`
	}
	delta struct {
		Type        string `json:"type"`
		Text        string `json:"text,omitempty"`
		PartialJSON string `json:"partial_json,omitempty"`
		Thinking    string `json:"thinking,omitempty"`
		Signature   string `json:"signature,omitempty"`
	}
	blockEvent struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
		Block any    `json:"content_block,omitempty"`
		Delta *delta `json:"delta,omitempty"`
	}
	messageEvent struct {
		Type    string           `json:"type"`
		Message *anthropicAnswer `json:"message,omitempty"`
		Delta   *stopDelta       `json:"delta,omitempty"`
		Usage   *anthropicUsage  `json:"usage,omitempty"`
	}
	stopDelta struct {
		StopReason   string  `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
	}
)

func anthropicStart(s *Server, body []byte, step Step) anthropicAnswer {
	var req anthropicRequest
	_ = json.Unmarshal(body, &req)
	u := step.usage()
	return anthropicAnswer{
		ID: s.id("msg"), Type: "message", Role: "assistant", Model: req.Model, Content: []any{},
		Usage: anthropicUsage{Input: u.Input - u.CacheRead - u.CacheWrite, Output: 1, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite},
	}
}

func anthropicStop(step Step) string {
	switch {
	case step.Stop != "":
		return step.Stop
	case len(step.Calls) > 0:
		return "tool_use"
	}
	return "end_turn"
}

func (anthropicAPI) whole(s *Server, w http.ResponseWriter, body []byte, step Step) error {
	out := anthropicStart(s, body, step)
	if step.Thinking != "" {
		out.Content = append(out.Content, thinkingBlock{"thinking", step.Thinking, sign(step.Thinking)})
	}
	if step.Text != "" {
		out.Content = append(out.Content, textBlock{"text", step.Text})
	}
	for _, c := range step.Calls {
		out.Content = append(out.Content, toolBlock{"tool_use", s.id("toolu"), c.Name, json.RawMessage(c.Args)})
	}
	stop := anthropicStop(step)
	out.StopReason, out.Usage.Output = &stop, step.usage().Output
	return writeJSON(w, http.StatusOK, out)
}

func (anthropicAPI) stream(s *Server, out *sse, body []byte, step Step) error {
	start := anthropicStart(s, body, step)
	if err := out.event("message_start", messageEvent{Type: "message_start", Message: &start}); err != nil {
		return err
	}
	if err := out.raw("event: ping\ndata: {\"type\": \"ping\"}\n\n"); err != nil {
		return err
	}
	index := 0
	block := func(open any, deltas ...delta) error {
		if err := out.event("content_block_start", blockEvent{Type: "content_block_start", Index: index, Block: open}); err != nil {
			return err
		}
		for i := range deltas {
			if err := out.event("content_block_delta", blockEvent{Type: "content_block_delta", Index: index, Delta: &deltas[i]}); err != nil {
				return err
			}
		}
		err := out.event("content_block_stop", blockEvent{Type: "content_block_stop", Index: index})
		index++
		return err
	}
	if step.Thinking != "" {
		if err := block(thinkingBlock{Type: "thinking"}, delta{Type: "thinking_delta", Thinking: step.Thinking}, delta{Type: "signature_delta", Signature: sign(step.Thinking)}); err != nil {
			return err
		}
	}
	if step.Text != "" || step.Fault == Endless {
		if err := block(textBlock{Type: "text"}, textDeltas(step)...); err != nil {
			return err
		}
	}
	for _, c := range step.Calls {
		var deltas []delta
		for _, p := range pieces(c.Args) {
			deltas = append(deltas, delta{Type: "input_json_delta", PartialJSON: p})
		}
		if err := block(toolBlock{"tool_use", s.id("toolu"), c.Name, json.RawMessage("{}")}, deltas...); err != nil {
			return err
		}
	}
	end := messageEvent{Type: "message_delta", Delta: &stopDelta{StopReason: anthropicStop(step)}, Usage: &anthropicUsage{
		Input: start.Usage.Input, Output: step.usage().Output, CacheRead: start.Usage.CacheRead, CacheWrite: start.Usage.CacheWrite,
	}}
	if err := out.event("message_delta", end); err != nil {
		return err
	}
	return out.raw("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
}

func textDeltas(step Step) []delta {
	var out []delta
	for _, p := range step.pieces() {
		out = append(out, delta{Type: "text_delta", Text: p})
	}
	return out
}

// pieces returns the text as it is streamed; Endless is more than any client
// should be ready to hold.
func (st Step) pieces() []string {
	if st.Fault != Endless {
		return pieces(st.Text)
	}
	out := make([]string, 48)
	big := strings.Repeat("and so on ", 100_000)
	for i := range out {
		out[i] = big
	}
	return out
}
