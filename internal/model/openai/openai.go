// Package openai asks models through the chat completions API of OpenAI, which
// Ollama and many other servers speak too.
package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	sdk "github.com/sashabaranov/go-openai"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/model"
)

const (
	defaultBase      = "https://api.openai.com/v1"
	defaultMaxTokens = 8192
)

// Config says how to reach a server.
type Config struct {
	Name      string           // as providers are told apart; default "openai"
	Key       string           // "" sends none, for local servers
	KeyHint   string           // where the key comes from, for the person whose key is refused
	BaseURL   string           // with its path, such as http://127.0.0.1:11434/v1; default OpenAI's own
	Model     string           // for requests that name none; required
	MaxTokens int              // for requests that set none; default 8192
	Now       func() time.Time // default time.Now; dates in Retry-After are compared with it
}

// Provider is the model.Provider. It is safe for concurrent use.
type Provider struct {
	cfg    Config
	http   *http.Client
	client *sdk.Client
}

var _ model.Provider = (*Provider)(nil)

// New returns a provider; it does not go to the network.
func New(cfg Config) (*Provider, error) {
	if cfg.Name == "" {
		cfg.Name = "openai"
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = defaultBase
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
	case cfg.Key == "" && cfg.BaseURL == defaultBase:
		return nil, fault.New(fault.Config, "%s: no API key", cfg.Name)
	case cfg.Model == "":
		return nil, fault.New(fault.Config, "%s: no model", cfg.Name)
	}
	client, err := model.NewHTTPClient(cfg.BaseURL, cfg.Now)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Name, err)
	}
	p := &Provider{cfg: cfg, http: client}
	c := sdk.DefaultConfig(cfg.Key)
	bare := *p.http // with its bounds and refusals, and the transport the SDK's parser needs
	bare.Transport = commentless{p.http.Transport}
	c.BaseURL, c.HTTPClient = cfg.BaseURL, &bare
	c.EmptyMessagesLimit = math.MaxInt32 // comments keep slow streams alive; the deadline ends them
	p.client = sdk.NewClientWithConfig(c)
	return p, nil
}

// Name returns the configured name.
func (p *Provider) Name() string { return p.cfg.Name }

// Close lets idle connections go.
func (p *Provider) Close() { p.http.CloseIdleConnections() }

// Models returns the names of the models the server has, sorted: how one finds
// out whether a local server runs and what it can do.
func (p *Provider) Models(ctx context.Context) ([]string, error) {
	ctx, exchange := model.WithExchange(ctx)
	list, err := p.client.ListModels(ctx)
	if err != nil {
		return nil, p.fail(ctx, exchange, err)
	}
	out := make([]string, 0, len(list.Models))
	for _, m := range list.Models {
		out = append(out, guard.CleanText(m.ID))
	}
	slices.Sort(out)
	return out, nil
}

// Generate makes one streamed attempt.
func (p *Provider) Generate(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error) {
	req, err := model.Prepare(p.cfg.Name, req)
	if err != nil {
		return model.Response{}, err
	}
	names := model.NewNames(req.Tools)
	ctx, exchange := model.WithExchange(ctx)
	ask := p.request(req, names)
	stream, err := p.client.CreateChatCompletionStream(ctx, ask)
	if err != nil {
		return model.Response{}, p.fail(ctx, exchange, err)
	}
	defer func() { _ = stream.Close() }() // the answer is complete or lost by then
	if exchange.Status >= 300 {           // the client takes a redirect for an empty stream
		return model.Response{}, model.Classify(&model.APIError{Provider: p.cfg.Name, Status: exchange.Status}, p.cfg.KeyHint)
	}
	var got answer
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return model.Response{}, p.fail(ctx, exchange, err)
		}
		got.take(chunk, sink)
	}
	if got.finish == "" { // the client takes a stream cut between two events for a whole one
		return model.Response{}, model.Broken(ctx, p.cfg.Name, "read the answer of", nil)
	}
	out := got.response(names)
	out.Provider = p.cfg.Name
	if out.Model == "" {
		out.Model = ask.Model
	}
	if got.usage == nil {
		out.Usage = model.Estimate(req, 0)
		out.Usage.Output = got.estimate()
	}
	return out, nil
}

