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

	runtime wazero.Runtime
	cache   wazero.CompilationCache
	module  wazero.CompiledModule

	running sync.Mutex // one run at a time
	serving sync.Mutex // one tool at a time, also while a run waits for it
}

// NewRunner compiles a verified artifact. It takes an Artifact rather than bytes, because
// an Artifact is what Verify produces.
func NewRunner(ctx context.Context, a *Artifact, opts Options) (_ *Runner, err error) {
	m := a.Manifest
	if m.MemoryMB < 0 || m.MemoryMB > maxMemoryMB {
		return nil, fmt.Errorf("%w: %s asks for %d MiB of memory; an instance has 1 to %d", ErrMalformed, m.Name, m.MemoryMB, maxMemoryMB)
	}
	if opts.Kit == nil {
		return nil, errors.New("a runner needs a Kit")
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	opts.Limits = opts.Limits.orDefault()
	r := &Runner{manifest: m, opt: opts, space: namespace(m, opts.Namespace)}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close(context.WithoutCancel(ctx)))
		}
	}()
	if r.cache, err = openCache(opts.CacheDir); err != nil {
		return nil, err
	}
	r.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithCloseOnContextDone(true).
		WithMemoryLimitPages(uint32(m.memoryMB()*pagesPerMB)). //nolint:gosec // bounded above
		WithCompilationCache(r.cache))
	if err := hostModules(ctx, r.runtime); err != nil {
		return nil, fmt.Errorf("open the sandbox: %w", err)
	}
	if r.module, err = r.runtime.CompileModule(ctx, a.Module); err != nil {
		return nil, fmt.Errorf("%w: compile %s: %w", ErrMalformed, m.Name, err)
	}
	if err := r.fits(); err != nil {
		return nil, err
	}
	return r, nil
}

func openCache(dir string) (wazero.CompilationCache, error) {
	if dir == "" {
		return wazero.NewCompilationCache(), nil
	}
	c, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open the cache of compiled modules: %w", err)
	}
	return c, nil
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
// that one's; here it means the memory of the agent the loop works for.
func namespace(m Manifest, usual string) string {
	for _, c := range m.Capabilities {
		if space, ok := strings.CutPrefix(c, "memory:"); ok {
			if space = strings.TrimSuffix(space, ":write"); space != "*" {
				return space
			}
		}
	}
	return usual
}

// fits refuses a module that cannot be run here, before it is ever tried.
func (r *Runner) fits() error {
	exports := r.module.ExportedFunctions()
	name := r.manifest.Name
	if d, there := exports[runExport]; !there || len(d.ParamTypes()) > 0 || len(d.ResultTypes()) > 0 {
		return fmt.Errorf("%w: the module of %s does not export %q without parameters and results", ErrMalformed, name, runExport)
	}
	if r.module.ExportedMemories()["memory"] == nil {
		return fmt.Errorf("%w: the module of %s does not export its memory", ErrMalformed, name)
	}
	if len(r.manifest.Provides) > 0 && (exports[ToolExport] == nil || exports[AllocExport] == nil) {
		return fmt.Errorf("%w: %s provides tools and its module does not export %q and %q", ErrMalformed, name, ToolExport, AllocExport)
	}
	for _, f := range r.module.ImportedFunctions() {
		from, fn, _ := f.Import()
		if !slices.Contains([]string{"karmax", "ombud", wasi_snapshot_preview1.ModuleName}, from) {
			return fmt.Errorf("%w: the module of %s imports %s.%s, which no loop may", ErrMalformed, name, from, fn)
		}
	}
	return nil
}

// Close releases the runtime. It is safe to call twice.
func (r *Runner) Close(ctx context.Context) (err error) {
	if r.runtime != nil {
		err = r.runtime.Close(ctx)
	}
	if r.cache != nil {
		err = errors.Join(err, r.cache.Close(ctx))
	}
	return err
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
	return r.within(i.open(ctx, func(ctx context.Context, mod api.Module) error {
		_, err := mod.ExportedFunction(runExport).Call(ctx)
		return err
	}), ctx, timeout)
}

// trigger is what a module is told of its start.
func (r *Runner) trigger(kind string, payload json.RawMessage) ([]byte, error) {
	return json.Marshal(abi.Trigger{Loop: r.manifest.Name, Kind: kind, Payload: payload})
}

// within says what became of a module that did not return.
func (r *Runner) within(err error, ctx context.Context, timeout time.Duration) error {
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
	return fmt.Errorf("%w: %s: %w", ErrTrapped, r.manifest.Name, err)
}
