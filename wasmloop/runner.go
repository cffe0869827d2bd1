package wasmloop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/ombud-run/ombud/wasmloop/abi"
)

// Errors of a run. They tell what became of the module, not of one of its calls.
var (
	// ErrTimeout is a module that did not end within its time. It was stopped.
	ErrTimeout = errors.New("out of time")
	// ErrTrapped is a module that failed: a trap, an exit with another code than 0, too
	// much memory or recursion, or more calls than a run may make.
	ErrTrapped = errors.New("the module failed")
)

const (
	maxMemoryMB = 4096
	pagesPerMB  = 16

	initExport = "_initialize"
	runExport  = "run"
)

// Runner executes one loop's module. Its methods may be called from several goroutines;
// runs go one after another.
type Runner struct {
	manifest Manifest
	opt      Options
	space    string // the memory namespace

	engine *engine
	image  *image // nil where each instance is made from the module as it is

	running sync.Mutex // one run at a time
	serving sync.Mutex // one tool at a time, also while a run waits for it
}

// NewRunner compiles a verified artifact. It takes an Artifact rather than bytes, because
// an Artifact is what Verify produces.
func NewRunner(ctx context.Context, a *Artifact, opts Options) (*Runner, error) {
	if opts.Kit == nil {
		return nil, errors.New("a runner needs a Kit")
	}
	return newRunner(ctx, a, opts)
}

// Compile compiles an artifact into the cache of opts, so that nobody waits for it later,
// and refuses what NewRunner would refuse. It needs no Kit.
func Compile(ctx context.Context, a *Artifact, opts Options) error {
	r, err := newRunner(ctx, a, opts)
	if err != nil {
		return err
	}
	return r.Close(ctx)
}

func newRunner(ctx context.Context, a *Artifact, opts Options) (_ *Runner, err error) {
	m := a.Manifest
	if m.MemoryMB < 0 || m.MemoryMB > maxMemoryMB {
		return nil, fmt.Errorf("%w: %s asks for %d MiB of memory; an instance has 1 to %d", ErrMalformed, m.Name, m.MemoryMB, maxMemoryMB)
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	opts.Limits = opts.Limits.orDefault()
	r := &Runner{manifest: m, opt: opts, space: namespace(m, opts.Namespace)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("the module of %s: %w", m.Name, err), r.Close(context.WithoutCancel(ctx)))
		}
	}()
	s, err := look(a.Module)
	if err != nil {
		return nil, err
	}
	pages := uint32(m.memoryMB() * pagesPerMB) //nolint:gosec // bounded above
	if !opts.NoImage {
		if r.image, err = newImage(ctx, s, pages); err != nil {
			opts.Log.Debug("each run makes its instance from the module", "loop", m.Name, "because", err)
		}
	}
	if r.engine, err = compile(ctx, opts, s.module(r.image == nil), pages); err != nil {
		return nil, err
	}
	if err := r.fits(); err != nil {
		return nil, err
	}
	if r.image == nil {
		return r, nil
	}
	if bad := r.image.check(ctx, r.instantiate); bad != nil {
		opts.Log.Warn("the image of a module is not what it begins with; each run makes its instance from the module", "loop", m.Name, "error", bad)
		r.image = nil
		bad = r.engine.close(ctx)
		if r.engine, err = compile(ctx, opts, s.module(true), pages); err != nil {
			return nil, errors.Join(err, bad)
		}
	}
	return r, nil
}

func (r *Runner) instantiate(ctx context.Context) (api.Module, error) {
	return r.engine.runtime.InstantiateModule(ctx, r.engine.module, wazero.NewModuleConfig().WithName("").WithStartFunctions())
}

// hostModules gives the runtime all that a module can import.
func hostModules(ctx context.Context, r wazero.Runtime) error {
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, r); err != nil {
		return err
	}
	i32 := api.ValueTypeI32
	_, err := r.NewHostModuleBuilder("karmax").NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(karmaxCall), []api.ValueType{i32, i32, i32, i32, i32, i32}, []api.ValueType{i32}).
		WithParameterNames("name", "name_len", "request", "request_len", "out", "out_cap").
		Export("call").Instantiate(ctx)
	if err != nil {
		return err
	}
	_, err = r.NewHostModuleBuilder("ombud").NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(ombudCall), []api.ValueType{i32, i32, i32, i32, i32, i32}, []api.ValueType{api.ValueTypeI64}).
		WithParameterNames("name", "name_len", "request", "request_len", "out", "out_cap").
		Export("call").NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(ombudTake), []api.ValueType{i32, i32}, []api.ValueType{i32}).
		WithParameterNames("out", "out_cap").
		Export("take").Instantiate(ctx)
	return err
}

