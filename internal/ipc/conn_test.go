package ipc

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func mustFrame(t testing.TB, body string) []byte {
	t.Helper()
	frame, err := wire.EncodeFrame(json.RawMessage(body))
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

func TestAClientThatDoesNotReadHoldsUpOnlyItselfAndIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mux := newTestMux()
		var ended error
		HandleStream(mux, wire.EventsTail, func(_ context.Context, _ wire.EventsTailRequest, send func(wire.Event) error) (wire.EventsTailResult, error) {
			for ended == nil {
				ended = send(wire.Event{Kind: strings.Repeat("x", 100)})
			}
			return wire.EventsTailResult{}, ended
		})
		srv := New(Config{Hide: asItIs}, mux, discard())
		near, far := net.Pipe()
		began := time.Now()
		se := serveConn(srv, far)
		if _, err := near.Write(mustFrame(t, `{"jsonrpc":"2.0","id":1,"method":"events.tail"}`)); err != nil {
			t.Fatal(err)
		}
		for range 3 { // it reads a little, then never again
			if _, err := wire.ReadFrame(near); err != nil {
				t.Fatal(err)
			}
		}
		// Another connection of the same server is served meanwhile.
		near2, far2 := net.Pipe()
		se.run(se.newConn(far2, wire.Peer{}))
		if _, err := near2.Write(mustFrame(t, `{"jsonrpc":"2.0","id":1,"method":"system.ping"}`)); err != nil {
			t.Fatal(err)
		}
		if _, err := wire.ReadFrame(near2); err != nil || time.Since(began) != 0 {
			t.Errorf("the other connection: %v after %v", err, time.Since(began))
		}
		near2.Close()
		se.wg.Wait()
		if !fault.Is(ended, fault.Unavailable) || time.Since(began) != 30*time.Second {
			t.Errorf("dropped after %v with %v", time.Since(began), ended)
		}
	})
}

func TestAClientThatReadsSlowlyButSteadilyGetsAllOfALargeAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		se := serveConn(New(Config{Hide: asItIs}, newTestMux(), discard()), far)
		text := strings.Repeat("y", 1<<20)
		if _, err := near.Write(mustFrame(t, `{"jsonrpc":"2.0","id":1,"method":"message.send","params":{"text":"`+text+`"}}`)); err != nil {
			t.Fatal(err)
		}
		body, err := wire.ReadFrame(slow{near})
		if err != nil || !strings.Contains(string(body), text) {
			t.Errorf("%d bytes, %v", len(body), err)
		}
		near.Close()
		se.wg.Wait()
	})
}

// slow takes a few kilobytes a second: a megabyte is far beyond one timeout.
type slow struct{ net.Conn }

func (s slow) Read(p []byte) (int, error) {
	<-time.After(time.Second)
	return s.Conn.Read(p[:min(len(p), 8<<10)])
}

func TestCancelAsARequestTellsWhetherItFoundOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		se := serveConn(New(Config{Hide: asItIs}, newTestMux(), discard()), far)
		c := &client{Conn: near}
		go c.readAll()
		for _, req := range []string{
			`{"jsonrpc":"2.0","id":"w","method":"turn.watch","params":{"run_id":"run_hangs"}}`,
			`{"jsonrpc":"2.0","id":2,"method":"request.cancel","params":{"id":"w"}}`,
		} {
			if _, err := near.Write(mustFrame(t, req)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		got := c.take() // the two answers come in any order
		for _, want := range []string{`"id":2,"result":{"cancelled":true}`, `"id":"w","error":{"code":-32010`} {
			if !strings.Contains(got, want) {
				t.Errorf("no %s in %s", want, got)
			}
		}
		near.Close()
		se.wg.Wait()
	})
}

func TestHandlersKnowTheirPeer(t *testing.T) {
	t.Parallel()
	mux := NewMux()
	var got wire.Peer
	Handle(mux, wire.SystemPing, func(ctx context.Context, _ wire.Empty) (wire.Pong, error) {
		got = PeerOf(ctx)
		return wire.Pong{}, nil
	})
	near, far := net.Pipe()
	se := serveConn(New(Config{Hide: asItIs}, mux, discard()), far)
	if _, err := near.Write(mustFrame(t, `{"jsonrpc":"2.0","id":1,"method":"system.ping"}`)); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.ReadFrame(near); err != nil {
		t.Fatal(err)
	}
	near.Close()
	se.wg.Wait()
	if got != (wire.Peer{UID: 1, PID: 2}) || PeerOf(t.Context()) != (wire.Peer{}) || Gone(t.Context()) != nil {
		t.Errorf("peer %+v", got)
	}
}

// FuzzConn sends whatever bytes to a server: it must not panic, every frame it
// sends is JSON, and it ends when the client does.
func FuzzConn(f *testing.F) {
	f.Add([]byte("hello"))
	f.Add(mustFrame(f, `{"jsonrpc":"2.0","id":1,"method":"system.ping"}`))
	f.Add(append(mustFrame(f, `{"jsonrpc":"2.0","id":1,"method":"turn.watch","params":{"run_id":"run_hangs"}}`),
		mustFrame(f, `{"jsonrpc":"2.0","method":"request.cancel","params":{"id":1}}`)...))
	f.Add(append(mustFrame(f, `[]`), mustFrame(f, `{"jsonrpc":"2.0","id":"\ud800","method":"events.list"}`)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		near, far := net.Pipe()
		se := serveConn(New(Config{Hide: asItIs}, newTestMux(), discard()), far)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				body, err := wire.ReadFrame(near)
				if err != nil {
					return
				}
				if !json.Valid(body) {
					t.Errorf("sent %q", body)
				}
			}
		}()
		_, _ = near.Write(in) // the server may hang up on what is no frame
		near.Close()
		se.wg.Wait()
		<-done
	})
}
