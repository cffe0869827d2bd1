package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bounds of a connection over streams.
const (
	maxLine = 8 << 20         // bytes of a message
	grace   = 5 * time.Second // for answers after the end of in
)

// Serve speaks the protocol over a pair of streams, one message a line, until in ends
// or ctx does. What was asked before in ended is answered, if that takes a few seconds at
// most: who only closed its side still reads it. It returns nil at the end of in and of
// ctx. A line that is no message is answered with an error, and the next one is read.
func Serve(ctx context.Context, s *mcp.Server, in io.Reader, out io.Writer) error {
	err := s.Run(ctx, &streams{in: in, out: out, grace: grace})
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil //nolint:nilerr // both are how it ends
	}
	return err
}

// streams is the transport of Serve.
type streams struct {
	in    io.Reader
	out   io.Writer
	grace time.Duration
}

var _ mcp.Transport = (*streams)(nil)

// Connect implements mcp.Transport.
func (t *streams) Connect(context.Context) (mcp.Connection, error) {
	c := &lines{out: t.out, grace: t.grace, incoming: make(chan line), closed: make(chan struct{}), open: map[string]bool{}, settled: make(chan struct{}, 1)}
	go c.read(bufio.NewReaderSize(t.in, 64<<10)) // ends with in: a read of standard input cannot be cut short
	return c, nil
}

// line is one of them, or why there are no more.
type line struct {
	text []byte
	err  error
}

// lines is a connection of one message a line.
type lines struct {
	grace    time.Duration
	incoming chan line // not buffered; never closed: its last line has an error
	closed   chan struct{}
	once     sync.Once

	writing sync.Mutex
	out     io.Writer

	mu      sync.Mutex
	open    map[string]bool // ids of requests that were not answered yet
	settled chan struct{}   // told when one was answered; holds one
}

func (c *lines) read(r *bufio.Reader) {
	for {
		var l line
		l.text, l.err = readLine(r, maxLine)
		select {
		case c.incoming <- l:
		case <-c.closed:
			return
		}
		if l.err != nil && !errors.Is(l.err, errLong) {
			return
		}
	}
}

// errLong says that a line was over the limit and is skipped.
var errLong = errors.New("the message is too long")

// readLine returns the next line without its end. One of more than most bytes is read
// over to its end and answered with errLong. What stands before the end of r counts as a
// line.
func readLine(r *bufio.Reader, most int) (text []byte, err error) {
	for long := false; ; {
		piece, err := r.ReadSlice('\n')
		if long = long || len(text)+len(piece) > most+1; long {
			text = nil
		} else {
			text = append(text, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case long:
			return nil, errLong // what comes next, an end too, is told at the next call
		case errors.Is(err, io.EOF) && len(bytes.TrimSpace(text)) > 0:
			return text, nil
		case err != nil:
			return nil, err
		}
		return text, nil
	}
}

// Read implements mcp.Connection.
func (c *lines) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		var l line
		select {
		case l = <-c.incoming:
		case <-c.closed:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		switch {
		case errors.Is(l.err, errLong):
			l.text, l.err = nil, c.complain(ctx, jsonrpc.CodeInvalidRequest, fmt.Sprintf("a message has at most %d bytes", maxLine))
		case l.err != nil:
			c.drain(ctx)
		}
		if l.err != nil {
			return nil, l.err
		}
		if l.text = bytes.TrimSpace(l.text); len(l.text) == 0 {
			continue
		}
		msg, code, err := decode(l.text)
		if err == nil {
			c.note(msg)
			return msg, nil
		}
		if err := c.complain(ctx, code, err.Error()); err != nil {
			return nil, err
		}
	}
}

// decode reads one message; code is what a wrong one is answered with.
func decode(text []byte) (msg jsonrpc.Message, code int64, err error) {
	if !json.Valid(text) {
		return nil, jsonrpc.CodeParseError, errors.New("this is not JSON")
	}
	if text[0] == '[' {
		return nil, jsonrpc.CodeInvalidRequest, errors.New("send one message at a time")
	}
	msg, err = jsonrpc.DecodeMessage(text)
	if err != nil {
		return nil, jsonrpc.CodeInvalidRequest, fmt.Errorf("this is no message: %w", err)
	}
	if r, is := msg.(*jsonrpc.Response); is && !r.ID.IsValid() {
		return nil, jsonrpc.CodeInvalidRequest, errors.New("an answer without an id")
	}
	return msg, 0, nil
}

// note remembers a request until it is answered.
func (c *lines) note(msg jsonrpc.Message) {
	if r, is := msg.(*jsonrpc.Request); is && r.IsCall() {
		c.mu.Lock()
		c.open[idText(r.ID)] = true
		c.mu.Unlock()
	}
}

// idText tells ids apart, those that are numbers from those that are texts.
func idText(id jsonrpc.ID) string { return fmt.Sprintf("%T %v", id.Raw(), id.Raw()) }

// drain waits until what was asked is answered, at most for the grace.
func (c *lines) drain(ctx context.Context) {
	over := time.NewTimer(c.grace)
	defer over.Stop()
	for {
		c.mu.Lock()
		left := len(c.open)
		c.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-c.settled:
		case <-over.C:
			return
		case <-c.closed:
			return
		case <-ctx.Done():
			return
		}
	}
}

// complain answers what cannot be read.
func (c *lines) complain(ctx context.Context, code int64, text string) error {
	raw, err := json.Marshal(complaint{JSONRPC: "2.0", Error: wireError{code, text}})
	if err != nil {
		return err
	}
	return c.send(ctx, raw)
}

// complaint is an error about a message whose id is not known.
type complaint struct {
	JSONRPC string    `json:"jsonrpc"`
	ID      *int      `json:"id"` // null
	Error   wireError `json:"error"`
}

type wireError struct {
	Code    int64  `json:"code"`
	Message string `json:"message"`
}

// Write implements mcp.Connection.
func (c *lines) Write(ctx context.Context, msg jsonrpc.Message) error {
	raw, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	err = c.send(ctx, raw)
	if r, is := msg.(*jsonrpc.Response); is {
		c.mu.Lock()
		delete(c.open, idText(r.ID))
		c.mu.Unlock()
		select {
		case c.settled <- struct{}{}:
		default:
		}
	}
	return err
}

func (c *lines) send(ctx context.Context, raw []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := c.out.Write(append(raw, '\n'))
	return err
}

// Close implements mcp.Connection.
func (c *lines) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// SessionID implements mcp.Connection: streams have no sessions.
func (c *lines) SessionID() string { return "" }
