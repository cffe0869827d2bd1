// Package anthropic asks models through Anthropic's Messages API, by its official
// client.
package anthropic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/anthropics/anthropic-sdk-go/v2/packages/param"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/model"
)

const defaultMaxTokens = 8192

// Config says how to reach the API.
type Config struct {
	Name      string           // as providers are told apart; default "anthropic"
	Key       string           // required
	KeyHint   string           // where the key comes from, for the person whose key is refused
	BaseURL   string           // default https://api.anthropic.com
	Model     string           // for requests that name none; required
	MaxTokens int              // for requests that set none; default 8192
	Now       func() time.Time // default time.Now; dates in Retry-After are compared with it
}

// Provider is the model.Provider. It is safe for concurrent use.
type Provider struct {
	cfg    Config
	http   *http.Client
	client sdk.Client
}

var _ model.Provider = (*Provider)(nil)

// New returns a provider; it does not go to the network. Nothing is read from the
// environment.
func New(cfg Config) (*Provider, error) {
	if cfg.Name == "" {
		cfg.Name = "anthropic"
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = "https://api.anthropic.com"
	}
	if cfg.MaxTokens <= 0 {
		cfg.MaxTokens = defaultMaxTokens
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.KeyHint == "" {
		cfg.KeyHint = "check the API key of " + cfg.Name
	}
	switch u, err := url.Parse(cfg.BaseURL); {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, fault.New(fault.Config, "%s: base URL %q is not an http address", cfg.Name, cfg.BaseURL)
	case cfg.Key == "":
		return nil, fault.New(fault.Config, "%s: no API key", cfg.Name)
	case cfg.Model == "":
		return nil, fault.New(fault.Config, "%s: no model", cfg.Name)
	}
	client, err := model.NewHTTPClient(cfg.BaseURL, cfg.Now)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Name, err)
	}
	p := &Provider{cfg: cfg, http: client}
	p.client = sdk.NewClient(
		option.WithoutEnvironmentDefaults(),
		option.WithAPIKey(cfg.Key),
		option.WithBaseURL(cfg.BaseURL),
		option.WithHTTPClient(p.http),
		option.WithMaxRetries(0),
	)
	return p, nil
}

// Name returns the configured name.
func (p *Provider) Name() string { return p.cfg.Name }

// Close lets idle connections go.
func (p *Provider) Close() { p.http.CloseIdleConnections() }

// Generate makes one streamed attempt.
func (p *Provider) Generate(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error) {
	req, err := model.Prepare(p.cfg.Name, req)
	if err != nil {
		return model.Response{}, err
	}
	names := model.NewNames(req.Tools)
	ctx, exchange := model.WithExchange(ctx)
	stream := p.client.Messages.NewStreaming(ctx, p.params(req, names))
	defer func() { _ = stream.Close() }() // the answer is complete or lost by then
	answer := answer{provider: p.cfg.Name, names: names}
	for stream.Next() {
		if err := answer.take(stream.Current(), sink); err != nil {
			return model.Response{}, model.Broken(ctx, p.cfg.Name, "read the answer of", err)
		}
	}
	if err := stream.Err(); err != nil {
		return model.Response{}, p.fail(ctx, exchange, err)
	}
	if !answer.complete {
		if exchange.Status >= 300 { // a redirect has no error document
			return model.Response{}, model.Classify(&model.APIError{Provider: p.cfg.Name, Status: exchange.Status}, p.cfg.KeyHint)
		}
		return model.Response{}, model.Broken(ctx, p.cfg.Name, "read the answer of", nil)
	}
	return answer.response(), nil
}

func (p *Provider) fail(ctx context.Context, exchange *model.Exchange, err error) error {
	if ctxErr := model.ContextError(ctx, p.cfg.Name); ctxErr != nil {
		return ctxErr
	}
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok {
		doing := "reach"
		if exchange.Status != 0 {
			doing = "read the answer of"
		}
		return model.Broken(ctx, p.cfg.Name, doing, err)
	}
	return model.Classify(&model.APIError{
		Provider: p.cfg.Name, Status: e.StatusCode, Kind: exchange.Hide(string(e.Type())), Message: exchange.Hide(e.Message),
		RequestID: exchange.Hide(e.RequestID), RetryAfter: exchange.RetryAfter,
	}, p.cfg.KeyHint)
}

