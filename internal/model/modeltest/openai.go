package modeltest

import (
	"encoding/json"
	"net/http"
	"strings"
)

type openaiAPI struct{}

func (openaiAPI) name() string { return "openai" }

type openaiRequest struct {
	Model         string          `json:"model"`
	Messages      []openaiMessage `json:"messages"`
	Tools         []openaiTool    `json:"tools"`
	Stream        bool            `json:"stream"`
	StreamOptions *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	MaxTokens           *int64          `json:"max_tokens"`
	MaxCompletionTokens *int64          `json:"max_completion_tokens"`
	Temperature         *float64        `json:"temperature"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	Store               bool            `json:"store"`
}

type openaiTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      bool            `json:"strict"`
	} `json:"function"`
}

type openaiMessage struct {
	Role       string       `json:"role"`
	Content    *string      `json:"content"`
	Name       string       `json:"name"`
	ToolCallID string       `json:"tool_call_id"`
	ToolCalls  []openaiCall `json:"tool_calls"`
}

type openaiCall struct {
	Index    *int   `json:"index,omitempty"`
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func (openaiAPI) check(h http.Header, body []byte) *refusal {
	if h.Get("authorization") != "Bearer "+Key {
		return &refusal{401, "invalid_api_key", "Incorrect API key provided."}
	}
	var req openaiRequest
	if bad := decodeStrict(body, &req); bad != nil {
		return bad
	}
	switch {
	case req.Model == "":
		return invalid("you must provide a model parameter")
	case strings.HasPrefix(req.Model, "no-such"):
		return &refusal{404, "model_not_found", "The model `" + req.Model + "` does not exist"}
	case len(req.Messages) == 0:
		return invalid("[] is too short - 'messages'")
	case req.MaxTokens != nil && req.MaxCompletionTokens != nil:
		return invalid("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
	case req.MaxTokens != nil && (strings.HasPrefix(req.Model, "gpt-5") || strings.HasPrefix(req.Model, "o")):
		return invalid("Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.")
	case req.MaxTokens != nil && *req.MaxTokens < 1, req.MaxCompletionTokens != nil && *req.MaxCompletionTokens < 1:
		return invalid("Invalid 'max_tokens': integer below minimum value.")
	case req.StreamOptions != nil && !req.Stream:
		return invalid("The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	}
	for _, t := range req.Tools {
		if t.Type != "function" || !openaiName.MatchString(t.Function.Name) {
			return invalid("Invalid 'tools[].function.name': %q does not match '^[a-zA-Z0-9_-]{1,64}$'", t.Function.Name)
		}
		if bad := checkSchema("function '"+t.Function.Name+"'", t.Function.Parameters); bad != nil {
			return bad
		}
	}
	return checkOpenAIMessages(req)
}

func checkOpenAIMessages(req openaiRequest) *refusal {
	var calls answers
	for i, m := range req.Messages {
		if m.Role != "tool" {
			if bad := calls.settled(); bad != nil {
				return bad
			}
		}
		switch m.Role {
		case "system", "developer", "user":
			if m.Content == nil {
				return invalid("messages.%d: missing content", i)
			}
		case "tool":
			if m.Content == nil {
				return invalid("messages.%d: a tool message needs content", i)
			}
			if bad := calls.result(m.ToolCallID); bad != nil {
				return bad
			}
		case "assistant":
			if m.Content == nil && len(m.ToolCalls) == 0 {
				return invalid("messages.%d: an assistant message needs content or tool_calls", i)
			}
			for _, c := range m.ToolCalls {
				if c.Type != "function" || !openaiName.MatchString(c.Function.Name) {
					return invalid("messages.%d: Invalid 'tool_calls[].function.name': %q", i, c.Function.Name)
				}
				if bad := calls.call(c.ID); bad != nil {
					return bad
				}
			}
		default:
			return invalid("messages.%d: unknown role %q", i, m.Role)
		}
	}
	return calls.settled()
}

type openaiError struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	} `json:"error"`
}

func newOpenAIError(r refusal) openaiError {
	var doc openaiError
	doc.Error.Message, doc.Error.Type = r.message, r.kind
	if r.status != 400 {
		doc.Error.Code = &r.kind
	}
	if r.status == 401 {
		doc.Error.Type = "invalid_request_error"
	}
	return doc
}

func (openaiAPI) refuse(w http.ResponseWriter, r refusal, id string) {
	w.Header().Set("x-request-id", id)
	_ = writeJSON(w, r.status, newOpenAIError(r))
}

func (openaiAPI) inBand(out *sse, kind string) error {
	return out.event("", newOpenAIError(refusal{500, kind, "as the test wished"}))
}

type (
	openaiUsage struct {
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
		Total      int64 `json:"total_tokens"`
		Details    struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	}
	openaiDelta struct {
		Role      string       `json:"role,omitempty"`
		Content   *string      `json:"content,omitempty"`
		ToolCalls []openaiCall `json:"tool_calls,omitempty"`
	}
	openaiChoice struct {
		Index        int          `json:"index"`
		Delta        *openaiDelta `json:"delta,omitempty"`
		Message      *openaiDelta `json:"message,omitempty"`
		FinishReason *string      `json:"finish_reason"`
	}
	openaiAnswer struct {
		ID      string         `json:"id"`
		Object  string         `json:"object"`
		Created int64          `json:"created"`
		Model   string         `json:"model"`
		Choices []openaiChoice `json:"choices"`
		Usage   *openaiUsage   `json:"usage"`
	}
)

func openaiUsageOf(step Step) *openaiUsage {
	u := step.usage()
	out := &openaiUsage{Prompt: u.Input, Completion: u.Output, Total: u.Input + u.Output}
	out.Details.Cached = u.CacheRead
	return out
}

func openaiStop(step Step) string {
	switch {
	case step.Stop != "":
		return step.Stop
	case len(step.Calls) > 0:
		return "tool_calls"
	}
	return "stop"
}

func (s *Server) openaiCalls(step Step) []openaiCall {
	out := make([]openaiCall, len(step.Calls))
	for i, c := range step.Calls {
		out[i] = openaiCall{ID: s.id("call"), Type: "function"}
		out[i].Function.Name, out[i].Function.Arguments = c.Name, c.Args
	}
	return out
}

func (openaiAPI) whole(s *Server, w http.ResponseWriter, body []byte, step Step) error {
	var req openaiRequest
	_ = json.Unmarshal(body, &req)
	stop := openaiStop(step)
	out := openaiAnswer{ID: s.id("chatcmpl"), Object: "chat.completion", Created: 1_700_000_000, Model: req.Model, Usage: openaiUsageOf(step)}
	out.Choices = []openaiChoice{{Message: &openaiDelta{Role: "assistant", Content: &step.Text, ToolCalls: s.openaiCalls(step)}, FinishReason: &stop}}
	return writeJSON(w, http.StatusOK, out)
}

func (openaiAPI) stream(s *Server, out *sse, body []byte, step Step) error {
	var req openaiRequest
	_ = json.Unmarshal(body, &req)
	base := openaiAnswer{ID: s.id("chatcmpl"), Object: "chat.completion.chunk", Created: 1_700_000_000, Model: req.Model}
	send := func(d openaiDelta, stop *string) error {
		chunk := base
		chunk.Choices = []openaiChoice{{Delta: &d, FinishReason: stop}}
		return out.event("", chunk)
	}
	empty := ""
	if err := send(openaiDelta{Role: "assistant", Content: &empty}, nil); err != nil {
		return err
	}
	if err := out.raw(": a comment, which compatible servers send to keep the line alive\n\n"); err != nil {
		return err
	}
	for _, p := range step.pieces() {
		if err := send(openaiDelta{Content: &p}, nil); err != nil {
			return err
		}
	}
	for i, c := range s.openaiCalls(step) {
		args := c.Function.Arguments
		c.Index, c.Function.Arguments = &i, ""
		if err := send(openaiDelta{ToolCalls: []openaiCall{c}}, nil); err != nil {
			return err
		}
		for _, p := range pieces(args) {
			next := openaiCall{Index: &i}
			next.Function.Arguments = p
			if err := send(openaiDelta{ToolCalls: []openaiCall{next}}, nil); err != nil {
				return err
			}
		}
	}
	stop := openaiStop(step)
	if err := send(openaiDelta{}, &stop); err != nil {
		return err
	}
	if req.StreamOptions != nil && req.StreamOptions.IncludeUsage && !step.NoUsage {
		base.Choices, base.Usage = []openaiChoice{}, openaiUsageOf(step)
		if err := out.event("", base); err != nil {
			return err
		}
	}
	return out.raw("data: [DONE]\n\n")
}
