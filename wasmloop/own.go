package wasmloop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/ombud-run/ombud/wasmloop/abi"
)

// Host functions that only the module "ombud" offers, to guests made for it.
const (
	FnStepBegin   = "step_begin"
	FnStepEnd     = "step_end"
	FnSleep       = "sleep"
	FnAfter       = "after"
	FnCancelAfter = "cancel_after"
	FnWaitSignal  = "wait_signal"
	FnFence       = "fence"
	FnWrite       = "write_log"
	FnProgress    = "progress"
)

// ErrUnknown is a call that may or may not have happened.
var ErrUnknown = errors.New("outcome unknown")

// DurableKit is what a Kit offers beside, to guests that import the module "ombud". Of a
// Kit that does not, these calls are refused.
type DurableKit interface {
	Kit
	// StepBegin begins a step of the guest's own, or returns what it came to before. once
	// says that it must not be begun again if that cannot be told.
	StepBegin(ctx context.Context, name string, once bool) (result json.RawMessage, done bool, err error)
	// StepEnd records what a step came to.
	StepEnd(ctx context.Context, name string, result json.RawMessage) error
	// Sleep returns when the time is over. A host may end the module meanwhile and run it
	// again, answering the calls it has made before as they were answered.
	Sleep(ctx context.Context, d time.Duration) error
	// After has the loop started again, once, with a trigger of kind timer.
	After(ctx context.Context, id string, d time.Duration, payload json.RawMessage) error
	CancelAfter(ctx context.Context, id string) error
	// WaitSignal returns what was sent to the run under a name.
	WaitSignal(ctx context.Context, name string, timeout time.Duration) (json.RawMessage, error)
	// Fence marks a text as what somebody else wrote.
	Fence(text, from string) string
	// Log keeps a line: level is debug, info, warn or error.
	Log(ctx context.Context, level, text string, fields map[string]string)
	Progress(ctx context.Context, text string, done, total int)
}

// ombudCall is ombud.call(name, name_len, request, request_len, out, out_cap) → i64: the
// status in the upper 32 bits, the length of the answer in the lower. The answer is at out
// if it fits; if not, nothing is written and ombud.take hands it over. No call is made
// twice for want of room.
func ombudCall(ctx context.Context, mod api.Module, stack []uint64) {
	i := ctx.Value(instanceKey{}).(*instance) //nolint:forcetypeassert // a module runs inside open
	mem := mod.Memory()
	p := func(n int) uint32 { return api.DecodeU32(stack[n]) }
	status, text := i.ownCall(ctx, mem, p(0), p(1), p(2), p(3))
	i.left = nil
	if len(text) > 0 && (uint64(len(text)) > uint64(p(5)) || !mem.Write(p(4), text)) {
		i.left = text
	}
	stack[0] = uint64(status)<<32 | uint64(len(text)) //nolint:gosec // both are small and not negative
}

// ombudTake is ombud.take(out, out_cap) → i32: it writes the answer that did not fit and
// returns its length, or −1 if there is none or it does not fit here either.
func ombudTake(ctx context.Context, mod api.Module, stack []uint64) {
	i := ctx.Value(instanceKey{}).(*instance) //nolint:forcetypeassert // a module runs inside open
	text := i.left
	if text == nil || uint64(len(text)) > uint64(api.DecodeU32(stack[1])) || !mod.Memory().Write(api.DecodeU32(stack[0]), text) {
		stack[0] = api.EncodeI32(-1)
		return
	}
	i.left = nil
	stack[0] = api.EncodeI32(int32(len(text))) //nolint:gosec // bounded by Limits.Answer
}

