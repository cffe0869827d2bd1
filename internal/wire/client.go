package wire

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"github.com/ombud-run/ombud/internal/fault"
)

// ErrNoDaemon is in the chain of an error when nobody listens on the socket, so
// nothing was sent and a daemon may be started and the call made again.
var ErrNoDaemon = errors.New("no daemon answers")

// Client calls a daemon. It has no state between calls: each opens a connection
// of its own, so that a stream whose reader is slow holds up nothing else and a
// daemon that was restarted is found by the next call. Nothing is retried here.
//
// An error keeps the class and the hint that the daemon gave it. A connection
// that ends before the answer is fault.Unavailable for a repeatable method and
// fault.Unknown for the others: the daemon may have done it. (message.send with a
// key may be sent again all the same.)
//
// When ctx ends, the call returns at once with its cause. That ends a watch in
// the daemon; work already handed over goes on.
type Client struct {
	dial func(context.Context) (net.Conn, error)
}

// NewClient returns a client of the daemon at a socket path. The socket has to
// belong to the caller's own user.
func NewClient(socket string) *Client {
	return NewClientFunc(func(ctx context.Context) (net.Conn, error) { return dialSocket(ctx, socket) })
}

// NewClientFunc returns a client that gets its connections from dial.
func NewClientFunc(dial func(context.Context) (net.Conn, error)) *Client {
	return &Client{dial: dial}
}

func call[Req, Resp any](ctx context.Context, c *Client, m Unary[Req, Resp], req Req) (Resp, error) {
	return exchange[Resp](ctx, c, m.Method, req, nil)
}

func watch[Req any, N Note, Resp any](ctx context.Context, c *Client, m Stream[Req, N, Resp], req Req, on func(N) error) (Resp, error) {
	return exchange[Resp](ctx, c, m.Method, req, func(name string, raw json.RawMessage) error {
		note, ok, err := m.decodeNote(name, raw)
		if err != nil || !ok {
			return err
		}
		return on(note)
	})
}

// requestID is the id of the only request of a connection.
var requestID = json.RawMessage("1")

// exchange sends one request over a fresh connection and reads to its answer.
func exchange[Resp any](ctx context.Context, c *Client, m Method, params any, onNote func(string, json.RawMessage) error) (Resp, error) {
	var resp Resp
	frame, err := EncodeFrame(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  string          `json:"method"`
		Params  any             `json:"params"`
	}{Version, requestID, m.Name, params})
	if err != nil {
		return resp, err
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return resp, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	// A daemon that refuses the connection answers before it has read anything,
	// so after a failed write its answer may still be there.
	_, writeErr := conn.Write(frame)
	result, err := readAnswer(bufio.NewReaderSize(conn, 32<<10), onNote)
	if err == nil {
		if err := json.Unmarshal(result, &resp); err != nil {
			return resp, fault.New(fault.Internal, "decode result of %s: %w", m.Name, err)
		}
		return resp, nil
	}
	if lost, ok := errors.AsType[*lostError](err); ok {
		return resp, lostFault(ctx, m, writeErr, lost.err)
	}
	return resp, err
}

// lostError is an end of the connection before the answer.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }

func lostFault(ctx context.Context, m Method, writeErr, readErr error) error {
	switch {
	case ctx.Err() != nil:
		cause := context.Cause(ctx)
		return fault.New(fault.ClassOf(cause), "%s: %w", m.Name, cause)
	case writeErr != nil: // the daemon never had the whole request
		return fault.New(fault.Unavailable, "%s: not sent: %w", m.Name, writeErr)
	case m.Repeatable:
		return fault.New(fault.Unavailable, "%s: connection lost before the answer: %w", m.Name, readErr)
	}
	return fault.New(fault.Unknown, "%s: connection lost before the answer, it may have been done: %w", m.Name, readErr)
}

// readAnswer hands each note to onNote until the response comes.
func readAnswer(r *bufio.Reader, onNote func(string, json.RawMessage) error) (json.RawMessage, error) {
	for {
		body, err := ReadFrame(r)
		if err != nil {
			return nil, &lostError{err}
		}
		var msg struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
			Result json.RawMessage `json:"result"`
			Error  *Error          `json:"error"`
		}
		if err := json.Unmarshal(body, &msg); err != nil {
			return nil, &lostError{fmt.Errorf("daemon sent what is no message: %w", err)}
		}
		switch {
		case msg.Method != "":
			if err := deliver(msg.Method, msg.Params, onNote); err != nil {
				return nil, err
			}
		case msg.Error != nil:
			return nil, msg.Error.Fault()
		case string(msg.ID) == string(requestID) && msg.Result != nil:
			return msg.Result, nil
		default:
			return nil, &lostError{errors.New("daemon sent an answer to something else")}
		}
	}
}

func deliver(name string, params json.RawMessage, onNote func(string, json.RawMessage) error) error {
	var p noteParams
	if onNote == nil || json.Unmarshal(params, &p) != nil || string(p.Request) != string(requestID) {
		return nil //nolint:nilerr // not a note to this request: newer daemons may send others
	}
	return onNote(name, p.Note)
}
