package modeltest

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	anthropic "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	openai "github.com/sashabaranov/go-openai"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	step = Step{Text: "Grüße 🙂", Thinking: "hm", Calls: []Call{{"fs_read", `{"path":"a"}`}, {"time_now", `{}`}}, Usage: Usage{Input: 50, Output: 9, CacheRead: 10}}
)

func anthropicClient(t *testing.T, s *Server) anthropic.Client {
	t.Helper()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return anthropic.NewClient(option.WithoutEnvironmentDefaults(), option.WithAPIKey(Key), option.WithBaseURL(s.URL), option.WithMaxRetries(0), option.WithHTTPClient(http.DefaultClient))
}

func anthropicAsk() anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: "m", MaxTokens: 50, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))},
		Tools: []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "fs_read", InputSchema: anthropic.ToolInputSchemaParam{Type: "object"}}}},
	}
}

func checkAnthropic(t *testing.T, m anthropic.Message) {
	t.Helper()
	if len(m.Content) != 4 || m.Content[0].Thinking != "hm" || m.Content[1].Text != step.Text || m.Content[2].Name != "fs_read" || string(m.Content[2].Input) != `{"path":"a"}` {
		t.Fatalf("content %s", m.RawJSON())
	}
	if m.StopReason != anthropic.StopReasonToolUse || m.Usage.InputTokens != 40 || m.Usage.CacheReadInputTokens != 10 || m.Usage.OutputTokens != 9 || m.Role != "assistant" {
		t.Errorf("%s", m.RawJSON())
	}
}

func TestAnthropicsClientUnderstandsTheServer(t *testing.T) {
	t.Parallel()
	s := New(t, step, step, Step{Text: "done"})
	c := anthropicClient(t, s)
	whole, err := c.Messages.New(t.Context(), anthropicAsk())
	if err != nil {
		t.Fatal(err)
	}
	checkAnthropic(t, *whole)
	var m anthropic.Message
	stream := c.Messages.NewStreaming(t.Context(), anthropicAsk())
	for stream.Next() {
		if err := m.Accumulate(stream.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	checkAnthropic(t, m)
	ask := anthropicAsk() // what the client makes of its own answer is a good next request
	ask.Messages = append(ask.Messages, m.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock(m.Content[2].ID, "x", false), anthropic.NewToolResultBlock(m.Content[3].ID, "y", true)))
	if next, err := c.Messages.New(t.Context(), ask); err != nil || next.Content[0].Text != "done" {
		t.Errorf("%+v, %v", next, err)
	}
}

func TestAnthropicsClientReadsItsErrors(t *testing.T) {
	t.Parallel()
	s := New(t, Step{Fault: Refuse, Status: 529, Kind: "overloaded_error", Header: map[string]string{"retry-after": "3"}})
	c := anthropicClient(t, s)
	_, err := c.Messages.New(t.Context(), anthropicAsk())
	e, ok := errors.AsType[*anthropic.Error](err)
	if !ok || e.StatusCode != 529 || string(e.Type()) != "overloaded_error" || e.Response.Header.Get("retry-after") != "3" || e.RequestID == "" {
		t.Errorf("%#v", err)
	}
}

func openaiClient(t *testing.T, s *Server) *openai.Client {
	t.Helper()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	cfg := openai.DefaultConfig(Key)
	cfg.BaseURL, cfg.HTTPClient = s.URL+"/v1", http.DefaultClient
	return openai.NewClientWithConfig(cfg)
}

func openaiAsk() openai.ChatCompletionRequest {
	return openai.ChatCompletionRequest{
		Model: "m", Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "hi"}},
		Tools: []openai.Tool{{Type: "function", Function: &openai.FunctionDefinition{Name: "fs_read", Parameters: json.RawMessage(`{"type":"object"}`)}}},
	}
}

