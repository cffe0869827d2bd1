package signed

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/loops"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/wasmloop"
)

// Attempts of a run, and the pause before the next: 1 min, 2 min, at most 30.
const attempts = 3

func backoff(n int) time.Duration { return min(time.Minute<<min(n-1, 5), 30*time.Minute) }

// Shelf is what is installed, as far as runs need it.
type Shelf interface {
	Artifact(ctx context.Context, sha string) (*wasmloop.Artifact, error)
	Knows(ctx context.Context, q db.Q, definition string) (bool, error)
	Current(name string) (Installed, bool)
	Revoked(sha string) (key string)
	Names() []string
}

var _ Shelf = (*Library)(nil)

// WorkDeps are the parts a Work uses.
type WorkDeps struct {
	Shelf    Shelf
	Kit      loops.Deps
	Role     *policy.Role // what every signed loop has from the start
	Budget   *budget.Budget
	Tools    *tool.Registry // where provided tools are offered
	CacheDir string         // of compiled modules; "" for none
	Logger   *slog.Logger
}

// Work does the runs of signed loops. It is safe for concurrent use.
type Work struct {
	d    WorkDeps
	pool pool

	mu   sync.Mutex
	live map[*record]func() // what halts each module under way that may not go on
}

// NewWork returns what does the runs of the loops on a shelf.
func NewWork(d WorkDeps) *Work {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Work{d: d, live: map[*record]func(){}}
	w.pool.make = w.compile
	return w
}

// Kinds are the kinds of run it does: loops, and calls of the tools they provide.
func (w *Work) Kinds() []run.Kind {
	knows := func(ctx context.Context, q db.Q, rec run.Record) (bool, error) {
		return w.d.Shelf.Knows(ctx, q, rec.Definition)
	}
	ended := w.d.Kit.Ended(w.d.Budget)
	return []run.Kind{
		{Name: Kind, Handle: w.handle, Attempts: attempts, Backoff: backoff, Knows: knows, Ended: ended},
		{Name: ToolKind, Handle: w.handleTool, Knows: knows, Ended: ended, Heard: true},
	}
}

// Close releases what was compiled. No run may be under way.
func (w *Work) Close(ctx context.Context) error { return w.pool.close(ctx) }

// Prepare compiles a module into the cache on disk, or says why it cannot be run here.
func (w *Work) Prepare(ctx context.Context, a *wasmloop.Artifact) error {
	r, err := w.runner(ctx, a)
	if err != nil {
		return err
	}
	return r.Close(ctx)
}

func (w *Work) compile(ctx context.Context, sha string) (*wasmloop.Runner, wasmloop.Manifest, error) {
	a, err := w.d.Shelf.Artifact(ctx, sha)
	if err != nil {
		return nil, wasmloop.Manifest{}, err
	}
	r, err := w.runner(ctx, a)
	return r, a.Manifest, err
}

// runner makes a runner. Each run brings its own host.
func (w *Work) runner(ctx context.Context, a *wasmloop.Artifact) (*wasmloop.Runner, error) {
	return wasmloop.NewRunner(context.WithoutCancel(ctx), a, wasmloop.Options{
		Namespace: "agent", Kit: nobody{}, CacheDir: w.d.CacheDir, Log: w.d.Logger,
		Limits: wasmloop.Limits{Calls: maxAny, Output: maxPrinted, Answer: maxAnswer},
	})
}

// nobody is the kit of a module that no run has begun.
type nobody struct{ wasmloop.Kit }

// Actor is who an installed loop works as. NotFound if no signed loop is the subject.
func (w *Work) Actor(subject string) (loops.Actor, error) {
	name, is := strings.CutPrefix(subject, prefix)
	x, there := w.d.Shelf.Current(name)
	if !is || !there {
		return loops.Actor{}, notInstalled(name)
	}
	return w.actor(name, x.Manifest), nil
}

// actor is who works by a manifest: it has what that names and what was approved of the
// version that is installed now. Where none is, or it is stopped, that is nothing.
func (w *Work) actor(name string, m wasmloop.Manifest) loops.Actor {
	who := loops.Actor{Subject: Subject(name), Role: w.d.Role, Own: []policy.Rule{}, Limits: loops.Limits{Steps: maxCalls + maxLines + maxAny, Log: maxLog}}
	x, there := w.d.Shelf.Current(name)
	if !there || x.Stopped() != "" {
		return who
	}
	who.Config, who.Limits.Active = x.Settings.Values, x.Settings.Timeout
	now, _ := Rules(x.Manifest)
	rules, _ := Rules(m)
	for _, r := range rules {
		if slices.ContainsFunc(now, func(n policy.Rule) bool { return n.Effect >= r.Effect && n.Scope.Covers(r.Scope) }) {
			who.Own = append(who.Own, r)
		}
	}
	for _, p := range m.Provides {
		who.Lends = append(who.Lends, ToolName(name, p.Name))
	}
	return who
}

