package wasmloop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero/api"

	"github.com/ombud-run/ombud/wasmloop/abi"
)

// What karmax.call returns in place of a length.
const (
	codeFailed     int32 = -1 // the call failed; why is in the host's log
	codeUndeclared int32 = -2 // the manifest does not name it
	codeRefused    int32 = -3 // the loop may not
	codeShort      int32 = -4 // the answer is longer than the buffer; it is kept for the same call
	codeMalformed  int32 = -5 // name or request cannot be read
)

const maxRequest = 64 << 10

// karmaxCall is karmax.call(name, name_len, request, request_len, out, out_cap) → i32: the
// length of the answer, which is at out, or a code below 0 with nothing written.
func karmaxCall(ctx context.Context, mod api.Module, stack []uint64) {
	i := ctx.Value(instanceKey{}).(*instance) //nolint:forcetypeassert // a module runs inside open
	mem := mod.Memory()
	code := i.call(ctx, mem, api.DecodeU32(stack[0]), api.DecodeU32(stack[1]), api.DecodeU32(stack[2]), api.DecodeU32(stack[3]),
		api.DecodeU32(stack[4]), api.DecodeU32(stack[5]))
	stack[0] = api.EncodeI32(code)
}

func (i *instance) call(ctx context.Context, mem api.Memory, namePtr, nameLen, reqPtr, reqLen, outPtr, outCap uint32) int32 {
	i.count()
	raw, ok := read(mem, namePtr, nameLen)
	if !ok {
		return codeMalformed
	}
	name := string(raw)
	fn, known := hostFuncs[name]
	if !known || !i.names(name) {
		return codeUndeclared
	}
	if err := i.granted(ctx, name); err != nil {
		i.failed(name, err)
		return codeRefused
	}
	req, ok := read(mem, reqPtr, reqLen)
	if !ok {
		return codeMalformed
	}
	answer, code := i.answer(ctx, name, fn, req)
	if code != 0 {
		return code
	}
	if uint64(len(answer)) > uint64(outCap) {
		i.kept = &keptAnswer{name, req, answer}
		return codeShort
	}
	if len(answer) > 0 && !mem.Write(outPtr, answer) {
		i.failed(name, errors.New("the answer's place is outside of the module's memory"))
		return codeFailed
	}
	return int32(len(answer)) //nolint:gosec // bounded by Limits.Answer
}

// names reports whether the module may call a host function at all.
func (i *instance) names(fn string) bool {
	return slices.Contains(i.r.manifest.Host, fn) && (i.host.Functions == nil || i.host.Functions(fn))
}

// count counts a call, and ends a module that makes too many.
func (i *instance) count() {
	if i.calls++; i.calls > i.r.opt.Limits.Calls {
		panic(fmt.Errorf("more than %d host calls in one run", i.r.opt.Limits.Calls))
	}
}

// answer makes the call, unless the answer to the same call is still to be fetched.
func (i *instance) answer(ctx context.Context, name string, fn hostFunc, req []byte) ([]byte, int32) {
	if k := i.kept; k != nil {
		i.kept = nil
		if k.name == name && bytes.Equal(k.request, req) {
			i.calls-- // it was counted when it was made
			return k.answer, 0
		}
	}
	if fn.before != nil {
		if status, err := fn.before(ctx, i, req); err != nil {
			i.failed(name, err)
			return nil, -int32(status)
		}
	}
	answer, err := i.make(ctx, name, fn, req)
	switch {
	case err == nil:
		return answer, 0
	case errors.Is(err, ErrRefused):
		i.failed(name, err)
		return nil, codeRefused
	}
	i.failed(name, err)
	return nil, codeFailed
}

// make makes a call by whoever records it. It does not return when the module's time is
// over.
func (i *instance) make(ctx context.Context, name string, fn hostFunc, req []byte) (answer []byte, err error) {
	if i.host.Around != nil && !abi.Functions[name].Free {
		i.numbered++
		answer, err = i.host.Around(ctx, Call{i.numbered, name, req}, func(ctx context.Context, req []byte) ([]byte, error) { return fn.do(ctx, i, req) })
	} else {
		answer, err = fn.do(ctx, i, req)
	}
	switch {
	case ctx.Err() != nil:
		panic(ctx.Err())
	case errors.Is(err, ErrStop):
		panic(err)
	case err == nil && len(answer) > i.r.opt.Limits.Answer:
		err = fmt.Errorf("the answer has %d bytes; at most %d are handed on", len(answer), i.r.opt.Limits.Answer)
	}
	return answer, err
}

