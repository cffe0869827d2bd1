package fakeapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
)

// gemini is Google's generateContent API.
type gemini struct{}

func (gemini) key(q *http.Request) string {
	return cmp.Or(q.Header.Get("x-goog-api-key"), q.URL.Query().Get("key"))
}

func (gemini) failure(r *refusal, _ string) any {
	status := "UNAVAILABLE"
	switch r.status {
	case http.StatusBadRequest:
		status = "INVALID_ARGUMENT"
	case http.StatusUnauthorized:
		status = "UNAUTHENTICATED"
	case http.StatusForbidden:
		status = "PERMISSION_DENIED"
	case http.StatusNotFound:
		status = "NOT_FOUND"
	case http.StatusTooManyRequests:
		status = "RESOURCE_EXHAUSTED"
	case http.StatusInternalServerError:
		status = "INTERNAL"
	}
	return object{"error": object{"code": r.status, "message": r.message, "status": status}}
}

type geminiContent struct {
	Role  string       `json:"role"`
	Parts []geminiPart `json:"parts"`
}

type geminiPart struct {
	Text    string `json:"text"`
	Thought bool   `json:"thought"`
	Call    *struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"functionCall"`
	Result *struct {
		ID       string          `json:"id"`
		Name     string          `json:"name"`
		Response json.RawMessage `json:"response"`
	} `json:"functionResponse"`
}

type geminiRequest struct {
	Contents []geminiContent `json:"contents"`
	System   geminiContent   `json:"systemInstruction"`
	Tools    []struct {
		Functions []struct {
			Name string `json:"name"`
		} `json:"functionDeclarations"`
	} `json:"tools"`
	Config struct {
		JSONSchema json.RawMessage `json:"responseJsonSchema"`
		Schema     json.RawMessage `json:"responseSchema"`
	} `json:"generationConfig"`
}

func (gemini) read(q *http.Request, body []byte) (*Turn, *refusal) {
	var r geminiRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, invalid("the body is not a valid request: " + err.Error())
	}
	_, model, _ := strings.Cut(q.URL.Path, "/models/")
	model, verb, _ := strings.Cut(model, ":")
	t := &Turn{API: "gemini", Model: model, Stream: verb == "streamGenerateContent"}
	if t.Stream && q.URL.Query().Get("alt") != "sse" {
		return nil, invalid("alt: only sse is served here")
	}
	for _, p := range r.System.Parts {
		t.System += p.Text + "\n"
	}
	for _, tool := range r.Tools {
		for _, f := range tool.Functions {
			t.Tools = append(t.Tools, Offer{Name: f.Name, local: f.Name})
		}
	}
	for _, c := range r.Contents {
		if bad := t.geminiContent(c); bad != nil {
			return nil, bad
		}
	}
	if !t.Stream {
		t.shape = string(r.Config.JSONSchema) + string(r.Config.Schema)
	}
	return t, nil
}

func (t *Turn) geminiContent(c geminiContent) *refusal {
	role, known := map[string]string{"": "user", "user": "user", "function": "user", "model": "assistant"}[c.Role]
	if !known {
		return invalid("contents: Please use a valid role: user, model.")
	}
	if len(c.Parts) == 0 {
		return invalid("contents: contents must not be empty")
	}
	for _, p := range c.Parts {
		switch {
		case p.Call != nil:
			t.Messages = append(t.Messages, Message{Role: "assistant", Call: cmp.Or(p.Call.ID, p.Call.Name), Tool: p.Call.Name})
		case p.Result != nil:
			t.Messages = append(t.Messages, Message{Role: "tool", Call: cmp.Or(p.Result.ID, p.Result.Name), Text: string(p.Result.Response)})
		case p.Text != "" && !p.Thought:
			t.Messages = append(t.Messages, Message{Role: role, Text: p.Text})
		}
	}
	return nil
}

// asked is what is said to the questions a CLI asks beside the conversation, by the
// schema it wants the answer in.
func (gemini) asked(schema, text string) string {
	switch {
	case strings.Contains(schema, "next_speaker"):
		return `{"reasoning":"done","next_speaker":"user"}`
	case strings.Contains(schema, "model_choice"):
		return `{"reasoning":"simple","model_choice":"flash"}`
	case strings.Contains(schema, "complexity_score"):
		return `{"complexity_reasoning":"simple","complexity_score":10}`
	}
	return text
}

func (gemini) chunk(parts []object, finish string) object {
	c := object{"content": object{"role": "model", "parts": parts}, "index": 0}
	if finish != "" {
		c["finishReason"] = finish
	}
	return object{
		"candidates": []object{c}, "modelVersion": "fake-gemini",
		"usageMetadata": object{"promptTokenCount": 100, "candidatesTokenCount": 7, "totalTokenCount": 107, "cachedContentTokenCount": 20},
	}
}

// last are the parts that close an answer.
func (gemini) last(r reply) (parts []object, finish string) {
	switch {
	case r.Declined:
		return []object{{"text": ""}}, "SAFETY"
	case r.call != nil:
		return []object{{"functionCall": object{"name": r.call.Name, "args": r.Call.Input}}}, "STOP"
	}
	return []object{{"text": ""}}, "STOP"
}

func (a gemini) whole(x *exchange, t *Turn, r reply) {
	parts, finish := a.last(r)
	x.json(http.StatusOK, a.chunk(append([]object{{"text": a.asked(t.shape, r.Text)}}, parts...), finish))
}

func (a gemini) stream(x *exchange, _ *Turn, r reply) {
	goesOn := x.say(r.Text, func(piece string) {
		x.event("", a.chunk([]object{{"text": piece}}, ""))
	}, func() {
		x.event("", a.failure(failureOf(http.StatusServiceUnavailable), ""))
	})
	if goesOn {
		x.event("", a.chunk(a.last(r)))
	}
}
