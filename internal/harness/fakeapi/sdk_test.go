package fakeapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	openai "github.com/sashabaranov/go-openai"
)

func anthropicOf(run *Run) sdk.Client {
	return sdk.NewClient(option.WithoutEnvironmentDefaults(), option.WithAPIKey(run.Key), option.WithBaseURL(run.URL), option.WithMaxRetries(0), option.WithHTTPClient(http.DefaultClient))
}

func openaiOf(run *Run) *openai.Client {
	c := openai.DefaultConfig(run.Key)
	c.BaseURL = run.URL + "/v1"
	return openai.NewClientWithConfig(c)
}

func messages(more ...sdk.MessageParam) sdk.MessageNewParams {
	return sdk.MessageNewParams{
		Model: "m", MaxTokens: 50, System: []sdk.TextBlockParam{{Text: "be brief"}},
		Messages: append([]sdk.MessageParam{sdk.NewUserMessage(sdk.NewTextBlock("read it"))}, more...),
		Tools:    []sdk.ToolUnionParam{{OfTool: &sdk.ToolParam{Name: "Read", InputSchema: sdk.ToolInputSchemaParam{Type: "object"}}}},
	}
}

// streamed asks Anthropic's client for a stream and puts it together.
func streamed(ctx context.Context, run *Run, p sdk.MessageNewParams) (m sdk.Message, err error) {
	c := anthropicOf(run)
	stream := c.Messages.NewStreaming(ctx, p)
	for stream.Next() {
		if err := m.Accumulate(stream.Current()); err != nil {
			return m, err
		}
	}
	return m, stream.Err()
}

func TestAnthropicsClientIsLedThroughATool(t *testing.T) {
	t.Parallel()
	run := begin(t, UseTool("^Read$", map[string]string{"path": "a"}))
	m, err := streamed(t.Context(), run, messages())
	if err != nil || len(m.Content) != 2 {
		t.Fatalf("%s, %v", m.RawJSON(), err)
	}
	call := m.Content[1]
	if m.StopReason != sdk.StopReasonToolUse || call.Name != "Read" || compact(string(call.Input)) != `{"path":"a"}` {
		t.Errorf("%+v", m)
	}
	u := m.Usage
	if u.InputTokens != 100 || u.CacheReadInputTokens != 20 || u.CacheCreationInputTokens != 10 || u.OutputTokens != 7 {
		t.Errorf("usage %+v", u)
	}
	c := anthropicOf(run)
	next, err := c.Messages.New(t.Context(), messages(m.ToParam(), sdk.NewUserMessage(sdk.NewToolResultBlock(call.ID, "seven", false))))
	if err != nil || next.StopReason != sdk.StopReasonEndTurn || next.Content[0].Text != Text+" Tool said: seven" || next.Usage.OutputTokens != 7 {
		t.Fatalf("%s, %v", next.RawJSON(), err)
	}
	turns := run.Turns()
	if len(turns) != 2 || turns[0].System != "be brief" || !turns[0].Stream || turns[1].Stream || !turns[1].Offers("^Read$") || turns[1].Results[0] != "seven" {
		t.Errorf("kept %+v", turns)
	}
}

func TestAnthropicsClientReadsEachFault(t *testing.T) {
	t.Parallel()
	run := begin(t, Declines())
	if m, err := streamed(t.Context(), run, messages()); err != nil || m.StopReason != sdk.StopReasonRefusal {
		t.Errorf("declined: %s, %v", m.RawJSON(), err)
	}
	run = begin(t, Plain().With(Cut))
	if m, err := streamed(t.Context(), run, messages()); err == nil || len(m.Content) == 0 {
		t.Errorf("cut: %+v, %v", m, err)
	}
	c := anthropicOf(run)
	if m, err := c.Messages.New(t.Context(), messages()); err != nil || m.Content[0].Text != Text {
		t.Errorf("what is asked for whole is not cut: %+v, %v", m, err)
	}
	if _, err := streamed(t.Context(), begin(t, Plain().With(InBand)), messages()); err == nil || !strings.Contains(err.Error(), "overloaded_error") {
		t.Errorf("in band: %v", err)
	}
	run = begin(t, Fails(429, 2, 3))
	c = anthropicOf(run)
	for range 2 {
		_, err := c.Messages.New(t.Context(), messages())
		e, is := errors.AsType[*sdk.Error](err)
		if !is || e.StatusCode != http.StatusTooManyRequests || string(e.Type()) != "rate_limit_error" || e.Response.Header.Get("retry-after") != "3" || e.RequestID == "" {
			t.Errorf("%#v", err)
		}
	}
	if _, err := c.Messages.New(t.Context(), messages()); err != nil {
		t.Errorf("the third: %v", err)
	}
}