// read copies: a handler that is given up on may still hold what it was given when the
// memory belongs to another run.
func read(mem api.Memory, ptr, n uint32) ([]byte, bool) {
	switch {
	case n > maxRequest:
		return nil, false
	case n == 0:
		return nil, true
	}
	own, ok := mem.Read(ptr, n)
	return bytes.Clone(own), ok
}

func (i *instance) failed(name string, err error) {
	i.host.Log.Warn("a host call failed", "loop", i.r.manifest.Name, "call", name, "error", err)
}

func (i *instance) allowed(ctx context.Context, class, value string) error {
	if i.host.Grants == nil {
		return fmt.Errorf("%w: nothing is granted", ErrRefused)
	}
	return i.host.Grants.Allow(ctx, class, value)
}

// granted asks for the grant that a host function needs, if it needs one.
func (i *instance) granted(ctx context.Context, name string) error {
	switch need := abi.Functions[name]; need.Class {
	case "":
		return nil
	case "memory":
		return i.allowed(ctx, need.Class, i.r.space+need.Value)
	default:
		return i.allowed(ctx, need.Class, need.Value)
	}
}

// hostFunc is what a host function does. What it needs is in [abi.Functions].
type hostFunc struct {
	// before may refuse a call by what is in its request.
	before func(ctx context.Context, i *instance, req []byte) (abi.Status, error)
	do     func(ctx context.Context, i *instance, req []byte) ([]byte, error)
}

// hostFuncs is the closed set. It is written once, below.
var hostFuncs = map[string]hostFunc{
	FnLog: {do: func(_ context.Context, i *instance, req []byte) ([]byte, error) {
		i.print("log", req)
		return nil, nil
	}},
	FnTrigger: {do: func(_ context.Context, i *instance, _ []byte) ([]byte, error) { return i.trigger, nil }},
	FnConfig: {do: func(_ context.Context, i *instance, req []byte) ([]byte, error) {
		return json.Marshal(abi.Value{Value: i.kit().Config(string(req))})
	}},
	FnHostTool: {do: func(_ context.Context, i *instance, req []byte) ([]byte, error) {
		return json.Marshal(abi.Value{Value: i.kit().HostTool(string(req))})
	}},
	FnOperators: {do: func(_ context.Context, i *instance, _ []byte) ([]byte, error) {
		return json.Marshal(abi.Chats{Chats: i.kit().OperatorChats()})
	}},
	FnRecall: {do: handle(func(_ context.Context, i *instance, req abi.Recall) (any, error) {
		if req.Limit <= 0 {
			req.Limit = 5
		}
		hits, err := i.kit().Recall(req.Query, req.Limit)
		return abi.Hits{Hits: hits}, err
	})},
	FnRemember: {do: handle(func(_ context.Context, i *instance, req abi.Fact) (any, error) {
		return nil, i.kit().Remember(req.Fact)
	})},
	FnNotify: {do: handle(func(_ context.Context, i *instance, req abi.Notice) (any, error) {
		return nil, i.kit().Notify(req.Title, req.Body)
	})},
	FnAsk:       {do: prompted(Kit.Ask)},
	FnHarness:   {do: prompted(Kit.Harness)},
	FnSummarize: {do: prompted(Kit.Summarize)},
	FnGateway: {do: handle(func(ctx context.Context, i *instance, req abi.Prompt) (any, error) {
		text, err := i.kit().Gateway(ctx, req.Prompt, req.Lend...)
		return abi.Answer{Answer: text}, err
	})},
	FnPropose: {do: handle(func(_ context.Context, i *instance, req abi.Proposal) (any, error) {
		return nil, i.kit().Propose(req.Title, req.Summary, req.Action)
	})},
	FnRemind: {do: handle(func(_ context.Context, i *instance, req abi.Reminder) (any, error) {
		return nil, i.kit().Remind(req.Title, req.Due, req.Notes)
	})},
	FnHTTP: {do: handle(httpCall)},
	FnTool: {before: mayCallTool, do: handle(toolCall)},
	FnShortSet: {do: handle(func(_ context.Context, i *instance, req abi.Note) (any, error) {
		return nil, i.kit().ShortSet(req.Group, req.Key, req.Value, int(req.TTLSeconds))
	})},
	FnShortGet: {do: handle(func(_ context.Context, i *instance, req abi.NoteKey) (any, error) {
		v, found, err := i.kit().ShortGet(req.Group, req.Key)
		return abi.Kept{Value: v, Found: found}, err
	})},
	FnShortAll: {do: handle(func(_ context.Context, i *instance, req abi.Group) (any, error) {
		all, err := i.kit().ShortAll(req.Group)
		return abi.Entries{Entries: all}, err
	})},
	FnShortForget: {do: handle(func(_ context.Context, i *instance, req abi.NoteKey) (any, error) {
		return nil, i.kit().ShortForget(req.Group, req.Key)
	})},
	FnChatGet: {do: handle(func(_ context.Context, i *instance, req abi.Chat) (any, error) {
		s, err := i.kit().ChatSummary(req.JID)
		return abi.Summary{Found: s != nil, Summary: s}, err
	})},
	FnChatSave: {do: handle(func(_ context.Context, i *instance, req abi.ChatSummary) (any, error) {
		return nil, i.kit().SaveChatSummary(req)
	})},
	FnRunLoop: {do: func(_ context.Context, i *instance, req []byte) ([]byte, error) {
		return nil, i.kit().RunLoop(string(req))
	}},
}

