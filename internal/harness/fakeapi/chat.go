package fakeapi

import (
	"encoding/json"
	"net/http"
	"strings"
)

// chat is OpenAI's chat completions API.
type chat struct{}

func (chat) key(q *http.Request) string { return bearer(q) }

func (chat) failure(r *refusal, _ string) any { return openaiFailure(r) }

type chatRequest struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	Messages []struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		ToolCallID string          `json:"tool_call_id"`
		ToolCalls  []struct {
			ID       string `json:"id"`
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
	Tools []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
}

func (chat) read(_ *http.Request, body []byte) (*Turn, *refusal) {
	var r chatRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, invalid("the body is not a valid request: " + err.Error())
	}
	t := &Turn{API: "chat", Model: r.Model, Stream: r.Stream}
	for _, tool := range r.Tools {
		t.Tools = append(t.Tools, Offer{Name: tool.Function.Name, local: tool.Function.Name})
	}
	for _, m := range r.Messages {
		text := strings.Join(texts(m.Content, "text"), "\n")
		switch m.Role {
		case "system", "developer":
			t.System += text + "\n"
		case "tool":
			t.Messages = append(t.Messages, Message{Role: "tool", Call: m.ToolCallID, Text: text})
		case "user", "assistant":
			if text != "" || len(m.ToolCalls) == 0 {
				t.Messages = append(t.Messages, Message{Role: m.Role, Text: text})
			}
			for _, c := range m.ToolCalls {
				t.Messages = append(t.Messages, Message{Role: "assistant", Call: c.ID, Tool: c.Function.Name})
			}
		default:
			return nil, invalid("messages: the role " + m.Role + " is not known")
		}
	}
	return t, nil
}

func (chat) stop(r reply) string {
	switch {
	case r.Declined:
		return "content_filter"
	case r.call != nil:
		return "tool_calls"
	}
	return "stop"
}

func chatUsage() object {
	return object{"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107, "prompt_tokens_details": object{"cached_tokens": 20}}
}

// call is the tool call of an answer, nil if it is none.
func (chat) call(x *exchange, r reply) []object {
	if r.call == nil {
		return nil
	}
	return []object{{"index": 0, "id": x.run.server.id("call"), "type": "function", "function": object{"name": r.call.Name, "arguments": string(r.Call.Input)}}}
}

func (a chat) whole(x *exchange, t *Turn, r reply) {
	msg := object{"role": "assistant", "content": r.Text}
	if calls := a.call(x, r); calls != nil {
		msg["tool_calls"] = calls
	}
	x.json(http.StatusOK, object{
		"id": x.run.server.id("chatcmpl"), "object": "chat.completion", "created": 1700000000, "model": t.Model, "usage": chatUsage(),
		"choices": []object{{"index": 0, "message": msg, "finish_reason": a.stop(r)}},
	})
}

func (a chat) stream(x *exchange, t *Turn, r reply) {
	id := x.run.server.id("chatcmpl")
	chunk := func(choices []object, usage any) {
		x.event("", object{"id": id, "object": "chat.completion.chunk", "created": 1700000000, "model": t.Model, "choices": choices, "usage": usage})
	}
	delta := func(d object, finish any) {
		chunk([]object{{"index": 0, "delta": d, "finish_reason": finish}}, nil)
	}
	delta(object{"role": "assistant", "content": ""}, nil)
	goesOn := x.say(r.Text, func(piece string) {
		delta(object{"content": piece}, nil)
	}, func() {
		x.event("", object{"error": object{"message": "Overloaded", "type": "server_error", "code": "overloaded"}})
	})
	if !goesOn {
		return
	}
	if calls := a.call(x, r); calls != nil {
		delta(object{"tool_calls": calls}, nil)
	}
	delta(object{}, a.stop(r))
	chunk([]object{}, chatUsage())
	x.send("", "[DONE]")
}
