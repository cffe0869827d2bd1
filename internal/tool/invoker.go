package tool

import (
	"context"
	"log/slog"
	"runtime/debug"

	"github.com/ombud-run/ombud/internal/fault"
)

// Invoker is the only way to a handler or a probe. It checks nothing that policy
// decides; it keeps handlers to their contract.
type Invoker struct {
	table *table
	log   *slog.Logger
}

// Call runs a tool's handler, if the tool is still the one of in.Digest. It returns
// what the handler returns; timeouts, output limits and records are its caller's. A panic becomes an error: class
// Unknown if the tool may have changed something outside the store by then,
// class Internal otherwise.
func (i *Invoker) Call(ctx context.Context, name string, in Invocation) (out Output, err error) {
	e, ok := i.table.get(name)
	if !ok {
		return Output{}, fault.New(fault.NotFound, "there is no tool %q", cut(name, maxNearName))
	}
	if in.Digest != "" && in.Digest != e.digest {
		return Output{}, fault.New(fault.Conflict, "%s has changed since this call was decided; it was not made", e.def.Name).
			WithHint("look at the tool again and make the call anew")
	}
	if (e.def.Kind == Local) != (in.Tx != nil) {
		return Output{}, fault.New(fault.Internal, "call %s: a transaction goes with a local tool and only with one", e.def.Name)
	}
	class := fault.Internal
	if e.def.Kind == Effect && !e.def.ReadOnly {
		class = fault.Unknown
	}
	defer i.recovered(e.def.Name, class, &err)
	out, err = e.handler(ctx, in)
	if err == nil && out.kinds() > 1 {
		out.close()
		return Output{}, fault.New(class, "call %s: it returned more than one kind of output", e.def.Name)
	}
	return out, err
}

// Probe asks a probed tool whether an interrupted call was done. A tool without a
// probe, a probe that errs and a probe that panics are all Unclear; the error
// then says why.
func (i *Invoker) Probe(ctx context.Context, name string, in Invocation) (res ProbeResult, err error) {
	e, ok := i.table.get(name)
	if !ok {
		return ProbeResult{State: Unclear}, fault.New(fault.NotFound, "there is no tool %q", cut(name, maxNearName))
	}
	if e.probe == nil {
		return ProbeResult{State: Unclear}, fault.New(fault.Unknown, "%s has no probe", e.def.Name)
	}
	defer func() {
		if err != nil {
			res = ProbeResult{State: Unclear}
		}
	}()
	defer i.recovered(e.def.Name, fault.Unknown, &err)
	return e.probe(ctx, in)
}

// recovered is deferred around foreign code.
func (i *Invoker) recovered(name string, class fault.Class, err *error) {
	p := recover()
	if p == nil {
		return
	}
	i.log.Error("tool panicked", "tool", name, "panic", p, "stack", string(debug.Stack()))
	*err = fault.New(class, "%s panicked: %v", name, p)
}

func (o Output) kinds() int {
	n := 0
	for _, set := range []bool{o.Text != "", o.JSON != nil, o.Reader != nil} {
		if set {
			n++
		}
	}
	return n
}

func (o Output) close() {
	if o.Reader != nil {
		_ = o.Reader.Close() // the output is thrown away; nothing is lost by it
	}
}