func (i *instance) ownCall(ctx context.Context, mem api.Memory, namePtr, nameLen, reqPtr, reqLen uint32) (abi.Status, []byte) {
	i.count()
	raw, ok := read(mem, namePtr, nameLen)
	if !ok {
		return abi.StatusMalformed, fmt.Appendf(nil, "the name is outside of the memory or longer than %d bytes", maxRequest)
	}
	name := string(raw)
	fn, known := hostFuncs[name]
	if !known {
		fn, known = ownFuncs[name]
	}
	if !known {
		return abi.StatusUndeclared, fmt.Appendf(nil, "there is no host function %q", name)
	}
	if !i.names(name) {
		return abi.StatusUndeclared, fmt.Appendf(nil, "the manifest does not name %q under host", name)
	}
	if err := i.granted(ctx, name); err != nil {
		return abi.StatusRefused, []byte(err.Error())
	}
	req, ok := read(mem, reqPtr, reqLen)
	if !ok {
		return abi.StatusMalformed, fmt.Appendf(nil, "the request is outside of the memory or longer than %d bytes", maxRequest)
	}
	if fn.before != nil {
		if status, err := fn.before(ctx, i, req); err != nil {
			return status, []byte(err.Error())
		}
	}
	answer, err := i.make(ctx, name, fn, req)
	switch {
	case err == nil:
		return abi.StatusOK, answer
	case errors.Is(err, ErrRefused):
		return abi.StatusRefused, []byte(err.Error())
	case errors.Is(err, ErrUnknown):
		return abi.StatusUnknown, []byte(err.Error())
	case errors.Is(err, ErrMalformed):
		return abi.StatusMalformed, []byte(err.Error())
	}
	return abi.StatusFailed, []byte(err.Error())
}

// ownFuncs are the host functions beside those of v1.
var ownFuncs = map[string]hostFunc{
	FnStepBegin: {do: durable(func(ctx context.Context, k DurableKit, req abi.StepBegin) (any, error) {
		result, done, err := k.StepBegin(ctx, req.Name, req.Once)
		return abi.StepBegun{Done: done, Result: result}, err
	})},
	FnStepEnd: {do: durable(func(ctx context.Context, k DurableKit, req abi.StepEnd) (any, error) {
		return nil, k.StepEnd(ctx, req.Name, req.Result)
	})},
	FnSleep: {do: durable(func(ctx context.Context, k DurableKit, req abi.Sleep) (any, error) {
		return nil, k.Sleep(ctx, milliseconds(req.Milliseconds))
	})},
	FnAfter: {do: durable(func(ctx context.Context, k DurableKit, req abi.After) (any, error) {
		return nil, k.After(ctx, req.ID, milliseconds(req.Milliseconds), req.Payload)
	})},
	FnCancelAfter: {do: durable(func(ctx context.Context, k DurableKit, req abi.CancelAfter) (any, error) {
		return nil, k.CancelAfter(ctx, req.ID)
	})},
	FnWaitSignal: {do: durable(func(ctx context.Context, k DurableKit, req abi.WaitSignal) (any, error) {
		payload, err := k.WaitSignal(ctx, req.Name, milliseconds(req.Milliseconds))
		return abi.Signal{Payload: payload}, err
	})},
	FnFence: {do: durable(func(_ context.Context, k DurableKit, req abi.Foreign) (any, error) {
		return abi.Fenced{Text: k.Fence(req.Text, req.From)}, nil
	})},
	FnWrite: {do: func(ctx context.Context, i *instance, raw []byte) ([]byte, error) {
		if !i.mayPrint(len(raw)) {
			return nil, nil
		}
		return writeLog(ctx, i, raw)
	}},
	FnProgress: {do: durable(func(ctx context.Context, k DurableKit, req abi.Progress) (any, error) {
		k.Progress(ctx, req.Text, req.Done, req.Total)
		return nil, nil
	})},
}

var writeLog = durable(func(ctx context.Context, k DurableKit, req abi.Line) (any, error) {
	k.Log(ctx, req.Level, req.Text, req.Fields)
	return nil, nil
})

// milliseconds is n of them, or the longest time there is.
func milliseconds(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(max(0, min(n, most))) * time.Millisecond
}

func durable[Req any](do func(context.Context, DurableKit, Req) (any, error)) func(context.Context, *instance, []byte) ([]byte, error) {
	return handle(func(ctx context.Context, i *instance, req Req) (any, error) {
		k, ok := i.kit().(DurableKit)
		if !ok {
			return nil, fmt.Errorf("%w: this host keeps no record of a loop's own steps", ErrRefused)
		}
		return do(ctx, k, req)
	})
}