func TestAnOpenAIClientUnderstandsTheServer(t *testing.T) {
	t.Parallel()
	s := New(t, step, step, Step{Text: "done"})
	c := openaiClient(t, s)
	whole, err := c.CreateChatCompletion(t.Context(), openaiAsk())
	if err != nil {
		t.Fatal(err)
	}
	m := whole.Choices[0].Message
	if m.Content != step.Text || len(m.ToolCalls) != 2 || m.ToolCalls[0].Function.Arguments != `{"path":"a"}` || whole.Choices[0].FinishReason != "tool_calls" ||
		whole.Usage.PromptTokens != 50 || whole.Usage.PromptTokensDetails.CachedTokens != 10 || whole.Usage.CompletionTokens != 9 {
		t.Errorf("%+v", whole)
	}
	ask := openaiAsk()
	ask.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	stream, err := c.CreateChatCompletionStream(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var text, args string
	var usage *openai.Usage
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if chunk.Usage != nil {
			usage = chunk.Usage
		}
		for _, choice := range chunk.Choices {
			text += choice.Delta.Content
			for _, call := range choice.Delta.ToolCalls {
				if *call.Index == 0 {
					args += call.Function.Arguments
				}
			}
		}
	}
	if text != step.Text || args != `{"path":"a"}` || usage == nil || usage.TotalTokens != 59 {
		t.Errorf("text %q, args %q, usage %+v", text, args, usage)
	}
	ask = openaiAsk()
	ask.Messages = append(ask.Messages, m,
		openai.ChatCompletionMessage{Role: "tool", ToolCallID: m.ToolCalls[1].ID, Content: "y"}, openai.ChatCompletionMessage{Role: "tool", ToolCallID: m.ToolCalls[0].ID, Content: "x"})
	if next, err := c.CreateChatCompletion(t.Context(), ask); err != nil || next.Choices[0].Message.Content != "done" {
		t.Errorf("%+v, %v", next, err)
	}
}

