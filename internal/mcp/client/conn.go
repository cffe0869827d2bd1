package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
)

const (
	maxLine   = 16 << 20 // bytes of one message
	maxAsked  = 64       // requests of the server that are not answered yet
	maxUnread = 1000     // lines that are no message, before that is said again
)

// Codes of answers that are made here, for a server that gives none.
const (
	codeTooLong  = -32099 // the answer was longer than maxLine
	methodFind   = "server/discover"
	methodCancel = "notifications/cancelled"
	methodTools  = "tools/list"
)

// heeded are the notifications that are passed on; the others are not used.
var heeded = []string{
	methodCancel, "notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed",
}

// conn speaks to a program: a message is a line of JSON. What is no message on its
// standard output is counted and passed over, for many programs print there. Its
// goroutines end when it is closed.
type conn struct {
	in    io.WriteCloser
	out   *os.File
	quiet time.Duration // how long a look for the newest protocol waits for an answer
	told  func(noise int64, line string)

	send     chan frame
	incoming chan jsonrpc.Message
	closed   chan struct{}
	once     sync.Once
	loops    sync.WaitGroup
	readEnd  chan struct{} // closed when reading has ended
	readErr  error         // why; after readEnd

	heard  atomic.Int64 // messages read
	noise  atomic.Int64 // lines that were none
	lists  sync.Map     // ids of requests for the tools
	asked  atomic.Int32 // requests of the server under way
	finds  atomic.Pointer[jsonrpc.ID]
	finder *time.Timer // under once of the look; stopped when closed
	mu     sync.Mutex  // of finder
}

// frame is a message on its way to the program.
type frame struct {
	line []byte
	told *atomic.Bool
	done chan error
}

var _ mcp.Connection = (*conn)(nil)

// newConn serves a program whose standard output is out. told hears of noise.
func newConn(in io.WriteCloser, out *os.File, quiet time.Duration, told func(int64, string)) *conn {
	c := &conn{
		in: in, out: out, quiet: quiet, told: told,
		send: make(chan frame), incoming: make(chan jsonrpc.Message), closed: make(chan struct{}),
		readEnd: make(chan struct{}),
	}
	c.loops.Go(c.write)
	c.loops.Go(func() {
		c.readErr = c.read()
		close(c.readEnd)
	})
	return c
}

// SessionID implements mcp.Connection: there is one session.
func (c *conn) SessionID() string { return "" }

// Close ends the connection, also for the program: its standard input is closed.
func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		_ = c.in.Close() // wakes the writer; what is not written is not needed
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.finder != nil {
			c.finder.Stop()
		}
	})
	return nil
}

// wait returns when both goroutines are gone: after Close, and when nobody can write to
// the program's standard output any more.
func (c *conn) wait() {
	c.loops.Wait()
	_ = c.out.Close() // read to its end
}

// Read implements mcp.Connection. Its context is that of the session.
func (c *conn) Read(context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-c.incoming:
		return m, nil
	case <-c.readEnd: // readErr says why, to those who ask
		return nil, io.EOF
	case <-c.closed:
		return nil, io.EOF
	}
}

// toldKey is for the value of a context that notes that a message was given away.
type toldKey struct{}

// Write implements mcp.Connection.
func (c *conn) Write(ctx context.Context, m jsonrpc.Message) error {
	line, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	switch m := m.(type) {
	case *jsonrpc.Response:
		c.asked.Add(-1)
	case *jsonrpc.Request:
		switch m.Method {
		case methodFind:
			c.look(m.ID)
		case methodTools:
			c.lists.Store(m.ID, true)
		}
	}
	told, _ := ctx.Value(toldKey{}).(*atomic.Bool)
	f := frame{line: append(line, '\n'), told: told, done: make(chan error, 1)}
	select {
	case c.send <- f:
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closed:
		return io.ErrClosedPipe
	}
	select {
	case err := <-f.done:
		return err
	case <-ctx.Done(): // it is being written, by a writer that nobody hurries
		return ctx.Err()
	case <-c.closed:
		return io.ErrClosedPipe
	}
}

func (c *conn) write() {
	for {
		select {
		case f := <-c.send:
			if f.told != nil {
				f.told.Store(true)
			}
			_, err := c.in.Write(f.line)
			f.done <- err
			if err != nil {
				return
			}
		case <-c.closed:
			return
		}
	}
}

