package wasmloop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/ombud-run/ombud/wasmloop/abi"
)

const maxProvided = 4 << 20

// InvokeTool runs one of the tools the module provides, in an instance of its own. It does
// not wait for a run: a loop whose ask makes the agent call the loop's own tool would wait
// for itself.
func (r *Runner) InvokeTool(ctx context.Context, name string, input map[string]any, timeout time.Duration) (string, error) {
	if !slices.ContainsFunc(r.manifest.Provides, func(t ToolSpec) bool { return t.Name == name }) {
		return "", fmt.Errorf("%w: loop %s provides no tool %q", ErrNotInstalled, r.manifest.Name, name)
	}
	raw := json.RawMessage("{}")
	var err error
	if input != nil {
		if raw, err = json.Marshal(input); err != nil {
			return "", fmt.Errorf("%w: the input of %s: %w", ErrMalformed, name, err)
		}
	}
	req, err := json.Marshal(abi.ToolCall{Name: name, Input: raw})
	if err != nil {
		return "", err
	}
	trigger, err := r.trigger("manual", nil)
	if err != nil {
		return "", err
	}
	r.serving.Lock()
	defer r.serving.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var out []byte
	i := r.newInstance(ctx, trigger)
	err = r.within(ctx, i.open(ctx, func(ctx context.Context, mod api.Module) (err error) {
		out, err = serve(ctx, mod, req)
		return err
	}), timeout)
	if err != nil {
		return "", err
	}
	var text string
	if json.Unmarshal(out, &text) == nil {
		return text, nil // a string is passed on without its quotes
	}
	return string(out), nil
}

// serve hands a request to the guest and takes what it answers.
func serve(ctx context.Context, mod api.Module, req []byte) ([]byte, error) {
	got, err := mod.ExportedFunction(AllocExport).Call(ctx, uint64(len(req)))
	if err != nil {
		return nil, err
	}
	ptr := api.DecodeU32(got[0])
	if !mod.Memory().Write(ptr, req) {
		return nil, fmt.Errorf("%s gave a place outside of the module's memory", AllocExport)
	}
	if got, err = mod.ExportedFunction(ToolExport).Call(ctx, uint64(ptr), uint64(len(req))); err != nil {
		return nil, err
	}
	at, n := uint32(got[0]>>32), uint32(got[0]) //nolint:gosec // a pointer and a length in one
	if n > maxProvided {
		return nil, fmt.Errorf("the answer has %d bytes; at most %d are taken", n, maxProvided)
	}
	if n == 0 {
		return nil, nil
	}
	out, ok := mod.Memory().Read(at, n)
	if !ok {
		return nil, fmt.Errorf("the answer is outside of the module's memory")
	}
	return bytes.Clone(out), nil
}
