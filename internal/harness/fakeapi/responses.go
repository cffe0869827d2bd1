package fakeapi

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
)

// responses is OpenAI's Responses API.
type responses struct{}

func (responses) key(q *http.Request) string { return bearer(q) }

func (responses) failure(r *refusal, _ string) any { return openaiFailure(r) }

func openaiFailure(r *refusal) object {
	code := r.kind
	if r.status == http.StatusUnauthorized {
		code = "invalid_api_key"
	}
	return object{"error": object{"message": r.message, "type": r.kind, "param": nil, "code": code}}
}

type responsesRequest struct {
	Model        string          `json:"model"`
	Stream       bool            `json:"stream"`
	Instructions string          `json:"instructions"`
	Input        json.RawMessage `json:"input"`
	Tools        []struct {
		Type  string `json:"type"`
		Name  string `json:"name"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	} `json:"tools"`
	Previous string `json:"previous_response_id"`
}

type responsesItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Namespace string          `json:"namespace"`
	Output    json.RawMessage `json:"output"`
}

func (responses) read(_ *http.Request, body []byte) (*Turn, *refusal) {
	var r responsesRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, invalid("the body is not a valid request: " + err.Error())
	}
	if r.Previous != "" {
		return nil, invalid("previous_response_id: Previous response not found")
	}
	t := &Turn{API: "responses", Model: r.Model, Stream: r.Stream, System: r.Instructions}
	for _, tool := range r.Tools {
		if tool.Type == "namespace" {
			for _, f := range tool.Tools {
				t.Tools = append(t.Tools, Offer{Name: tool.Name + "__" + f.Name, space: tool.Name, local: f.Name, kind: "function"})
			}
			continue
		}
		name := tool.Name
		if name == "" {
			name = tool.Type // the API's own tools have no other name
		}
		t.Tools = append(t.Tools, Offer{Name: name, local: name, kind: tool.Type})
	}
	var one string
	if json.Unmarshal(r.Input, &one) == nil {
		t.Messages = []Message{{Role: "user", Text: one}}
		return t, nil
	}
	var items []responsesItem
	if err := json.Unmarshal(r.Input, &items); err != nil {
		return nil, invalid("input: it is a text or a list of items")
	}
	for _, item := range items {
		if bad := t.responsesItem(item); bad != nil {
			return nil, bad
		}
	}
	return t, nil
}

func (t *Turn) responsesItem(i responsesItem) *refusal {
	switch {
	case i.Type == "message" || i.Type == "" && i.Role != "":
		said := texts(i.Content, "input_text", "output_text", "text")
		switch i.Role {
		case "developer", "system":
			t.System += "\n" + strings.Join(said, "\n")
		case "user", "assistant":
			for _, text := range said {
				t.Messages = append(t.Messages, Message{Role: i.Role, Text: text})
			}
		default:
			return invalid("input: the role " + i.Role + " is not known")
		}
	case strings.HasSuffix(i.Type, "_output"):
		text := strings.Join(texts(i.Output, "input_text", "text"), "\n")
		t.Messages = append(t.Messages, Message{Role: "tool", Call: i.CallID, Text: text})
	case strings.HasSuffix(i.Type, "_call") && i.CallID != "":
		name := i.Name
		if i.Namespace != "" {
			name = i.Namespace + "__" + name
		}
		t.Messages = append(t.Messages, Message{Role: "assistant", Call: i.CallID, Tool: name})
	case i.Type == "":
		return invalid("input: an item has no type")
	}
	return nil
}

// text is the item of what is said.
func (responses) text(x *exchange, r reply) object {
	part := object{"type": "output_text", "text": r.Text, "annotations": []object{}}
	if r.Declined {
		part = object{"type": "refusal", "refusal": r.Text}
	}
	return object{"type": "message", "id": x.run.server.id("msg"), "role": "assistant", "status": "completed", "content": []object{part}}
}

// item is that of a call.
func (responses) item(x *exchange, r reply) object {
	item := object{"call_id": x.run.server.id("call"), "status": "completed"}
	switch r.call.kind {
	case "tool_search":
		item["type"], item["id"], item["execution"], item["arguments"] = "tool_search_call", x.run.server.id("tsc"), "client", r.Call.Input
	case "custom":
		item["type"], item["id"], item["name"], item["input"] = "custom_tool_call", x.run.server.id("ctc"), r.call.Name, plainText(r.Call.Input)
	default:
		item["type"], item["id"], item["name"], item["arguments"] = "function_call", x.run.server.id("fc"), r.call.local, string(r.Call.Input)
		if r.call.space != "" {
			item["namespace"] = r.call.space
		}
	}
	return item
}

// plainText is the input of a tool that takes a text: a JSON text is unpacked.
func plainText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

func (a responses) response(x *exchange, t *Turn, status string, output []object, usage any) object {
	return object{
		"id": x.run.server.id("resp"), "object": "response", "created_at": 1700000000, "status": status, "model": t.Model, "output": output, "usage": usage,
		"parallel_tool_calls": true, "tools": []object{}, "error": nil, "incomplete_details": nil,
	}
}

func responsesUsage() object {
	return object{"input_tokens": 100, "input_tokens_details": object{"cached_tokens": 20}, "output_tokens": 7, "output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": 107}
}

func (a responses) whole(x *exchange, t *Turn, r reply) {
	output := []object{a.text(x, r)}
	if r.call != nil {
		output = append(output, a.item(x, r))
	}
	x.json(http.StatusOK, a.response(x, t, "completed", output, responsesUsage()))
}

func (a responses) stream(x *exchange, t *Turn, r reply) {
	number := -1
	event := func(kind string, doc object) {
		number++
		doc["type"], doc["sequence_number"] = kind, number
		x.event(kind, doc)
	}
	msg := a.text(x, r)
	begun := a.response(x, t, "in_progress", []object{}, nil)
	event("response.created", object{"response": begun})
	event("response.in_progress", object{"response": begun})
	event("response.output_item.added", object{"output_index": 0, "item": object{"type": "message", "id": msg["id"], "role": "assistant", "status": "in_progress", "content": []object{}}})
	at := func(doc object) object {
		doc["item_id"], doc["output_index"], doc["content_index"] = msg["id"], 0, 0
		return doc
	}
	part, kind, key := object{"type": "output_text", "text": "", "annotations": []object{}}, "response.output_text", "text"
	if r.Declined {
		part, kind, key = object{"type": "refusal", "refusal": ""}, "response.refusal", "refusal"
	}
	event("response.content_part.added", at(object{"part": part}))
	goesOn := x.say(r.Text, func(piece string) {
		event(kind+".delta", at(object{"delta": piece}))
	}, func() {
		failed := a.response(x, t, "failed", []object{}, nil)
		failed["error"] = object{"code": "server_is_overloaded", "message": "Overloaded"}
		event("response.failed", object{"response": failed})
	})
	if !goesOn {
		return
	}
	event(kind+".done", at(object{key: r.Text}))
	event("response.content_part.done", at(object{"part": msg["content"].([]object)[0]}))
	event("response.output_item.done", object{"output_index": 0, "item": msg})
	output := []object{msg}
	if r.call != nil {
		item := a.item(x, r)
		output = append(output, item)
		a.streamCall(event, item)
	}
	completed := a.response(x, t, "completed", output, responsesUsage())
	completed["id"] = begun["id"]
	event("response.completed", object{"response": completed})
}

// streamCall sends the item of a call.
func (responses) streamCall(event func(string, object), item object) {
	begun := maps.Clone(item)
	begun["status"] = "in_progress"
	name, field := "", ""
	switch item["type"] {
	case "function_call":
		name, field = "response.function_call_arguments", "arguments"
	case "custom_tool_call":
		name, field = "response.custom_tool_call_input", "input"
	}
	if field != "" {
		begun[field] = ""
	}
	event("response.output_item.added", object{"output_index": 1, "item": begun})
	if field != "" {
		for _, piece := range pieces(item[field].(string)) {
			event(name+".delta", object{"item_id": item["id"], "output_index": 1, "delta": piece})
		}
		event(name+".done", object{"item_id": item["id"], "output_index": 1, field: item[field]})
	}
	event("response.output_item.done", object{"output_index": 1, "item": item})
}