func (i *instance) kit() Kit { return i.host.Kit }

// handle makes a handler of a typed one. A nil answer is an empty one.
func handle[Req any](do func(context.Context, *instance, Req) (any, error)) func(context.Context, *instance, []byte) ([]byte, error) {
	return func(ctx context.Context, i *instance, raw []byte) ([]byte, error) {
		var req Req
		if err := json.Unmarshal(raw, &req); err != nil {
			return nil, fmt.Errorf("%w request: %w", ErrMalformed, err)
		}
		out, err := do(ctx, i, req)
		if err != nil || out == nil {
			return nil, err
		}
		return json.Marshal(out)
	}
}

func prompted(ask func(Kit, context.Context, string) (string, error)) func(context.Context, *instance, []byte) ([]byte, error) {
	return handle(func(ctx context.Context, i *instance, req abi.Prompt) (any, error) {
		text, err := ask(i.kit(), ctx, req.Prompt)
		return abi.Answer{Answer: text}, err
	})
}

// httpCall makes a web request to a host that the manifest names and the operator granted.
// A refusal is a plain failure to the guest, as it is where v1 comes from.
func httpCall(ctx context.Context, i *instance, req abi.Request) (any, error) {
	u, err := url.Parse(req.URL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%w: %q is no URL", ErrMalformed, req.URL)
	}
	host := strings.ToLower(u.Hostname())
	if !abi.CoversHost(i.r.manifest.Capabilities, host, strings.ToLower(u.Host)) {
		return nil, fmt.Errorf("the manifest does not name the host %s", host)
	}
	if err := i.allowed(ctx, "http", host); err != nil {
		return nil, errors.New(err.Error()) // not as a refusal
	}
	if req.Method == "" {
		req.Method = "GET"
	}
	body, status, err := i.kit().HTTP(ctx, req.Method, req.URL, req.Headers, req.Body)
	return abi.Response{Status: status, Body: body}, err
}

// mayCallTool refuses a tool that is not named, not in the manifest, or not granted.
func mayCallTool(ctx context.Context, i *instance, raw []byte) (abi.Status, error) {
	var req abi.ToolCall
	if err := json.Unmarshal(raw, &req); err != nil || req.Name == "" {
		return abi.StatusMalformed, fmt.Errorf("%w request: it names no tool", ErrMalformed)
	}
	if !slices.Contains(i.r.manifest.Tools, req.Name) {
		return abi.StatusUndeclared, fmt.Errorf("the manifest does not name the tool %s", req.Name)
	}
	if err := i.allowed(ctx, "tool", req.Name); err != nil {
		return abi.StatusRefused, err
	}
	return abi.StatusOK, nil
}

// toolCall calls a tool. That it failed is an answer, not a failure of the call.
func toolCall(ctx context.Context, i *instance, req abi.ToolCall) (any, error) {
	var input map[string]any // as the Kit takes it
	if len(req.Input) > 0 {
		dec := json.NewDecoder(bytes.NewReader(req.Input))
		dec.UseNumber() // an id of a chat has more digits than a float keeps
		if err := dec.Decode(&input); err != nil {
			return nil, fmt.Errorf("%w request: the input of %s is no object: %w", ErrMalformed, req.Name, err)
		}
	}
	out, err := i.kit().Tool(ctx, req.Name, input)
	if err != nil && (ctx.Err() != nil || errors.Is(err, ErrRefused) || errors.Is(err, ErrStop) || errors.Is(err, ErrUnknown)) {
		return nil, err
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	return abi.ToolResult{Output: out, Error: text}, nil
}