// namespace is the memory a manifest names. A loop made for another installation names
// that one's; here it means the memory of the agent the loop works for. It is a name and
// nothing else: whether the loop may write there, all its capabilities say together.
func namespace(m Manifest, usual string) string {
	for _, c := range m.Capabilities {
		if space, ok := strings.CutPrefix(c, "memory:"); ok {
			for strings.HasSuffix(space, writes) {
				space = strings.TrimSuffix(space, writes)
			}
			if space != "*" && space != "" {
				return space
			}
		}
	}
	return usual
}

// fits refuses a module that cannot be run here, before it is ever tried.
func (r *Runner) fits() error {
	has := r.engine.module.ExportedFunctions()
	if !is(has[runExport], nil, nil) {
		return fmt.Errorf("%w: it does not export %q without parameters and results", ErrMalformed, runExport)
	}
	if begin, there := has[initExport]; there && !is(begin, nil, nil) {
		return fmt.Errorf("%w: it exports %q with parameters or results", ErrMalformed, initExport)
	}
	if r.engine.module.ExportedMemories()["memory"] == nil {
		return fmt.Errorf("%w: it does not export its memory", ErrMalformed)
	}
	i32, i64 := api.ValueTypeI32, api.ValueTypeI64
	if len(r.manifest.Provides) > 0 && (!is(has[AllocExport], []api.ValueType{i32}, []api.ValueType{i32}) ||
		!is(has[ToolExport], []api.ValueType{i32, i32}, []api.ValueType{i64})) {
		return fmt.Errorf("%w: it provides tools and does not export %q from i32 to i32 and %q from i32 and i32 to i64", ErrMalformed, AllocExport, ToolExport)
	}
	for _, f := range r.engine.module.ImportedFunctions() {
		from, fn, _ := f.Import()
		host := r.engine.runtime.Module(from)
		if host == nil {
			return fmt.Errorf("%w: it imports %.60q.%.60q, which no loop may", ErrMalformed, from, fn)
		}
		if have := host.ExportedFunctionDefinitions()[fn]; have == nil || !is(have, f.ParamTypes(), f.ResultTypes()) {
			return fmt.Errorf("%w: it imports %.60q.%.60q, which this host does not have, or not so", ErrMalformed, from, fn)
		}
	}
	return nil
}

// is reports whether there is a function of this type.
func is(f api.FunctionDefinition, params, results []api.ValueType) bool {
	return f != nil && slices.Equal(f.ParamTypes(), params) && slices.Equal(f.ResultTypes(), results)
}

// Close releases the runtime. It is safe to call twice.
func (r *Runner) Close(ctx context.Context) error {
	if r.engine == nil {
		return nil
	}
	return r.engine.close(ctx)
}

// ProvidedTools are the tools this module implements, from its manifest.
func (r *Runner) ProvidedTools() []ToolSpec { return slices.Clone(r.manifest.Provides) }

// Run executes the module for one trigger, in an instance of its own: a loop carries
// neither state nor corruption from one run into the next.
func (r *Runner) Run(ctx context.Context, timeout time.Duration) error {
	return r.RunTriggered(ctx, timeout, "manual", nil)
}

// RunTriggered is Run with the trigger the guest can read back. kind is schedule, event,
// webhook, timer, manual or retry.
func (r *Runner) RunTriggered(ctx context.Context, timeout time.Duration, kind string, payload map[string]any) error {
	raw, err := json.Marshal(payload)
	if err != nil {
		return fmt.Errorf("%w: the payload of a %s trigger: %w", ErrMalformed, kind, err)
	}
	trigger, err := r.trigger(kind, raw)
	if err != nil {
		return err
	}
	r.running.Lock()
	defer r.running.Unlock()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	i := r.newInstance(ctx, trigger)
	return r.within(ctx, i.open(ctx, func(ctx context.Context, mod api.Module) error {
		_, err := mod.ExportedFunction(runExport).Call(ctx)
		return err
	}), timeout)
}

// trigger is what a module is told of its start.
func (r *Runner) trigger(kind string, payload json.RawMessage) ([]byte, error) {
	return json.Marshal(abi.Trigger{Loop: r.manifest.Name, Kind: kind, Payload: payload})
}

// within says what became of a module that did not return.
func (r *Runner) within(ctx context.Context, err error, timeout time.Duration) error {
	var exit *sys.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && exit.ExitCode() == 0:
		return nil // a module may end so
	case errors.Is(err, ErrStop):
		return err
	case context.Cause(ctx) != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%w: %s did not end within %s", ErrTimeout, r.manifest.Name, timeout)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w: %s: %s", ErrTrapped, r.manifest.Name, trace(err))
}

// trace is what a trap is told with: the module's functions, not those of the host, and
// not all of them.
func trace(err error) string {
	const most = 2000
	text, _, _ := strings.Cut(err.Error(), "\n\nGo runtime stack trace:")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " …"
	}
	return text
}
