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
	return object{"type": "error", "error": object{"type": r.kind, "message": r.message}, "request_id": id}
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

func (a anthropic) message(x *exchange, t *Turn, out int, content []object, stop any) object {
	return object{
		"id": x.run.server.id("msg"), "type": "message", "role": "assistant", "model": t.Model, "content": content, "stop_reason": stop, "stop_sequence": nil,
		"usage": object{"input_tokens": 100, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 20, "output_tokens": out},
	}
}

func (a anthropic) whole(x *exchange, t *Turn, r reply) {
	content := []object{{"type": "text", "text": r.Text}}
	if r.call != nil {
		content = append(content, object{"type": "tool_use", "id": x.run.server.id("toolu"), "name": r.call.Name, "input": r.Call.Input})
	}
	x.json(http.StatusOK, a.message(x, t, 7, content, a.stop(r)))
}

func (a anthropic) stream(x *exchange, t *Turn, r reply) {
	event := func(kind string, doc object) {
		doc["type"] = kind
		x.event(kind, doc)
	}
	event("message_start", object{"message": a.message(x, t, 1, []object{}, nil)})
	event("content_block_start", object{"index": 0, "content_block": object{"type": "text", "text": ""}})
	event("ping", object{})
	goesOn := x.say(r.Text, func(piece string) {
		event("content_block_delta", object{"index": 0, "delta": object{"type": "text_delta", "text": piece}})
	}, func() {
		event("error", object{"error": object{"type": "overloaded_error", "message": "Overloaded"}})
	})
	if !goesOn {
		return
	}
	event("content_block_stop", object{"index": 0})
	if r.call != nil {
		event("content_block_start", object{"index": 1, "content_block": object{"type": "tool_use", "id": x.run.server.id("toolu"), "name": r.call.Name, "input": object{}}})
		for _, piece := range pieces(string(r.Call.Input)) {
			event("content_block_delta", object{"index": 1, "delta": object{"type": "input_json_delta", "partial_json": piece}})
		}
		event("content_block_stop", object{"index": 1})
	}
	event("message_delta", object{"delta": object{"stop_reason": a.stop(r), "stop_sequence": nil}, "usage": object{"output_tokens": 7}})
	event("message_stop", object{})
}
