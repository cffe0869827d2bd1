package wasmloop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tetratelabs/wazero"
)

// engine is a runtime with one module compiled in it.
type engine struct {
	runtime wazero.Runtime
	cache   wazero.CompilationCache
	module  wazero.CompiledModule
}

// compile makes an engine for a module, from the cache if it is there. A cache that cannot
// be used costs time and nothing else.
func compile(ctx context.Context, opts Options, module []byte, limitPages uint32) (*engine, error) {
	if opts.CacheDir != "" {
		c := newCompileCache(opts, module)
		e, err := compileWith(ctx, c.open, module, limitPages)
		if err == nil {
			if err = c.keep(); err != nil {
				opts.Log.Warn("a compiled module was not kept", "dir", opts.CacheDir, "error", err)
			}
			return e, nil
		}
		if ctx.Err() != nil || errors.Is(err, errSlow) {
			return nil, err
		}
		first := err
		e, err = compileWith(ctx, inMemory, module, limitPages)
		_ = os.RemoveAll(c.dir) // it is why, or holds nothing
		if err == nil {
			opts.Log.Warn("the cache of compiled modules cannot be used", "dir", opts.CacheDir, "error", first)
		}
		return e, err
	}
	return compileWith(ctx, inMemory, module, limitPages)
}

func inMemory() (wazero.CompilationCache, error) { return wazero.NewCompilationCache(), nil }

func compileWith(ctx context.Context, open func() (wazero.CompilationCache, error), module []byte, limitPages uint32) (_ *engine, err error) {
	e := &engine{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close(context.WithoutCancel(ctx)))
		}
	}()
	if e.cache, err = open(); err != nil {
		return nil, fmt.Errorf("open the cache of compiled modules: %w", err)
	}
	e.runtime = wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithCloseOnContextDone(true).
		WithDebugInfoEnabled(false).
		WithMemoryLimitPages(limitPages).
		WithCompilationCache(e.cache))
	if err := hostModules(ctx, e.runtime); err != nil {
		return nil, fmt.Errorf("open the sandbox: %w", err)
	}
	if err := e.compile(ctx, module); err != nil {
		return nil, err
	}
	return e, nil
}

// maxCompile is the longest a module may take to be compiled. One of 3 MiB takes a second
// or two.
const maxCompile = 2 * time.Minute

var errSlow = fmt.Errorf("%w: it takes longer than %s to compile", ErrMalformed, maxCompile)

// compile compiles the module. The compiler cannot be stopped, and a few kilobytes can be
// made to keep it busy for hours, so it is given up on when ctx or its time is over. Who
// compiles then closes the engine, which is his alone, when he is done.
func (e *engine) compile(ctx context.Context, module []byte) error {
	limit, cancel := context.WithTimeoutCause(ctx, maxCompile, errSlow)
	defer cancel()
	mine := *e
	done, gone := make(chan error), make(chan struct{})
	go func() {
		err := mine.compileHere(ctx, module)
		select {
		case done <- err:
		case <-gone:
			_ = mine.close(context.WithoutCancel(ctx)) // nobody is left to tell
		}
	}()
	select {
	case err := <-done:
		e.module = mine.module
		return err
	case <-limit.Done():
		close(gone)
		*e = engine{}
		return context.Cause(limit)
	}
}

// compileHere does not panic: what makes a compiler fail that has other loops to run ends
// this one only.
func (e *engine) compileHere(ctx context.Context, module []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: the compiler failed: %v", ErrMalformed, p)
		}
	}()
	if e.module, err = e.runtime.CompileModule(ctx, module); err != nil {
		return fmt.Errorf("%w: compile: %w", ErrMalformed, err)
	}
	return nil
}

// close is safe to call twice.
func (e *engine) close(ctx context.Context) (err error) {
	if e.runtime != nil {
		err = e.runtime.Close(ctx)
	}
	if e.cache != nil {
		err = errors.Join(err, e.cache.Close(ctx))
	}
	return err
}