func TestWhatTheRealOnesRefuseIsRefused(t *testing.T) {
	t.Parallel()
	const (
		tools  = `"tools":[{"name":"t","input_schema":{"type":"object"}}],`
		fns    = `"tools":[{"type":"function","function":{"name":"t","parameters":{"type":"object"}}}],`
		user   = `{"role":"user","content":"hi"}`
		use    = `{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"t","input":{}}]}`
		call   = `{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"t","arguments":"{}"}}]}`
		result = `{"role":"tool","tool_call_id":"a","content":"x"}`
	)
	an := func(rest string) string { return `{"model":"m","max_tokens":9,` + rest + `}` }
	oa := func(rest string) string { return `{"model":"m",` + rest + `}` }
	for _, c := range []struct{ api, what, body string }{
		{"messages", "", an(`"messages":[` + user + `]`)},
		{"messages", "", an(tools + `"messages":[` + user + `,` + use + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x"}]}]`)},
		{"messages", "", an(`"messages":[{"role":"user","content":"\ud83d\ude42 \\u0000"}]`)},
		{"messages", "not JSON", `{"model"`},
		{"messages", "no max_tokens", `{"model":"m","messages":[` + user + `]}`},
		{"messages", "no model", `{"max_tokens":9,"messages":[` + user + `]}`},
		{"messages", "unknown field", an(`"max_completion_tokens":9,"messages":[` + user + `]`)},
		{"messages", "no messages", an(`"messages":[]`)},
		{"messages", "two of one role", an(`"messages":[` + user + `,` + user + `]`)},
		{"messages", "assistant first", an(`"messages":[{"role":"assistant","content":"x"}]`)},
		{"messages", "assistant last", an(`"messages":[` + user + `,{"role":"assistant","content":"x"}]`)},
		{"messages", "blank text", an(`"messages":[{"role":"user","content":" "}]`)},
		{"messages", "blank block", an(`"messages":[{"role":"user","content":[{"type":"text","text":""}]}]`)},
		{"messages", "blank system", an(`"system":[{"type":"text","text":""}],"messages":[` + user + `]`)},
		{"messages", "calls without tools", an(`"messages":[` + user + `,` + use + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x"}]}]`)},
		{"messages", "call without result", an(tools + `"messages":[` + user + `,` + use + `,` + user + `]`)},
		{"messages", "result without call", an(tools + `"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"x"}]}]`)},
		{"messages", "text before result", an(tools + `"messages":[` + user + `,` + use + `,{"role":"user","content":[{"type":"text","text":"x"},{"type":"tool_result","tool_use_id":"a","content":"x"}]}]`)},
		{"messages", "input no object", an(tools + `"messages":[` + user + `,` + strings.Replace(use, `{}`, `[]`, 1) + `,` + user + `]`)},
		{"messages", "dotted tool", an(`"tools":[{"name":"a.b","input_schema":{"type":"object"}}],"messages":[` + user + `]`)},
		{"messages", "tool twice", an(`"tools":[{"name":"t","input_schema":{"type":"object"}},{"name":"t","input_schema":{"type":"object"}}],"messages":[` + user + `]`)},
		{"messages", "no schema", an(`"tools":[{"name":"t"}],"messages":[` + user + `]`)},
		{"messages", "forged reasoning", an(`"messages":[` + user + `,{"role":"assistant","content":[{"type":"thinking","thinking":"a","signature":"b"}]},` + user + `]`)},
		{"messages", "lone surrogate", an(`"messages":[{"role":"user","content":"\ud800"}]`)},
		{"messages", "low surrogate", an(`"messages":[{"role":"user","content":"\ude42"}]`)},
		{"messages", "broken pair", an(`"messages":[{"role":"user","content":"\ud83dx"}]`)},
		{"messages", "escaped NUL", an(`"messages":[{"role":"user","content":"\u0000"}]`)},
		{"messages", "invalid UTF-8", an("\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]")},
		{"chat/completions", "", oa(`"messages":[` + user + `,` + user + `]`)},
		{"chat/completions", "", oa(fns + `"messages":[` + user + `,` + call + `,` + result + `]`)},
		{"chat/completions", "no model", `{"messages":[` + user + `]}`},
		{"chat/completions", "unknown field", oa(`"thinking":1,"messages":[` + user + `]`)},
		{"chat/completions", "no messages", oa(`"messages":[]`)},
		{"chat/completions", "unknown role", oa(`"messages":[{"role":"robot","content":"x"}]`)},
		{"chat/completions", "both limits", oa(`"max_tokens":1,"max_completion_tokens":1,"messages":[` + user + `]`)},
		{"chat/completions", "old limit", `{"model":"gpt-5","max_tokens":1,"messages":[` + user + `]}`},
		{"chat/completions", "stream options", oa(`"stream_options":{"include_usage":true},"messages":[` + user + `]`)},
		{"chat/completions", "call without result", oa(fns + `"messages":[` + user + `,` + call + `,` + user + `]`)},
		{"chat/completions", "call at the end", oa(fns + `"messages":[` + user + `,` + call + `]`)},
		{"chat/completions", "result without call", oa(fns + `"messages":[` + user + `,` + result + `]`)},
		{"chat/completions", "result without content", oa(fns + `"messages":[` + user + `,` + call + `,{"role":"tool","tool_call_id":"a"}]`)},
		{"chat/completions", "empty answer", oa(`"messages":[` + user + `,{"role":"assistant"},` + user + `]`)},
		{"chat/completions", "dotted tool", oa(strings.Replace(fns, `"t"`, `"a.b"`, 1) + `"messages":[` + user + `]`)},
		{"chat/completions", "schema of a string", oa(strings.Replace(fns, `"object"`, `"string"`, 1) + `"messages":[` + user + `]`)},
		{"chat/completions", "lone surrogate", oa(`"messages":[{"role":"user","content":"\udfff"}]`)},
	} {
		s := New(t, Step{Text: "ok"})
		status, body := post(t, s, c.api, c.body, Key)
		if want := http.StatusOK; c.what == "" && status != want || c.what != "" && status != http.StatusBadRequest {
			t.Errorf("%s, %q: %d %s\n%s", c.api, c.what, status, body, c.body)
		}
		if status, _ = post(t, s, c.api, c.body, "wrong"); c.what == "" && status != http.StatusUnauthorized {
			t.Errorf("%s: a wrong key got %d", c.api, status)
		}
	}
}

func post(t *testing.T, s *Server, api, body, key string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/v1/"+api, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("authorization", "Bearer "+key)
	req.Header.Set("anthropic-version", "2023-06-01")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(raw)
}

func TestARefusedRequestUsesUpNoStep(t *testing.T) {
	t.Parallel()
	s := New(t, Step{Text: "the only one"})
	post(t, s, "messages", `{`, Key)
	if status, body := post(t, s, "chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, Key); status != 200 || !strings.Contains(body, "the only one") {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := post(t, s, "chat/completions", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, Key); status != 400 {
		t.Errorf("past the end of the script: %d", status)
	}
	var got []int
	for _, r := range s.Requests() {
		got = append(got, r.Status)
	}
	if len(got) != 3 || got[0] != 400 || got[1] != 200 || got[2] != 400 {
		t.Errorf("statuses %v", got)
	}
}
