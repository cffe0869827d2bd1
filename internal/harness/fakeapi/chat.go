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

type chatDocument struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int          `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *chatUsage   `json:"usage"`
}

type chatChoice struct {
	Index   int          `json:"index"`
	Message *chatMessage `json:"message,omitempty"`
	Delta   *chatMessage `json:"delta,omitempty"`
	Finish  *string      `json:"finish_reason"`
}

type chatMessage struct {
	Role    string     `json:"role,omitempty"`
	Content *string    `json:"content,omitempty"`
	Calls   []chatCall `json:"tool_calls,omitempty"`
}

type chatCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type chatUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (chat) usage() *chatUsage {
	u := &chatUsage{Prompt: 100, Completion: 7, Total: 107}
	u.Details.Cached = 20
	return u
}

// calls is the tool call of an answer, nil if it is none.
func (chat) calls(x *exchange, r reply) []chatCall {
	if r.call == nil {
		return nil
	}
	c := chatCall{ID: x.run.server.id("call"), Type: "function"}
	c.Function.Name, c.Function.Arguments = r.call.Name, string(r.Call.Input)
	return []chatCall{c}
}

func (a chat) whole(x *exchange, t *Turn, r reply) {
	msg := &chatMessage{Role: "assistant", Content: &r.Text, Calls: a.calls(x, r)}
	x.json(http.StatusOK, chatDocument{
		x.run.server.id("chatcmpl"), "chat.completion", 1700000000, t.Model, []chatChoice{{Message: msg, Finish: new(a.stop(r))}}, a.usage(),
	})
}

func (a chat) stream(x *exchange, t *Turn, r reply) {
	id := x.run.server.id("chatcmpl")
	chunk := func(choices []chatChoice, usage *chatUsage) {
		x.event("", chatDocument{id, "chat.completion.chunk", 1700000000, t.Model, choices, usage})
	}
	delta := func(d chatMessage, finish *string) {
		chunk([]chatChoice{{Delta: &d, Finish: finish}}, nil)
	}
	delta(chatMessage{Role: "assistant", Content: new("")}, nil)
	goesOn := x.say(r.Text, func(piece string) {
		delta(chatMessage{Content: &piece}, nil)
	}, func() {
		x.event("", failed[openaiError]{openaiError{Message: "Overloaded", Type: "server_error", Code: "overloaded"}})
	})
	if !goesOn {
		return
	}
	if calls := a.calls(x, r); calls != nil {
		delta(chatMessage{Calls: calls}, nil)
	}
	delta(chatMessage{}, new(a.stop(r)))
	chunk([]chatChoice{}, a.usage())
	x.send("", "[DONE]")
}
