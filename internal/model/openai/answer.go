package openai

import (
	"strings"

	sdk "github.com/sashabaranov/go-openai"

	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/model"
)

// answer gathers the chunks of one stream.
type answer struct {
	model   string
	text    strings.Builder
	calls   []*call
	finish  sdk.FinishReason
	refused bool
	usage   *sdk.Usage
}

type call struct {
	index    int
	id, name string
	args     strings.Builder
}

func (a *answer) take(chunk sdk.ChatCompletionStreamResponse, sink model.Sink) {
	if chunk.Model != "" {
		a.model = chunk.Model
	}
	if chunk.Usage != nil {
		a.usage = chunk.Usage
	}
	for _, c := range chunk.Choices {
		if c.Index != 0 { // we asked for one
			continue
		}
		a.refused = a.refused || c.Delta.Refusal != ""
		if text := c.Delta.Content + c.Delta.Refusal; text != "" {
			a.text.WriteString(text)
			sink.Send(model.Delta{Text: text})
		}
		for _, tc := range c.Delta.ToolCalls {
			a.call(tc)
		}
		if c.FinishReason != "" && c.FinishReason != sdk.FinishReasonNull {
			a.finish = c.FinishReason
		}
	}
}

// call adds a fragment to the call it belongs to. OpenAI tells them apart by
// index; some servers send none, or 0 for all, and a whole call at once: there a
// new ID begins a new call.
func (a *answer) call(tc sdk.ToolCall) {
	index := 0
	if len(a.calls) > 0 {
		index = a.calls[len(a.calls)-1].index
	}
	if tc.Index != nil {
		index = *tc.Index
	}
	var at *call
	for _, c := range a.calls {
		if c.index == index { // the newest of that index
			at = c
		}
	}
	if at == nil || tc.ID != "" && at.id != "" && tc.ID != at.id || tc.Index == nil && tc.Function.Name != "" && at.name != "" {
		at = &call{index: index}
		a.calls = append(a.calls, at)
	}
	if tc.ID != "" {
		at.id = tc.ID
	}
	if at.name == "" {
		at.name = tc.Function.Name
	}
	at.args.WriteString(tc.Function.Arguments)
}

func (a *answer) response(names model.Names) model.Response {
	out := model.Response{Text: guard.CleanText(a.text.String()), Model: a.model, Stop: a.stop()}
	for _, c := range a.calls {
		out.Calls = append(out.Calls, model.NewCall(c.id, names.Canonical(c.name), c.args.String()))
	}
	model.NumberCalls(out.Calls)
	if u := a.usage; u != nil {
		out.Usage = model.Usage{Input: int64(u.PromptTokens), Output: int64(u.CompletionTokens)}
		if d := u.PromptTokensDetails; d != nil {
			out.Usage.CacheRead = min(int64(d.CachedTokens), out.Usage.Input)
			out.Usage.Input -= out.Usage.CacheRead
		}
	}
	return out
}

func (a *answer) stop() model.StopReason {
	switch {
	case a.refused || a.finish == sdk.FinishReasonContentFilter:
		return model.StopRefusal
	case a.finish == sdk.FinishReasonLength:
		return model.StopMaxTokens
	case len(a.calls) > 0: // some servers say "stop" here
		return model.StopCalls
	}
	return model.StopEnd
}

func (a *answer) estimate() int64 {
	tokens := model.EstimateText(a.text.String())
	for _, c := range a.calls {
		tokens += 8 + model.EstimateText(c.name) + model.EstimateText(c.args.String())
	}
	return tokens
}
