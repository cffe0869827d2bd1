package fakeapi

import (
	"encoding/json"
	"net/http"
	"strings"
)

// responses is OpenAI's Responses API.
type responses struct{}

func (responses) key(q *http.Request) string { return bearer(q) }

func (responses) failure(r *refusal, _ string) any { return openaiFailure(r) }

type openaiError struct {
	Message string          `json:"message"`
	Type    string          `json:"type,omitempty"`
	Param   json.RawMessage `json:"param,omitempty"`
	Code    string          `json:"code"`
}

func openaiFailure(r *refusal) failed[openaiError] {
	code := r.kind
	if r.status == http.StatusUnauthorized {
		code = "invalid_api_key"
	}
	return failed[openaiError]{openaiError{r.message, r.kind, json.RawMessage("null"), code}}
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

// responsesPart is a text or a refusal.
type responsesPart struct {
	Type        string  `json:"type"`
	Text        *string `json:"text,omitempty"`
	Annotations []any   `json:"annotations,omitzero"`
	Refusal     *string `json:"refusal,omitempty"`
}

func partOf(r reply, text string) responsesPart {
	if r.Declined {
		return responsesPart{Type: "refusal", Refusal: &text}
	}
	return responsesPart{Type: "output_text", Text: &text, Annotations: []any{}}
}

type responsesMessage struct {
	Type    string          `json:"type"`
	ID      string          `json:"id"`
	Role    string          `json:"role"`
	Status  string          `json:"status"`
	Content []responsesPart `json:"content"`
}

type responsesCall struct {
	Type      string  `json:"type"`
	ID        string  `json:"id"`
	CallID    string  `json:"call_id"`
	Status    string  `json:"status"`
	Execution string  `json:"execution,omitempty"`
	Name      string  `json:"name,omitempty"`
	Namespace string  `json:"namespace,omitempty"`
	Arguments any     `json:"arguments,omitempty"` // a function's are a text
	Input     *string `json:"input,omitempty"`
}

// callOf is the item of a call.
func (responses) callOf(x *exchange, r reply) responsesCall {
	c := responsesCall{CallID: x.run.server.id("call"), Status: "completed"}
	switch r.call.kind {
	case "tool_search":
		c.Type, c.ID, c.Execution, c.Arguments = "tool_search_call", x.run.server.id("tsc"), "client", r.Call.Input
	case "custom":
		c.Type, c.ID, c.Name, c.Input = "custom_tool_call", x.run.server.id("ctc"), r.call.Name, new(plainText(r.Call.Input))
	default:
		c.Type, c.ID, c.Name, c.Namespace, c.Arguments = "function_call", x.run.server.id("fc"), r.call.local, r.call.space, string(r.Call.Input)
	}
	return c
}

// plainText is the input of a tool that takes a text: a JSON text is unpacked.
func plainText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

type responsesDocument struct {
	ID         string          `json:"id"`
	Object     string          `json:"object"`
	Created    int             `json:"created_at"`
	Status     string          `json:"status"`
	Model      string          `json:"model"`
	Output     []any           `json:"output"`
	Usage      *responsesUsage `json:"usage"`
	Parallel   bool            `json:"parallel_tool_calls"`
	Tools      []any           `json:"tools"`
	Error      *openaiError    `json:"error"`
	Incomplete *struct{}       `json:"incomplete_details"`
}

type responsesUsage struct {
	Input        int `json:"input_tokens"`
	InputDetails struct {
		Cached int `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	Output        int `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int `json:"total_tokens"`
}

func (responses) document(x *exchange, t *Turn, status string, output ...any) *responsesDocument {
	d := &responsesDocument{
		ID: x.run.server.id("resp"), Object: "response", Created: 1700000000, Status: status, Model: t.Model, Output: append([]any{}, output...),
		Parallel: true, Tools: []any{},
	}
	if status == "completed" {
		d.Usage = &responsesUsage{Input: 100, Output: 7, Total: 107}
		d.Usage.InputDetails.Cached = 20
	}
	return d
}

// message is the item of what is said.
func (responses) message(x *exchange, r reply) responsesMessage {
	return responsesMessage{"message", x.run.server.id("msg"), "assistant", "completed", []responsesPart{partOf(r, r.Text)}}
}

func (a responses) whole(x *exchange, t *Turn, r reply) {
	output := []any{a.message(x, r)}
	if r.call != nil {
		output = append(output, a.callOf(x, r))
	}
	x.json(http.StatusOK, a.document(x, t, "completed", output...))
}

type responsesEvent struct {
	Type         string             `json:"type"`
	Number       int                `json:"sequence_number"`
	Response     *responsesDocument `json:"response,omitempty"`
	OutputIndex  *int               `json:"output_index,omitempty"`
	ContentIndex *int               `json:"content_index,omitempty"`
	Item         any                `json:"item,omitempty"`
	ItemID       string             `json:"item_id,omitempty"`
	Part         *responsesPart     `json:"part,omitempty"`
	Delta        *string            `json:"delta,omitempty"`
	// What a .done says again, by what it was.
	Text      *string `json:"text,omitempty"`
	Refusal   *string `json:"refusal,omitempty"`
	Arguments any     `json:"arguments,omitempty"`
	Input     *string `json:"input,omitempty"`
}

func (a responses) stream(x *exchange, t *Turn, r reply) {
	number := -1
	event := func(kind string, e responsesEvent) {
		number++
		e.Type, e.Number = kind, number
		x.event(kind, e)
	}
	msg, first := a.message(x, r), new(0)
	begun := a.document(x, t, "in_progress")
	event("response.created", responsesEvent{Response: begun})
	event("response.in_progress", responsesEvent{Response: begun})
	event("response.output_item.added", responsesEvent{OutputIndex: first, Item: responsesMessage{"message", msg.ID, "assistant", "in_progress", []responsesPart{}}})
	said := func(kind string, e responsesEvent) {
		e.ItemID, e.OutputIndex, e.ContentIndex = msg.ID, first, first
		event("response."+kind, e)
	}
	said("content_part.added", responsesEvent{Part: new(partOf(r, ""))})
	part := msg.Content[0]
	goesOn := x.say(r.Text, func(piece string) {
		said(part.Type+".delta", responsesEvent{Delta: &piece})
	}, func() {
		broken := a.document(x, t, "failed")
		broken.Error = &openaiError{Code: "server_is_overloaded", Message: "Overloaded"}
		event("response.failed", responsesEvent{Response: broken})
	})
	if !goesOn {
		return
	}
	said(part.Type+".done", responsesEvent{Text: part.Text, Refusal: part.Refusal})
	said("content_part.done", responsesEvent{Part: &part})
	event("response.output_item.done", responsesEvent{OutputIndex: first, Item: msg})
	output := []any{msg}
	if r.call != nil {
		c := a.callOf(x, r)
		output = append(output, c)
		a.streamCall(event, c)
	}
	completed := a.document(x, t, "completed", output...)
	completed.ID = begun.ID
	event("response.completed", responsesEvent{Response: completed})
}

// streamCall sends the item of a call.
func (responses) streamCall(event func(string, responsesEvent), c responsesCall) {
	begun, second := c, new(1)
	begun.Status = "in_progress"
	name, text := "", ""
	switch c.Type {
	case "function_call":
		name, text = "response.function_call_arguments", c.Arguments.(string)
		begun.Arguments = ""
	case "custom_tool_call":
		name, text = "response.custom_tool_call_input", *c.Input
		begun.Input = new("")
	}
	event("response.output_item.added", responsesEvent{OutputIndex: second, Item: begun})
	if name != "" {
		for _, piece := range pieces(text) {
			event(name+".delta", responsesEvent{ItemID: c.ID, OutputIndex: second, Delta: &piece})
		}
		event(name+".done", responsesEvent{ItemID: c.ID, OutputIndex: second, Arguments: c.Arguments, Input: c.Input})
	}
	event("response.output_item.done", responsesEvent{OutputIndex: second, Item: c})
}