// look answers the question for the newest protocol in the place of a server that does
// not: some never answer what they do not know, and wait for an initialize.
func (c *conn) look(id jsonrpc.ID) {
	c.finds.Store(&id)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finder = time.AfterFunc(c.quiet, func() { // ends with the delivery, or the connection
		if found := c.finds.Swap(nil); found != nil {
			c.deliver(&jsonrpc.Response{ID: *found, Error: &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no answer"}})
		}
	})
}

// deliver hands a message to the session; false when the connection is closed.
func (c *conn) deliver(m jsonrpc.Message) bool {
	select {
	case c.incoming <- m:
		return true
	case <-c.closed:
		return false
	case <-c.readEnd:
		return false
	}
}

// ended is closed when the program says nothing any more.
func (c *conn) ended() <-chan struct{} { return c.readEnd }

// read reads messages until there is none any more, and says why.
func (c *conn) read() error {
	r := bufio.NewReaderSize(c.out, 64<<10)
	for {
		line, long, err := readLine(r)
		switch {
		case long != nil:
			if !c.tooLong(long) {
				return nil
			}
		case len(line) > 0:
			if err := c.take(line); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		select {
		case <-c.closed: // the rest is read, for the program to end, and not used
			_, err := io.Copy(io.Discard, r)
			return err
		default:
		}
	}
}

// readLine returns a line without its end, or, of one that is too long, what was seen of it.
func readLine(r *bufio.Reader) (line []byte, long *envelope, err error) {
	for {
		piece, err := r.ReadSlice('\n')
		if long == nil && len(line)+len(piece) > maxLine {
			long = &envelope{}
			long.feed(line)
			line = nil
		}
		if long != nil {
			long.feed(piece)
		} else {
			line = append(line, piece...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return bytes.TrimSpace(line), long, err
	}
}

// tooLong answers the call whose answer was too long.
func (c *conn) tooLong(e *envelope) bool {
	var v any
	if json.Unmarshal([]byte(e.found()), &v) == nil {
		if id, err := jsonrpc.MakeID(v); err == nil && id.IsValid() {
			c.heard.Add(1)
			return c.deliver(&jsonrpc.Response{ID: id, Error: &jsonrpc.Error{
				Code: codeTooLong, Message: "it answered with more than " + itoa(maxLine) + " bytes, which were not kept",
			}})
		}
	}
	c.noisy("a line of more than " + itoa(maxLine) + " bytes")
	return true
}

func (c *conn) noisy(line string) {
	if n := c.noise.Add(1); n == 1 || n%maxUnread == 0 {
		c.told(n, line)
	}
}

// take deals with a line. An error ends the connection.
func (c *conn) take(line []byte) error {
	if line[0] == '[' { // a batch, which one version of the protocol had
		var batch []json.RawMessage
		if json.Unmarshal(line, &batch) == nil {
			for _, one := range batch {
				if err := c.takeOne(one); err != nil {
					return err
				}
			}
			return nil
		}
	}
	return c.takeOne(line)
}

func (c *conn) takeOne(line []byte) error {
	if len(line) == 0 || line[0] != '{' {
		c.noisy(string(line[:min(len(line), 4*maxExcerpt)]))
		return nil
	}
	m, err := jsonrpc.DecodeMessage(line)
	if err != nil {
		c.noisy(string(line[:min(len(line), 4*maxExcerpt)]))
		return nil //nolint:nilerr // a line that is no message is noise
	}
	c.heard.Add(1)
	switch m := m.(type) {
	case *jsonrpc.Request:
		switch {
		case !m.IsCall() && !heeds(m.Method):
			return nil
		case m.IsCall() && c.asked.Add(1) > maxAsked:
			return fault.New(fault.Unavailable, "a flood: it asks %d things at a time", maxAsked)
		}
	case *jsonrpc.Response:
		if found := c.finds.Load(); found != nil && *found == m.ID {
			if c.finds.Swap(nil) == nil {
				return nil // it was answered for it
			}
		}
		if _, listed := c.lists.LoadAndDelete(m.ID); listed && m.Error == nil {
			m.Result = legible(m.Result)
		}
	}
	c.deliver(m)
	return nil
}

func heeds(method string) bool {
	for _, h := range heeded {
		if strings.EqualFold(h, method) {
			return true
		}
	}
	return false
}

// unreadable is the key in the metadata of a tool that stands in the place of one that
// cannot be read. A server that writes it itself refuses its own tool.
const unreadable = "ombud/unreadable"

// legible puts something readable in the place of each tool of a list that is not: the
// library gives up on a whole list for one.
func legible(result json.RawMessage) json.RawMessage {
	var all map[string]json.RawMessage
	var tools []json.RawMessage
	if json.Unmarshal(result, &all) != nil || json.Unmarshal(all["tools"], &tools) != nil {
		return result // the library says what is wrong with it
	}
	changed := false
	for i, raw := range tools {
		var t *mcp.Tool
		err := json.Unmarshal(raw, &t)
		if err == nil && t != nil {
			continue
		}
		var name struct {
			Name string `json:"name"`
		}
		if json.Unmarshal(raw, &name) != nil || name.Name == "" {
			name.Name = "#" + itoa(i+1)
		}
		why := "it is no description of a tool"
		if err != nil {
			why = guard.OneLine(err.Error(), 200)
		}
		sum := sha256.Sum256(raw)
		stand, err := json.Marshal(&mcp.Tool{Name: name.Name, Meta: mcp.Meta{unreadable: why + " (" + hex.EncodeToString(sum[:4]) + ")"}})
		if err != nil {
			return result
		}
		tools[i], changed = stand, true
	}
	if !changed {
		return result
	}
	list, err := json.Marshal(tools)
	if err != nil {
		return result
	}
	all["tools"] = list
	again, err := json.Marshal(all)
	if err != nil {
		return result
	}
	return again
}
