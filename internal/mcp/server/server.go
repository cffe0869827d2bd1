package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/wire"
)

// Config tunes a server; zero fields have defaults.
type Config struct {
	Version string // of ombud, as it is told to clients
	// Instructions are told to the model of the client. Default: how calls that wait are
	// answered.
	Instructions string
	// Patience is how long a call may wait for a person before it is answered so; default
	// 45 s, since clients give up after a minute.
	Patience time.Duration
	// Tell is how often a client that asked for progress is told of it; default 5 s.
	Tell   time.Duration
	Logger *slog.Logger
}

func (c Config) filled() Config {
	if c.Patience <= 0 {
		c.Patience = 45 * time.Second
	}
	if c.Tell <= 0 {
		c.Tell = 5 * time.Second
	}
	if c.Instructions == "" {
		c.Instructions = howToUse
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

const howToUse = `These tools act through ombud on behalf of its operator, who decides what you may use; every call is recorded.
A call that needs the operator's approval may be answered with "waits for the operator's approval": it was not made yet.
Make the same call with the same arguments again to learn what became of it. A refusal says what the operator would have to grant.`

// keyHeader carries the key of a call from the HTTP handler to the call; what a client
// sends under its name is thrown away.
const keyHeader = "Ombud-Mcp-Key"

// New returns a server of the protocol that offers what is behind a door.
func New(d Door, c Config) *mcp.Server {
	c = c.filled()
	s := mcp.NewServer(&mcp.Implementation{Name: "ombud", Title: "ombud", Version: cmp.Or(c.Version, "dev")}, &mcp.ServerOptions{
		Instructions: c.Instructions,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.TTLMs, c.CacheScope = 0, "private" },
	})
	x := &speaker{door: d, cfg: c}
	s.AddReceivingMiddleware(x.intercept)
	return s
}

// speaker answers in the words of the protocol what a door says.
type speaker struct {
	door Door
	cfg  Config
}

// intercept answers lists and calls of tools itself, since they are others for every
// client and from one moment to the next.
func (s *speaker) intercept(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch r := req.(type) {
		case *mcp.ListToolsRequest:
			return s.list(ctx, r)
		case *mcp.CallToolRequest:
			return s.call(ctx, r)
		}
		return next(ctx, method, req)
	}
}

func (s *speaker) list(ctx context.Context, req *mcp.ListToolsRequest) (mcp.Result, error) {
	if req.Params != nil && req.Params.Cursor != "" {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is one page only: no cursor of ours is this"}
	}
	tools, err := s.door.Tools(ctx)
	if err != nil {
		return nil, s.rpcError(err)
	}
	res := &mcp.ListToolsResult{Tools: make([]*mcp.Tool, 0, len(tools)), Cacheable: mcp.Cacheable{CacheScope: "private"}}
	for _, t := range tools {
		name := nameOf(t)
		if !nameable(name) {
			s.cfg.Logger.Warn("a tool has a name no client would take", "tool", t.Name)
			continue
		}
		res.Tools = append(res.Tools, &mcp.Tool{
			Name: name, Description: t.Description, InputSchema: t.Input,
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: t.ReadOnly, DestructiveHint: new(!t.ReadOnly && t.Destructive), IdempotentHint: t.Repeatable},
		})
	}
	slices.SortFunc(res.Tools, func(a, b *mcp.Tool) int { return strings.Compare(a.Name, b.Name) })
	return res, nil
}

// nameOf is what clients call a tool.
func nameOf(t wire.MCPTool) string { return tool.ModelName(t.Name) }

// maxName is how long a name may be for every client that was tried.
const maxName = 64

// nameable reports whether clients and providers take a name.
func nameable(name string) bool {
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
}

func (s *speaker) call(ctx context.Context, req *mcp.CallToolRequest) (mcp.Result, error) {
	if req.Params == nil || req.Params.Name == "" {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the name of a tool is missing"}
	}
	c := Call{Tool: req.Params.Name, Input: req.Params.Arguments}
	if extra := req.GetExtra(); extra != nil && extra.Header != nil {
		c.Key = extra.Header.Get(keyHeader)
	}
	if c.Key == "" {
		c.Key = "call-" + rand.Text() // waiting sends it again
	}
	var state atomic.Value
	state.Store("working")
	defer s.progress(ctx, req, &state)()
	res, err := s.await(ctx, c, &state)
	if err != nil {
		return nil, s.rpcError(err)
	}
	return resultOf(res), nil
}

// await makes a call and asks what became of it until it is decided or patience ends.
func (s *speaker) await(ctx context.Context, c Call, state *atomic.Value) (wire.JobCallResult, error) {
	deadline := time.Now().Add(s.cfg.Patience)
	for {
		res, err := s.door.Call(ctx, c)
		if err != nil || res.Class != fault.Waiting {
			return res, err
		}
		state.Store("waits for the operator's approval " + res.Approval)
		left := time.Until(deadline)
		if left <= 0 {
			return res, nil
		}
		c.Wait = max(min(left, s.cfg.Tell), time.Second) // the wire counts in seconds
	}
}

// progress tells a client that asked for it how its call stands, until the function it
// returns is called.
func (s *speaker) progress(ctx context.Context, req *mcp.CallToolRequest, state *atomic.Value) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(s.cfg.Tell)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			text, _ := state.Load().(string)
			err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(n), Message: text})
			if err != nil {
				return // nobody hears it
			}
		}
	}()
	return func() { cancel(); <-done }
}

// rpcError is an error of a door as the protocol has it.
func (s *speaker) rpcError(err error) error {
	code := int64(jsonrpc.CodeInternalError)
	text := err.Error()
	if hint := fault.HintOf(err); hint != "" {
		text += " (" + hint + ")"
	}
	switch fault.ClassOf(err) {
	case fault.Invalid:
		code = jsonrpc.CodeInvalidParams
	case fault.Conflict, fault.Denied:
		code = jsonrpc.CodeInvalidRequest
	case fault.Internal:
		s.cfg.Logger.Error("a request failed", "error", err)
		text = "a defect of ombud: its log tells more"
	}
	if errors.Is(err, context.Canceled) {
		text = "the connection ended: what was begun comes to its end and is recorded"
	}
	return &jsonrpc.Error{Code: code, Message: text}
}