// may is nil as long as a run of a loop by an artifact may go on. It is asked at its start
// and before each call, and whenever what is installed or trusted has changed.
func (w *Work) may(name, sha string) error {
	x, there := w.d.Shelf.Current(name)
	switch {
	case !there:
		return fault.New(fault.Denied, "the loop %s was removed", name)
	case x.Stopped() != "":
		return fault.New(fault.Denied, "the loop %s may not run: %s", name, x.Stopped())
	}
	if key := w.d.Shelf.Revoked(sha); key != "" {
		return fault.New(fault.Denied, "the loop %s may not run: the key %s, by which the version of this run is signed, is revoked", name, key)
	}
	return nil
}

// names reports whether the version of a loop that is installed now names a host function. A
// run of an older one calls no other, but for what it called before. Where none is installed
// any more the call ends the run (see may), which an answer that it is not declared would not.
func (w *Work) names(name, fn string) bool {
	x, there := w.d.Shelf.Current(name)
	return !there || slices.Contains(x.Manifest.Host, fn)
}

// goesOn registers a module under way, so that it is halted as soon as it may not go on.
// What it returns ends that.
func (w *Work) goesOn(c *record, name, sha string, stop func()) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live[c] = func() {
		if why := w.may(name, sha); why != nil {
			c.halt(stop, why)
		}
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.live, c)
	}
}

// Judge halts what is under way and may not go on, and forgets what was compiled: a module is
// verified again before its next run. It is called whenever what is installed or trusted has
// changed.
func (w *Work) Judge() {
	w.mu.Lock()
	for _, judge := range w.live {
		judge()
	}
	w.mu.Unlock()
	w.pool.forget()
}

func (w *Work) handle(ctx context.Context, r *run.Run) ([]byte, error) {
	return nil, w.do(ctx, r, func(ctx context.Context, module *wasmloop.Runner, k *kit) error {
		kind, payload, err := started(k.k.Trigger())
		if err != nil {
			return err
		}
		return module.RunTriggered(ctx, forever, kind, payload)
	})
}

// forever is longer than any run's own limit, which is that of its kit.
const forever = 1000 * time.Hour

// started is a trigger in the words of a module.
func started(t trigger.Trigger) (kind string, payload map[string]any, err error) {
	var fields map[string]json.RawMessage
	if len(t.Payload) > 0 {
		if err := json.Unmarshal(t.Payload, &fields); err != nil {
			return "", nil, fault.New(fault.Internal, "the payload of a trigger: %w", err)
		}
	}
	payload = make(map[string]any, len(fields)+1)
	for name, raw := range fields {
		payload[name] = raw
	}
	kind = t.Kind
	switch kind {
	case trigger.ByEvent:
		payload["event_kind"] = t.EventKind
	case trigger.ByRun:
		kind = trigger.ByHand
	}
	return kind, payload, nil
}

// do has a module do a run, with a kit of the run's own.
func (w *Work) do(ctx context.Context, r *run.Run, use func(ctx context.Context, module *wasmloop.Runner, k *kit) error) error {
	rec := r.Record()
	name, sha, ok := Pinned(rec.Definition)
	if !ok {
		return fault.New(fault.Internal, "run %s is pinned to %q, which is no signed loop", rec.ID, rec.Definition)
	}
	if err := w.may(name, sha); err != nil {
		return err
	}
	module, m, done, err := w.pool.get(ctx, sha)
	if err != nil {
		return err
	}
	defer done()
	who := w.actor(name, m)
	if rec.Kind == ToolKind {
		who.Limits.Active, who.Lends = toolTime, nil
	}
	return w.d.Kit.Do(ctx, r, who, func(ctx context.Context, lk *loops.Kit) error {
		c, err := newRecord(ctx, r, w.d.Kit.DB.Time)
		if err != nil {
			return err
		}
		c.names = func(fn string) bool { return w.names(name, fn) }
		k := &kit{record: c, k: lk, config: who.Config, ctx: ctx, may: func() error { return w.may(name, sha) }}
		inside, stop := context.WithCancel(ctx)
		defer stop()
		defer w.goesOn(c, name, sha, stop)()
		if err := k.may(); err != nil { // it changed while the module was compiled
			return err
		}
		defer c.watch(stop)()
		err = use(wasmloop.WithHost(inside, wasmloop.Host{
			Kit: k, Grants: gate{m}, Log: slog.New(lines{k: k}), Around: k.around, Clock: c.clock,
			Functions: func(fn string) bool { return k.replaying() || k.names(fn) },
		}), module, k)
		return k.ended(ctx, err)
	})
}

// watch halts the module when the daemon stops. What it returns ends the watch.
func (c *record) watch(stop func()) (end func()) {
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-c.r.Halted():
			c.halt(stop, nil)
		case <-over:
		}
	}()
	return func() { close(over); <-gone }
}

// ended is what the run's handler returns: why the module was stopped, if it was.
func (k *kit) ended(ctx context.Context, err error) error {
	k.mu.Lock()
	halted := k.halted
	k.mu.Unlock()
	switch {
	case k.why != nil:
		return k.why
	case err == nil:
		return nil
	case halted:
		if stop := k.stopping(); stop != nil {
			return stop
		}
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return k.failed(err)
}
