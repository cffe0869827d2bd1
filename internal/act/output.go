package act

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// tailText is how much of the end of a long output a model is shown.
const tailText = 4 << 10

// clean makes text fit for a model and a row: without what must not be shown, valid,
// visible, not too long.
func (a *Act) clean(text string) (string, bool) {
	return guard.CutText(guard.CleanText(a.Hide.String(text)), MaxText)
}

// guarded is result for a stream that may panic: it is the tool's code.
func (a *Act) guarded(ctx context.Context, k *call, out tool.Output, err error) (res Result) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		a.Logger.Error("a tool's output panicked", "tool", k.Tool, "run", k.run.ID(), "panic", p, "stack", string(debug.Stack()))
		class := fault.Unknown
		if k.def.ReadOnly {
			class = fault.Internal
		}
		res = a.failure(k, tool.Output{}, fault.New(class, "the output of %s panicked: %v", k.Tool, p))
	}()
	return a.result(ctx, k, out, err)
}

// result turns a handler's answer into a Result: output bounds and the blob.
func (a *Act) result(ctx context.Context, k *call, out tool.Output, err error) Result {
	if err != nil {
		return a.failure(k, out, timedOut(ctx, k, err))
	}
	res := Result{Status: OK, Tool: k.Tool, Label: k.labelOf(out), Parts: out.Kept}
	src := source(out)
	if err := a.keep(ctx, k, a.Hide.Reader(src), &res); err != nil {
		return a.failure(k, out, timedOut(ctx, k, err))
	}
	res.Warnings = warnings(res)
	return res
}

func source(out tool.Output) io.ReadCloser {
	switch {
	case out.Reader != nil:
		return out.Reader
	case out.JSON != nil:
		return io.NopCloser(bytes.NewReader(out.JSON))
	}
	return io.NopCloser(bytes.NewReader([]byte(out.Text)))
}

// keep reads the output. What a model can be shown whole stays in the result; more
// goes into a blob up to the tool's limit, and the producer is stopped there.
func (a *Act) keep(ctx context.Context, k *call, src io.ReadCloser, res *Result) (err error) {
	defer func() { err = errors.Join(err, src.Close()) }()
	head, err := io.ReadAll(io.LimitReader(src, MaxText/2))
	if err != nil {
		return err
	}
	more, err := io.ReadAll(io.LimitReader(src, MaxText/2))
	if err != nil {
		return err
	}
	if len(more) < MaxText/2 {
		res.Size = int64(len(head) + len(more))
		res.Text, res.Cut = a.clean(string(head) + string(more))
		return nil
	}
	tail := &tailBuffer{}
	all := io.TeeReader(io.MultiReader(bytes.NewReader(head), bytes.NewReader(more), src), tail)
	ref, err := a.Blobs.Put(ctx, all, k.def.MaxOutput)
	if err != nil {
		return err
	}
	res.Blob, res.Size, res.Cut = ref.ID, ref.Size, ref.Cut
	start, _ := guard.CutText(guard.CleanText(guard.Whole(string(head))), MaxText/2)
	limit := ""
	if ref.Cut {
		limit = ", stopped at the tool's limit"
	}
	res.Text = fmt.Sprintf("%s\n[… %d bytes in all%s; the whole is kept as %s, read it with result.read …]\n%s",
		start, ref.Size, limit, ref.ID, guard.CleanText(guard.Whole(string(tail.bytes()))))
	res.Text, _ = guard.CutText(res.Text, MaxText)
	return nil
}

// tailBuffer keeps the last bytes written to it.
type tailBuffer struct{ b []byte }

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if len(t.b) > 4*tailText {
		t.b = append(t.b[:0], t.b[len(t.b)-tailText:]...)
	}
	return len(p), nil
}

func (t *tailBuffer) bytes() []byte { return t.b[max(0, len(t.b)-tailText):] }

// timedOut names the limit where a call failed because its time was over. A bare
// error of the context from a tool with an effect does not say whether it had it.
func timedOut(ctx context.Context, k *call, err error) error {
	if ctx.Err() == nil || fault.Is(err, fault.Unknown) {
		return err
	}
	why := "was cancelled"
	if errors.Is(context.Cause(ctx), errAbandoned) {
		why = "did not end within " + k.def.Timeout.String()
	}
	_, told := errors.AsType[*fault.Error](err)
	switch {
	case !told && !k.def.ReadOnly && k.def.Repeat != tool.Repeatable:
		return fault.New(fault.Unknown, "%s %s, so its outcome is unknown; do not repeat it: %w", k.Tool, why, err)
	case errors.Is(context.Cause(ctx), errAbandoned):
		return fault.New(fault.Timeout, "%s %s: %w", k.Tool, why, err)
	}
	return err
}

// permitter decides on a scope that showed itself during the call, such as the
// target of a redirect, with the same authority as the call.
func (a *Act) permitter(k *call) func(context.Context, scope.Scope) error {
	return func(_ context.Context, need scope.Scope) error {
		in := *a.policyInput(k)
		in.Scopes = []scope.Scope{need}
		if d := a.Decide(&in); d.Effect != policy.Allow && !covered(k.scopes, need) {
			return fault.New(fault.Denied, "not allowed: %s", d)
		}
		return nil
	}
}

func covered(held []scope.Scope, need scope.Scope) bool {
	for _, s := range held {
		if s.Covers(need) {
			return true
		}
	}
	return false
}
