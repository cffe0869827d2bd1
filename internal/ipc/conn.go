package ipc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// errGone is why a stream's context ends when its client disconnects.
var errGone = fault.New(fault.Cancelled, "the client has disconnected")

// nullID is the id of an answer to what could not be read.
var nullID = json.RawMessage("null")

// conn is one connection: its reader is the goroutine of serve, each request has
// a goroutine that writes its own frames under the write turn.
type conn struct {
	se   *session
	nc   net.Conn
	peer wire.Peer
	log  *slog.Logger

	ctx  context.Context // ends when the client is gone or the server stops
	gone context.CancelCauseFunc
	turn chan struct{} // holds one token: whoever has it may write
	wg   sync.WaitGroup

	mu    sync.Mutex
	calls map[string]*running // by id as it was sent
}

// running is a request that is not answered yet.
type running struct {
	method string
	end    context.CancelCauseFunc
}

func (se *session) newConn(nc net.Conn, peer wire.Peer) *conn {
	c := &conn{se: se, nc: nc, peer: peer, turn: make(chan struct{}, 1), calls: map[string]*running{}}
	c.log = se.log.With("peer_uid", peer.UID, "peer_pid", peer.PID)
	c.ctx, c.gone = context.WithCancelCause(se.ctx)
	c.turn <- struct{}{}
	return c
}

// refuse answers whatever the client was going to ask with err and hangs up.
func (c *conn) refuse(err error) {
	defer c.nc.Close()
	defer c.gone(errGone)
	c.answerError(nullID, wire.ErrorOf(err))
}

// frame is one that is ready to be written but for what is hidden in it.
type frame struct {
	bytes    []byte
	verbatim bool
}

// serve reads requests until the client is gone or the server stops, waits for
// those it started and closes the connection.
func (c *conn) serve() {
	defer c.nc.Close()
	err := c.readAll()
	if err != nil && c.se.ctx.Err() == nil {
		c.log.Debug("connection ended", "error", err)
	}
	c.gone(errGone)
	c.wg.Wait()
}

// readAll returns when no further frame can be read; nil is a clean end.
func (c *conn) readAll() error {
	r := bufio.NewReaderSize(c.nc, 32<<10)
	for c.ctx.Err() == nil {
		body, err := wire.ReadFrame(r)
		if long, ok := errors.AsType[*wire.TooLong](err); ok {
			c.answerError(nullID, wire.TooLongError(long))
			if !long.Skippable() {
				return long
			}
			err = long.Skip(r)
		} else if err == nil {
			c.accept(body)
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// accept starts what a frame asks for, or answers why not.
func (c *conn) accept(body []byte) {
	req, perr := wire.ParseRequest(body)
	switch {
	case perr != nil:
		c.answerError(req.ID, perr)
	case req.Method == wire.RequestCancel.Name:
		c.cancelRequest(req)
	case req.ID == nil:
		c.log.Debug("pass over notification", "method", req.Method) // there is nobody to tell
	default:
		c.start(req)
	}
}

func (c *conn) start(req wire.Request) {
	route, ok := c.se.mux.routes[req.Method]
	if !ok {
		c.answerError(req.ID, wire.UnknownMethodError(req.Method, c.se.mux.names()))
		return
	}
	parent := c.se.ctx
	if route.stream {
		parent = c.ctx
	}
	ctx, end := context.WithCancelCause(context.WithValue(parent, callerKey{}, caller{c.peer, c.ctx.Done()}))
	if err := c.register(req, end); err != nil {
		end(err)
		c.answerError(req.ID, wire.ErrorOf(err))
		return
	}
	c.wg.Go(func() {
		defer end(nil)
		result, err := c.run(ctx, route, req)
		// The id is free again before the answer can be read.
		c.unregister(req)
		c.answer(req, route, result, err)
	})
}

func (c *conn) register(req wire.Request, end context.CancelCauseFunc) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := string(req.ID)
	if _, ok := c.calls[id]; ok {
		return fault.New(fault.Conflict, "request %s is still running", id).WithHint("give every request of a connection its own id")
	}
	if len(c.calls) >= c.se.cfg.MaxRequests {
		return fault.New(fault.Unavailable, "%d requests of this connection are still running", len(c.calls)).
			WithHint("wait for an answer, or use another connection")
	}
	c.calls[id] = &running{req.Method, end}
	return nil
}

func (c *conn) unregister(req wire.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, string(req.ID))
}

func (c *conn) running() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, r := range c.calls {
		out = append(out, r.method)
	}
	return out
}

