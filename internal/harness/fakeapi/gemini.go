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
	return failed[geminiError]{geminiError{r.status, r.message, status}}
}

type geminiError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Status  string `json:"status"`
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

type geminiChunk struct {
	Candidates []geminiCandidate `json:"candidates"`
	Model      string            `json:"modelVersion"`
	Usage      geminiUsage       `json:"usageMetadata"`
}

type geminiCandidate struct {
	Content geminiAnswer `json:"content"`
	Index   int          `json:"index"`
	Finish  string       `json:"finishReason,omitempty"`
}

type geminiAnswer struct {
	Role  string       `json:"role"`
	Parts []geminiSaid `json:"parts"`
}

// geminiSaid is a text or a call.
type geminiSaid struct {
	Text *string     `json:"text,omitempty"`
	Call *geminiCall `json:"functionCall,omitempty"`
}

type geminiCall struct {
	Args json.RawMessage `json:"args"`
	Name string          `json:"name"`
}

type geminiUsage struct {
	Prompt     int `json:"promptTokenCount"`
	Candidates int `json:"candidatesTokenCount"`
	Total      int `json:"totalTokenCount"`
	Cached     int `json:"cachedContentTokenCount"`
}

func (gemini) chunk(finish string, parts ...geminiSaid) geminiChunk {
	return geminiChunk{[]geminiCandidate{{geminiAnswer{"model", parts}, 0, finish}}, "fake-gemini", geminiUsage{100, 7, 107, 20}}
}

// last is the part that closes an answer.
func (gemini) last(r reply) (finish string, part geminiSaid) {
	switch {
	case r.Declined:
		return "SAFETY", geminiSaid{Text: new("")}
	case r.call != nil:
		return "STOP", geminiSaid{Call: &geminiCall{r.Call.Input, r.call.Name}}
	}
	return "STOP", geminiSaid{Text: new("")}
}

func (a gemini) whole(x *exchange, t *Turn, r reply) {
	finish, part := a.last(r)
	x.json(http.StatusOK, a.chunk(finish, geminiSaid{Text: new(a.asked(t.shape, r.Text))}, part))
}

func (a gemini) stream(x *exchange, _ *Turn, r reply) {
	goesOn := x.say(r.Text, func(piece string) {
		x.event("", a.chunk("", geminiSaid{Text: &piece}))
	}, func() {
		x.event("", a.failure(failureOf(http.StatusServiceUnavailable), ""))
	})
	if goesOn {
		finish, part := a.last(r)
		x.event("", a.chunk(finish, part))
	}
}