func chatAsk(stream bool) openai.ChatCompletionRequest {
	q := openai.ChatCompletionRequest{
		Model: "m", Messages: []openai.ChatCompletionMessage{{Role: "system", Content: "be brief"}, {Role: "user", Content: "read it"}},
		Tools: []openai.Tool{{Type: "function", Function: &openai.FunctionDefinition{Name: "read", Parameters: json.RawMessage(`{"type":"object"}`)}}},
	}
	if stream {
		q.StreamOptions = &openai.StreamOptions{IncludeUsage: true}
	}
	return q
}

func TestOpenAIsClientIsLedThroughAToolInChat(t *testing.T) {
	t.Parallel()
	run := begin(t, UseTool("read", map[string]string{"path": "a"}))
	c := openaiOf(run)
	stream, err := c.CreateChatCompletionStream(t.Context(), chatAsk(true))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var text, finish string
	var call openai.ToolCall
	var usage *openai.Usage
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, ch := range chunk.Choices {
			text += ch.Delta.Content
			if len(ch.Delta.ToolCalls) > 0 {
				call = ch.Delta.ToolCalls[0]
			}
			finish = string(ch.FinishReason)
		}
		if chunk.Usage != nil {
			usage = chunk.Usage
		}
	}
	if text != "Step 1." || call.Function.Name != "read" || compact(call.Function.Arguments) != `{"path":"a"}` || finish != "tool_calls" {
		t.Errorf("%q %+v %q", text, call, finish)
	}
	if usage == nil || usage.PromptTokens != 100 || usage.PromptTokensDetails.CachedTokens != 20 || usage.CompletionTokens != 7 {
		t.Errorf("usage %+v", usage)
	}
	q := chatAsk(false)
	call.Index = nil
	q.Messages = append(q.Messages, openai.ChatCompletionMessage{Role: "assistant", ToolCalls: []openai.ToolCall{call}}, openai.ChatCompletionMessage{Role: "tool", ToolCallID: call.ID, Content: "seven"})
	a, err := c.CreateChatCompletion(t.Context(), q)
	if err != nil || a.Choices[0].Message.Content != Text+" Tool said: seven" || a.Choices[0].FinishReason != "stop" {
		t.Errorf("%+v, %v", a, err)
	}
}

func responsesAsk() openai.CreateResponseRequest {
	return openai.CreateResponseRequest{
		Model: "m", Instructions: "be brief", Input: []any{openai.ResponseInputMessage{Type: "message", Role: "user", Content: []any{openai.ResponseInputText{Type: "input_text", Text: "do it"}}}},
		Tools: []openai.ResponseTool{openai.NewResponseFunctionTool(openai.FunctionDefinition{Name: "exec", Parameters: json.RawMessage(`{"type":"object"}`)})},
	}
}

func TestOpenAIsClientIsLedThroughAToolInResponses(t *testing.T) {
	t.Parallel()
	run := begin(t, UseTool("exec", map[string]string{"cmd": "ls"}))
	c := openaiOf(run)
	stream, err := c.CreateResponseStream(t.Context(), responsesAsk())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var text, args string
	var done *openai.CreateResponseResponse
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e.Type {
		case "response.output_text.delta":
			text += e.Delta
		case "response.function_call_arguments.delta":
			args += e.Delta
		case "response.completed":
			done = e.Response
		}
	}
	if text != "Step 1." || compact(args) != `{"cmd":"ls"}` || done == nil || len(done.Output) != 2 || done.GetOutputText() != text {
		t.Fatalf("%q %q %+v", text, args, done)
	}
	if u := done.Usage; u == nil || u.InputTokens != 100 || u.InputTokensDetails.CachedTokens != 20 || u.OutputTokens != 7 {
		t.Errorf("usage %+v", u)
	}
	q := responsesAsk()
	item := done.Output[1].(map[string]any)
	q.Input = append(q.Input.([]any), done.Output...)
	q.Input = append(q.Input.([]any), openai.ResponseFunctionCallOutput{Type: "function_call_output", CallID: item["call_id"].(string), Output: "seven"})
	a, err := c.CreateResponse(t.Context(), q)
	if err != nil || a.GetOutputText() != Text+" Tool said: seven" {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestWhatHangsEndsWithItsClient(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]Fault{"hang": Hang, "stall": Stall, "slow": Slow} {
		run := begin(t, Scenario{Fault: fault, Words: 3, Pace: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			run.Await(t, 1)
		}()
		if _, err := streamed(ctx, run, messages()); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSlowIsSlowAndComplete(t *testing.T) {
	t.Parallel()
	m, err := streamed(t.Context(), begin(t, Scenario{Fault: Slow, Words: 2, Pace: time.Millisecond}), messages())
	if err != nil || m.Content[0].Text != "word 0 word 1 "+Text {
		t.Errorf("%+v, %v", m, err)
	}
}
