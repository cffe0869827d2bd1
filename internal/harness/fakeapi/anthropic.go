package fakeapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
)

// anthropic is the Messages API.
type anthropic struct{}

func (anthropic) key(q *http.Request) string {
	return cmp.Or(q.Header.Get("x-api-key"), bearer(q))
}

func (anthropic) failure(r *refusal, id string) any {
	return anthropicEvent{Type: "error", Error: &anthropicError{r.kind, r.message}, RequestID: id}
}

type anthropicRequest struct {
	Model     string          `json:"model"`
	MaxTokens int64           `json:"max_tokens"`
	Stream    bool            `json:"stream"`
	System    json.RawMessage `json:"system"`
	Tools     []struct {
		Name string `json:"name"`
	} `json:"tools"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
}

type anthropicBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
}

func (anthropic) read(q *http.Request, body []byte) (*Turn, *refusal) {
	if q.Header.Get("anthropic-version") == "" {
		return nil, invalid("anthropic-version: header is required")
	}
	var r anthropicRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, invalid("the body is not a valid request: " + err.Error())
	}
	if r.MaxTokens < 1 {
		return nil, invalid("max_tokens: Input should be greater than or equal to 1")
	}
	t := &Turn{API: "anthropic", Model: r.Model, Stream: r.Stream, System: strings.Join(texts(r.System, "text"), "\n")}
	for _, tool := range r.Tools {
		t.Tools = append(t.Tools, Offer{Name: tool.Name, local: tool.Name})
	}
	for _, m := range r.Messages {
		switch m.Role {
		case "user", "assistant":
			if bad := t.anthropicMessage(m.Role, m.Content); bad != nil {
				return nil, bad
			}
		case "system":
			t.System += "\n" + strings.Join(texts(m.Content, "text"), "\n")
		default:
			return nil, invalid("messages: the role " + m.Role + " is not known")
		}
	}
	return t, nil
}

func (t *Turn) anthropicMessage(role string, content json.RawMessage) *refusal {
	var one string
	if json.Unmarshal(content, &one) == nil {
		t.Messages = append(t.Messages, Message{Role: role, Text: one})
		return nil
	}
	var blocks []anthropicBlock
	if err := json.Unmarshal(content, &blocks); err != nil || len(blocks) == 0 {
		return invalid("messages: content is a text or a list of at least one block")
	}
	for _, b := range blocks {
		switch b.Type {
		case "text":
			if strings.TrimSpace(b.Text) == "" {
				return invalid("messages: text content blocks must contain non-whitespace text")
			}
			t.Messages = append(t.Messages, Message{Role: role, Text: b.Text})
		case "tool_use":
			if role != "assistant" || len(b.Input) == 0 || b.Input[0] != '{' {
				return invalid("tool_use " + b.ID + ": it is of the assistant, and its input is a dictionary")
			}
			t.Messages = append(t.Messages, Message{Role: role, Call: b.ID, Tool: b.Name})
		case "tool_result":
			if role != "user" {
				return invalid("tool_result " + b.ToolUseID + ": it is of the user")
			}
			t.Messages = append(t.Messages, Message{Role: "tool", Call: b.ToolUseID, Text: strings.Join(texts(b.Content, "text"), "\n")})
		case "":
			return invalid("messages: a content block has no type")
		}
	}
	return nil
}

func (anthropic) stop(r reply) string {
	switch {
	case r.Declined:
		return "refusal"
	case r.call != nil:
		return "tool_use"
	}
	return "end_turn"
}

type anthropicError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

type anthropicMessage struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Role    string `json:"role"`
	Model   string `json:"model"`
	Content []any  `json:"content"`
	anthropicStop
	Usage anthropicUsage `json:"usage"`
}

type anthropicStop struct {
	Reason   *string `json:"stop_reason"`
	Sequence *string `json:"stop_sequence"`
}

type anthropicUsage struct {
	Input        int `json:"input_tokens,omitempty"`
	CacheCreated int `json:"cache_creation_input_tokens,omitempty"`
	CacheRead    int `json:"cache_read_input_tokens,omitempty"`
	Output       int `json:"output_tokens"`
}

// anthropicText is a block, and a piece of one.
type anthropicText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type anthropicCall struct {
	Type  string          `json:"type"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

type anthropicInput struct {
	Type string `json:"type"`
	JSON string `json:"partial_json"`
}

type anthropicEvent struct {
	Type      string            `json:"type"`
	Index     *int              `json:"index,omitempty"`
	Message   *anthropicMessage `json:"message,omitempty"`
	Block     any               `json:"content_block,omitempty"`
	Delta     any               `json:"delta,omitempty"`
	Usage     *anthropicUsage   `json:"usage,omitempty"`
	Error     *anthropicError   `json:"error,omitempty"`
	RequestID string            `json:"request_id,omitempty"`
}

func (anthropic) message(x *exchange, t *Turn, out int, content []any, stop *string) *anthropicMessage {
	return &anthropicMessage{
		ID: x.run.server.id("msg"), Type: "message", Role: "assistant", Model: t.Model, Content: content, anthropicStop: anthropicStop{Reason: stop},
		Usage: anthropicUsage{Input: 100, CacheCreated: 10, CacheRead: 20, Output: out},
	}
}

func (anthropic) call(x *exchange, r reply, input json.RawMessage) anthropicCall {
	return anthropicCall{"tool_use", x.run.server.id("toolu"), r.call.Name, input}
}

func (a anthropic) whole(x *exchange, t *Turn, r reply) {
	content := []any{anthropicText{"text", r.Text}}
	if r.call != nil {
		content = append(content, a.call(x, r, r.Call.Input))
	}
	x.json(http.StatusOK, a.message(x, t, 7, content, new(a.stop(r))))
}

func (a anthropic) stream(x *exchange, t *Turn, r reply) {
	event := func(kind string, e anthropicEvent) {
		e.Type = kind
		x.event(kind, e)
	}
	first, second := new(0), new(1)
	event("message_start", anthropicEvent{Message: a.message(x, t, 1, []any{}, nil)})
	event("content_block_start", anthropicEvent{Index: first, Block: anthropicText{Type: "text"}})
	event("ping", anthropicEvent{})
	goesOn := x.say(r.Text, func(piece string) {
		event("content_block_delta", anthropicEvent{Index: first, Delta: anthropicText{"text_delta", piece}})
	}, func() {
		event("error", anthropicEvent{Error: &anthropicError{"overloaded_error", "Overloaded"}})
	})
	if !goesOn {
		return
	}
	event("content_block_stop", anthropicEvent{Index: first})
	if r.call != nil {
		event("content_block_start", anthropicEvent{Index: second, Block: a.call(x, r, json.RawMessage("{}"))})
		for _, piece := range pieces(string(r.Call.Input)) {
			event("content_block_delta", anthropicEvent{Index: second, Delta: anthropicInput{"input_json_delta", piece}})
		}
		event("content_block_stop", anthropicEvent{Index: second})
	}
	event("message_delta", anthropicEvent{Delta: anthropicStop{Reason: new(a.stop(r))}, Usage: &anthropicUsage{Output: 7}})
	event("message_stop", anthropicEvent{})
}
