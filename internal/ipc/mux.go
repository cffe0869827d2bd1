package ipc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// Mux is the set of methods a server answers. It is filled once, before the
// server starts, and not changed after.
type Mux struct {
	routes   map[string]route
	problems []error
}

// route decodes the params, calls the handler and returns what to answer.
type route struct {
	stream   bool
	verbatim bool
	serve    func(ctx context.Context, params json.RawMessage, send func(wire.Note) error) (any, error)
}

// NewMux returns an empty Mux.
func NewMux() *Mux { return &Mux{routes: map[string]route{}} }

// Handle answers a method with fn. Params that do not decode strictly never
// reach fn. fn's context ends on request.cancel and when the server stops, not
// when the client disconnects; a handler that only waits should watch Gone too.
func Handle[Req, Resp any](m *Mux, method wire.Unary[Req, Resp], fn func(context.Context, Req) (Resp, error)) {
	m.add(method.Method, route{serve: func(ctx context.Context, params json.RawMessage, _ func(wire.Note) error) (any, error) {
		var req Req
		if err := wire.DecodeStrict(params, &req); err != nil {
			return nil, fmt.Errorf("%s: %w", method.Name, err)
		}
		return fn(ctx, req)
	}})
}

// HandleStream answers a streaming method with fn, which sends its notes through
// send, in order and from one goroutine, and returns the result. fn's context
// ends also when the client disconnects. An error of send is final: fn returns.
func HandleStream[Req any, N wire.Note, Resp any](m *Mux, method wire.Stream[Req, N, Resp], fn func(ctx context.Context, req Req, send func(N) error) (Resp, error)) {
	m.add(method.Method, route{stream: true, serve: func(ctx context.Context, params json.RawMessage, send func(wire.Note) error) (any, error) {
		var req Req
		if err := wire.DecodeStrict(params, &req); err != nil {
			return nil, fmt.Errorf("%s: %w", method.Name, err)
		}
		return fn(ctx, req, func(n N) error { return send(n) })
	}})
}

func (m *Mux) add(method wire.Method, r route) {
	if _, ok := m.routes[method.Name]; ok || method.Builtin {
		m.problems = append(m.problems, fmt.Errorf("%s already has a handler", method.Name))
		return
	}
	r.verbatim = method.Verbatim != ""
	m.routes[method.Name] = r
}

// Refuse answers those of the methods that nothing answers yet with the error of fn.
func (m *Mux) Refuse(methods []wire.Method, fn func() error) {
	for _, method := range methods {
		if _, ok := m.routes[method.Name]; ok || method.Builtin {
			continue
		}
		m.add(method, route{serve: func(context.Context, json.RawMessage, func(wire.Note) error) (any, error) { return nil, fn() }})
	}
}

// Check reports every method that has no handler or two. The daemon calls it
// once all are in.
func (m *Mux) Check(methods []wire.Method) error {
	problems := slices.Clone(m.problems)
	for _, method := range methods {
		if _, ok := m.routes[method.Name]; !ok && !method.Builtin {
			problems = append(problems, fmt.Errorf("%s has no handler", method.Name))
		}
	}
	if len(problems) > 0 {
		return fault.New(fault.Internal, "methods: %w", errors.Join(problems...))
	}
	return nil
}

// names lists what can be called, sorted, for the hint of an unknown method.
func (m *Mux) names() []string {
	out := []string{wire.RequestCancel.Name}
	for name := range m.routes {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// callerKey is the key of the caller in a handler's context.
type callerKey struct{}

type caller struct {
	peer wire.Peer
	gone <-chan struct{}
}

// PeerOf returns the process that made the request a handler works on.
func PeerOf(ctx context.Context) wire.Peer {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c.peer
}

// Gone is closed when the client that made the request has disconnected, so
// nobody will read the answer. It is nil outside a handler.
func Gone(ctx context.Context) <-chan struct{} {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c.gone
}
