package ipc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rogpeppe/go-internal/txtar"
	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

var update = flag.Bool("update", false, "write what was received into testdata/*.txtar")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newTestMux answers a few methods in ways that tests need:
//   - turn.watch: run_short sends some notes and ends, run_hangs sends one and
//     waits for its context, any other is not found;
//   - runs.get waits until its client is gone or its context ends;
//   - message.send gives the text back as notice;
//   - events.list panics, memory.search answers over the limit.
func newTestMux() *Mux {
	mux := NewMux()
	Handle(mux, wire.SystemPing, func(context.Context, wire.Empty) (wire.Pong, error) {
		return wire.Pong{At: 1}, nil
	})
	Handle(mux, wire.MessageSend, func(_ context.Context, req wire.MessageSendRequest) (wire.MessageSendResult, error) {
		return wire.MessageSendResult{EventID: "evt_1", RunID: "run_1", Conversation: req.Conversation, Notice: req.Text}, nil
	})
	HandleStream(mux, wire.TurnWatch, watchTurn)
	Handle(mux, wire.RunsGet, func(ctx context.Context, _ wire.RunsGetRequest) (wire.RunsGetResult, error) {
		select {
		case <-Gone(ctx):
			return wire.RunsGetResult{}, nil
		case <-ctx.Done():
			return wire.RunsGetResult{}, ctx.Err()
		}
	})
	Handle(mux, wire.EventsList, func(context.Context, wire.EventsListRequest) (wire.EventsListResult, error) {
		panic("boom")
	})
	Handle(mux, wire.MemorySearch, func(context.Context, wire.MemorySearchRequest) (wire.MemoryResult, error) {
		return wire.MemoryResult{Index: strings.Repeat("x", wire.MaxFrame)}, nil
	})
	return mux
}

func watchTurn(ctx context.Context, req wire.TurnWatchRequest, send func(wire.TurnNote) error) (wire.TurnResult, error) {
	notes := map[string][]wire.TurnNote{
		"run_short": {
			wire.TurnStatus{State: "running", Note: "asking the model"},
			wire.TurnDelta{Text: "Hel"}, wire.TurnDelta{Text: "lo <you>"},
			wire.TurnApproval{ID: "apr_1", Summary: "write notes.txt (12 bytes)", ExpiresAt: 1700000000000000},
		},
		"run_hangs": {wire.TurnStatus{State: "waiting"}},
	}[req.RunID]
	if notes == nil {
		return wire.TurnResult{}, fault.New(fault.NotFound, "no run %q", req.RunID).WithHint("ombud runs")
	}
	for _, n := range notes {
		if err := send(n); err != nil {
			return wire.TurnResult{}, err
		}
	}
	if req.RunID == "run_hangs" {
		<-ctx.Done()
		return wire.TurnResult{}, ctx.Err()
	}
	return wire.TurnResult{RunID: req.RunID, Outcome: "completed", Reply: "Hello <you>", CostMicroUSD: 42, CostKnown: true}, nil
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// serveConn serves one end of a connection that did not come through a socket.
func serveConn(s *Server, nc net.Conn) *session {
	se := s.newSession(context.Background(), closedListener{})
	c := se.newConn(nc, wire.Peer{UID: 1, PID: 2})
	if err := se.add(c); err != nil {
		panic(err)
	}
	se.run(c)
	return se
}

type closedListener struct{ net.Listener }

func (closedListener) Close() error { return nil }

// client collects whatever the server sends.
type client struct {
	net.Conn
	mu     sync.Mutex
	frames []string
	end    string
}

func (c *client) readAll() {
	for {
		body, err := wire.ReadFrame(c.Conn)
		c.mu.Lock()
		if err != nil {
			c.end = "(closed)\n"
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
				c.end = "(" + err.Error() + ")\n"
			}
			c.mu.Unlock()
			return
		}
		c.frames = append(c.frames, string(body)+"\n")
		c.mu.Unlock()
	}
}

// take returns what came since the last take.
func (c *client) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := strings.Join(c.frames, "") + c.end
	c.frames, c.end = nil, ""
	return out
}

// TestDialogues plays testdata/*.txtar: "send" is a frame, "send-raw" bytes as
// Go string literals, "send-long N" a frame of N bytes, "hangup" the end of the
// client; "recv" is all that the server has sent when it has come to rest.
func TestDialogues(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dialogues: %v", err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			script, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) { play(t, script) })
			if *update {
				if err := os.WriteFile(name, txtar.Format(script), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func play(t *testing.T, script *txtar.Archive) {
	near, far := net.Pipe()
	srv := New(Config{Hide: asItIs, MaxRequests: 3}, newTestMux(), discard())
	se := serveConn(srv, far)
	c := &client{Conn: near}
	go c.readAll()
	for i, step := range script.Files {
		switch verb, arg, _ := strings.Cut(step.Name, " "); verb {
		case "recv":
			synctest.Wait()
			got := c.take()
			if *update {
				script.Files[i].Data = []byte(got)
			} else if got != string(step.Data) {
				t.Errorf("step %d:\n got %swant %s", i+1, got, step.Data)
			}
		case "hangup":
			near.Close()
		default:
			if _, err := near.Write(bytesOf(t, verb, arg, step.Data)); err != nil {
				t.Errorf("step %d: %v", i+1, err)
			}
		}
	}
	near.Close()
	if err := se.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func bytesOf(t *testing.T, verb, arg string, data []byte) []byte {
	switch verb {
	case "send":
		body := bytes.TrimSuffix(data, []byte("\n"))
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	case "send-raw":
		var out []byte
		for line := range strings.Lines(string(data)) {
			s, err := strconv.Unquote(strings.TrimSpace(line))
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			out = append(out, s...)
		}
		return out
	case "send-long":
		n, err := strconv.Atoi(arg)
		if err != nil {
			t.Fatal(err)
		}
		return append(binary.BigEndian.AppendUint32(nil, uint32(n)), make([]byte, n)...)
	}
	t.Fatalf("unknown step %q", verb)
	return nil
}