func (p *Provider) params(req model.Request, names model.Names) sdk.MessageNewParams {
	out := sdk.MessageNewParams{Model: p.cfg.Model, MaxTokens: int64(p.cfg.MaxTokens)}
	if req.Model != "" {
		out.Model = req.Model
	}
	if req.MaxTokens > 0 {
		out.MaxTokens = int64(req.MaxTokens)
	}
	if strings.TrimSpace(req.System) != "" {
		out.System = []sdk.TextBlockParam{{Text: req.System}}
	}
	for i, t := range req.Tools {
		tool := sdk.ToolParam{Name: names.Wire(t.Name), InputSchema: param.Override[sdk.ToolInputSchemaParam](t.Schema)}
		if t.Description != "" {
			tool.Description = sdk.String(t.Description)
		}
		if i == len(req.Tools)-1 { // tools stand first in the prompt and seldom change: the part worth caching
			tool.CacheControl = sdk.NewCacheControlEphemeralParam()
		}
		out.Tools = append(out.Tools, sdk.ToolUnionParam{OfTool: &tool})
	}
	out.Messages = messages(req.Messages, names)
	return out
}

// messages joins results and the user's text behind them into one message, which
// this API wants of the user.
func messages(in []model.Message, names model.Names) []sdk.MessageParam {
	var out []sdk.MessageParam
	for _, m := range in {
		blocks := make([]sdk.ContentBlockParamUnion, 0, len(m.Parts))
		for _, part := range m.Parts {
			blocks = append(blocks, block(part, names))
		}
		switch {
		case m.Role == model.Assistant:
			out = append(out, sdk.NewAssistantMessage(blocks...))
		case len(out) > 0 && out[len(out)-1].OfUser != nil:
			last := out[len(out)-1].OfUser
			last.Content = append(last.Content, blocks...)
		default:
			out = append(out, sdk.NewUserMessage(blocks...))
		}
	}
	return out
}

func block(part model.Part, names model.Names) sdk.ContentBlockParamUnion {
	switch {
	case part.Call != nil:
		return sdk.NewToolUseBlock(part.Call.ID, part.Call.Input, names.Wire(part.Call.Name))
	case part.Result != nil:
		return sdk.NewToolResultBlock(part.Result.CallID, part.Result.Text, part.Result.IsError)
	case part.Opaque != nil:
		return param.Override[sdk.ContentBlockParamUnion](part.Opaque.Data)
	}
	return sdk.NewTextBlock(part.Text)
}

// answer gathers a stream. The client's own accumulator turns arguments that are
// no JSON into an empty object, which a tool might take for its input: so the
// arguments are gathered here too, as they came.
type answer struct {
	provider string
	names    model.Names
	message  sdk.Message
	args     map[int64]*strings.Builder
	complete bool
}

func (a *answer) take(event sdk.MessageStreamEventUnion, sink model.Sink) error {
	if err := a.message.Accumulate(event); err != nil {
		return err
	}
	switch {
	case event.Type == "message_stop":
		a.complete = true
	case event.Type == "content_block_delta" && event.Delta.Type == "text_delta":
		sink.Send(model.Delta{Text: event.Delta.Text})
	case event.Type == "content_block_delta" && event.Delta.Type == "input_json_delta":
		if a.args == nil {
			a.args = map[int64]*strings.Builder{}
		}
		if a.args[event.Index] == nil {
			a.args[event.Index] = &strings.Builder{}
		}
		a.args[event.Index].WriteString(event.Delta.PartialJSON)
	}
	return nil
}

func (a *answer) response() model.Response {
	u := a.message.Usage
	out := model.Response{
		Stop: stop(a.message.StopReason), Model: a.message.Model, Provider: a.provider,
		Usage: model.Usage{Input: u.InputTokens, Output: u.OutputTokens, CacheRead: u.CacheReadInputTokens, CacheWrite: u.CacheCreationInputTokens},
	}
	for i, b := range a.message.Content {
		switch b.Type {
		case "text":
			out.Text += b.Text
		case "tool_use":
			args := string(b.Input)
			if sent := a.args[int64(i)]; sent != nil {
				args = sent.String()
			}
			out.Calls = append(out.Calls, model.NewCall(b.ID, a.names.Canonical(b.Name), args))
		case "thinking", "redacted_thinking":
			out.Opaque = append(out.Opaque, model.Opaque{Provider: a.provider, Data: json.RawMessage(b.RawJSON())})
		}
	}
	out.Text = guard.CleanText(out.Text)
	model.NumberCalls(out.Calls)
	return out
}

func stop(r sdk.StopReason) model.StopReason {
	switch r {
	case sdk.StopReasonToolUse:
		return model.StopCalls
	case sdk.StopReasonMaxTokens, sdk.StopReasonModelContextWindowExceeded:
		return model.StopMaxTokens
	case sdk.StopReasonRefusal:
		return model.StopRefusal
	}
	return model.StopEnd
}