func (p *Provider) fail(ctx context.Context, exchange *model.Exchange, err error) error {
	if ctxErr := model.ContextError(ctx, p.cfg.Name); ctxErr != nil {
		return ctxErr
	}
	out := &model.APIError{Provider: p.cfg.Name, Status: exchange.Status, RetryAfter: exchange.RetryAfter, RequestID: exchange.Hide(exchange.Header.Get("x-request-id"))}
	if e, ok := errors.AsType[*sdk.APIError](err); ok {
		out.Kind, out.Message = exchange.Hide(e.Type), exchange.Hide(e.Message)
		if code, ok := e.Code.(string); ok && code != "" {
			out.Kind = exchange.Hide(code)
		}
		return model.Classify(out, p.cfg.KeyHint)
	}
	if e, ok := errors.AsType[*sdk.RequestError](err); ok {
		body := exchange.Hide(string(e.Body)) // before it is cut, which could leave half a key
		out.Message = strings.TrimSpace(guard.Lines(body, 200))
		return model.Classify(out, p.cfg.KeyHint)
	}
	switch exchange.Status {
	case http.StatusOK:
		return model.Broken(ctx, p.cfg.Name, "read the answer of", err)
	case 0:
		if refusedByClient(err) {
			return fault.New(fault.Invalid, "%s: model and request do not fit: %w", p.cfg.Name, err)
		}
	}
	return model.Broken(ctx, p.cfg.Name, "reach", err)
}

// refusedByClient reports whether the client itself would not send the request.
func refusedByClient(err error) bool {
	for _, e := range []error{
		sdk.ErrChatCompletionInvalidModel, sdk.ErrReasoningModelMaxTokensDeprecated, sdk.ErrReasoningModelLimitationsOther,
		sdk.ErrReasoningToolsRequireResponses, sdk.ErrReasoningEffortUnsupported,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (p *Provider) request(req model.Request, names model.Names) sdk.ChatCompletionRequest {
	out := sdk.ChatCompletionRequest{
		Model: p.cfg.Model, StreamOptions: &sdk.StreamOptions{IncludeUsage: true},
		Messages: messages(req, names),
	}
	if req.Model != "" {
		out.Model = req.Model
	}
	limit := p.cfg.MaxTokens
	if req.MaxTokens > 0 {
		limit = req.MaxTokens
	}
	if p.cfg.BaseURL == defaultBase || reasoning(out.Model) {
		out.MaxCompletionTokens = limit
	} else { // what compatible servers know
		out.MaxTokens = limit //nolint:staticcheck // deprecated by OpenAI, the only word the others understand
	}
	for _, t := range req.Tools {
		out.Tools = append(out.Tools, sdk.Tool{Type: sdk.ToolTypeFunction, Function: &sdk.FunctionDefinition{
			Name: names.Wire(t.Name), Description: t.Description, Parameters: t.Schema,
		}})
	}
	return out
}

// reasoning reports whether a model is one of those that refuse max_tokens.
func reasoning(name string) bool {
	return slices.ContainsFunc([]string{"o1", "o3", "o4", "gpt-5", "gpt-6"}, func(p string) bool { return strings.HasPrefix(name, p) })
}

func messages(req model.Request, names model.Names) []sdk.ChatCompletionMessage {
	var out []sdk.ChatCompletionMessage
	if strings.TrimSpace(req.System) != "" {
		out = append(out, sdk.ChatCompletionMessage{Role: sdk.ChatMessageRoleSystem, Content: req.System})
	}
	for _, m := range req.Messages {
		switch m.Role {
		case model.Tool:
			for _, part := range m.Parts {
				out = append(out, result(*part.Result))
			}
		case model.Assistant:
			msg := sdk.ChatCompletionMessage{Role: sdk.ChatMessageRoleAssistant, Content: m.Text()}
			for _, part := range m.Parts {
				if c := part.Call; c != nil {
					msg.ToolCalls = append(msg.ToolCalls, sdk.ToolCall{ID: c.ID, Type: sdk.ToolTypeFunction, Function: sdk.FunctionCall{
						Name: names.Wire(c.Name), Arguments: string(c.Input),
					}})
				}
			}
			out = append(out, msg)
		default:
			out = append(out, sdk.ChatCompletionMessage{Role: sdk.ChatMessageRoleUser, Content: m.Text()})
		}
	}
	return out
}

// result says in words that a call failed: this format has no field for it.
func result(r model.ToolResult) sdk.ChatCompletionMessage {
	text := r.Text
	if r.IsError && !strings.HasPrefix(strings.ToLower(text), "error") {
		text = "error: " + text
	}
	return sdk.ChatCompletionMessage{Role: sdk.ChatMessageRoleTool, ToolCallID: r.CallID, Content: text}
}