// cancelRequest ends a request of this connection; it answers only if asked to.
func (c *conn) cancelRequest(req wire.Request) {
	var params wire.RequestCancelRequest
	err := wire.DecodeStrict(req.Params, &params)
	cancelled := false
	if err == nil {
		c.mu.Lock()
		if r, ok := c.calls[string(params.ID)]; ok {
			cancelled = true
			r.end(fault.New(fault.Cancelled, "%s was cancelled by the client", r.method))
		}
		c.mu.Unlock()
	}
	if req.ID != nil {
		c.answer(req, route{}, wire.RequestCancelResult{Cancelled: cancelled}, err)
	}
}

// run calls the handler. A panic is an internal error of this request only.
func (c *conn) run(ctx context.Context, r route, req wire.Request) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("handler panicked", "method", req.Method, "panic", p, "stack", string(debug.Stack()))
			err = fault.New(fault.Internal, "%s: the daemon failed, see its log", req.Method).WithHint("ombud logs")
		}
	}()
	result, err = r.serve(ctx, req.Params, func(n wire.Note) error {
		b, err := wire.NoteFrame(req.ID, n)
		if err != nil {
			return err
		}
		return c.write(ctx, frame{b, r.verbatim})
	})
	// A handler that gave up because its context ended may only know that it did;
	// the context knows why.
	if err != nil && ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) {
		err = context.Cause(ctx)
	}
	return result, err
}

func (c *conn) answer(req wire.Request, r route, result any, err error) {
	if err == nil {
		b, encErr := wire.ResultFrame(req.ID, result)
		if encErr == nil {
			c.writeAnswer(frame{b, r.verbatim})
			return
		}
		err = encErr
	}
	c.answerError(req.ID, wire.ErrorOf(err))
}

func (c *conn) answerError(id json.RawMessage, e *wire.Error) {
	c.writeAnswer(frame{bytes: wire.ErrorFrame(id, e)})
}

// writeAnswer writes a response, which unlike a note is owed whatever ended; it
// gives up only when the connection is broken, of which write has told the log.
func (c *conn) writeAnswer(f frame) {
	_ = c.write(context.Background(), f) // the connection is closed by a failed write: nobody is left to tell
}

// write sends one whole frame, without what is hidden: every byte that leaves the
// server goes through here. It waits for its turn until ctx ends; once it has
// begun it finishes or breaks the connection, since half a frame would shift all
// that follow.
func (c *conn) write(ctx context.Context, f frame) error {
	if !f.verbatim {
		hidden, err := wire.ChangeFrame(f.bytes, c.se.cfg.Hide)
		if err != nil { // it had just room without the names that stand in for what is hidden
			c.fail(err)
			return err
		}
		f.bytes = hidden
	}
	select {
	case <-c.turn:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { c.turn <- struct{}{} }()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := c.writePieces(f.bytes); err != nil {
		err := fault.New(fault.Unavailable, "write to client: %w", err)
		c.fail(err)
		return err
	}
	return nil
}

// writePiece is how many bytes a client has to take within the write timeout.
const writePiece = 64 << 10

func (c *conn) writePieces(frame []byte) error {
	for len(frame) > 0 {
		piece := frame[:min(writePiece, len(frame))]
		if err := c.nc.SetWriteDeadline(time.Now().Add(c.se.cfg.WriteTimeout)); err != nil {
			return err
		}
		n, err := c.nc.Write(piece)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.log.Warn("drop client that does not read", "timeout", c.se.cfg.WriteTimeout)
		}
		if err != nil {
			return err
		}
		frame = frame[n:]
	}
	return nil
}

// stopReading makes readAll return; what is running still answers.
func (c *conn) stopReading() {
	if err := c.nc.SetReadDeadline(time.Unix(1, 0)); err != nil {
		c.fail(errStopping)
	}
}

// fail ends the connection at once, in both directions.
func (c *conn) fail(err error) {
	c.gone(err)
	c.nc.Close()
}
