package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ombud-run/ombud/internal/wire"
)

// either runs a test over HTTP and over streams, in both revisions.
func either(t *testing.T, f func(t *testing.T, door *counter, connect func(*mcp.ClientOptions) *mcp.ClientSession)) {
	t.Helper()
	for _, revision := range []string{newest, before, "2025-06-18"} {
		t.Run("http "+revision, func(t *testing.T) {
			t.Parallel()
			s := open(t, HTTPConfig{})
			f(t, s.door, func(o *mcp.ClientOptions) *mcp.ClientSession { return s.must("ta", revision, o) })
		})
		t.Run("streams "+revision, func(t *testing.T) {
			t.Parallel()
			door := newCounter()
			f(t, door, func(o *mcp.ClientOptions) *mcp.ClientSession {
				in, toIn := io.Pipe()
				fromOut, out := io.Pipe()
				done := make(chan error, 1)
				go func() {
					done <- Serve(context.Background(), New(door, Config{Patience: time.Second, Tell: 10 * time.Millisecond}), in, out)
				}()
				c, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o).
					Connect(t.Context(), &mcp.IOTransport{Reader: fromOut, Writer: toIn}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					_ = c.Close()
					_ = toIn.Close()
					if err := <-done; err != nil {
						t.Error("served:", err)
					}
				})
				return c
			})
		})
	}
}

func TestTheOfficialClientSeesToolsAndCallsThem(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, door *counter, connect func(*mcp.ClientOptions) *mcp.ClientSession) {
		c := connect(nil)
		defer c.Close()
		list, err := c.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range list.Tools {
			got = append(got, fmt.Sprintf("%s %v %v %v", x.Name, x.Annotations.ReadOnlyHint, *x.Annotations.DestructiveHint, x.Annotations.IdempotentHint))
		}
		if s := strings.Join(got, ", "); s != "ask false false false, test_echo true false true, wait false true false" {
			t.Errorf("tools: %s", s)
		}
		res := call(t, c, "test_echo", "hello")
		if textOf(res) != `{"text":"hello"}` || res.IsError {
			t.Errorf("%+v", res)
		}
		raw, err := json.Marshal(res.StructuredContent)
		if err != nil {
			t.Fatal(err)
		}
		var rec record
		if err := json.Unmarshal(raw, &rec); err != nil || rec.Status != "ok" || rec.Run != "run_1" || rec.Tool != "test_echo" || rec.Text != textOf(res) {
			t.Errorf("%s, %v", raw, err)
		}
		if res := call(t, c, "nothing", ""); !res.IsError || textOf(res) != "no tool nothing" {
			t.Errorf("%+v", res)
		}
		if _, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "gone"}); err == nil || !strings.Contains(err.Error(), "this client is gone") {
			t.Errorf("a client that is gone: %v", err)
		}
		if _, err := c.ListTools(t.Context(), &mcp.ListToolsParams{Cursor: "x"}); err == nil {
			t.Error("a cursor of nobody is taken")
		}
		if n := door.times("test_echo"); n != 1 {
			t.Errorf("%d calls", n)
		}
	})
}

func TestACallThatWaitsTellsOfItselfAndIsAnswered(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, door *counter, connect func(*mcp.ClientOptions) *mcp.ClientSession) {
		told := make(chan string, 1000)
		c := connect(&mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			told <- r.Params.Message
		}})
		defer c.Close()
		p := &mcp.CallToolParams{Name: "ask"}
		p.SetProgressToken("p1")
		done := make(chan *mcp.CallToolResult, 1)
		go func() {
			res, err := c.CallTool(t.Context(), p)
			if err != nil {
				t.Error(err)
			}
			done <- res
		}()
		for text := range told {
			if text == "waits for the operator's approval apr_1" {
				break
			}
		}
		res := <-done // patience is over before anybody decides
		if res == nil || res.IsError || !strings.Contains(textOf(res), "it waits for the operator's approval apr_1 (ombud approve apr_1)") {
			t.Fatalf("%+v", res)
		}
		if door.times("ask") != 0 {
			t.Error("it was made")
		}
		door.decide()
		if res := call(t, c, "ask", ""); res.IsError || door.times("ask") != 1 {
			t.Errorf("decided: %+v", res)
		}
	})
}

func TestFiftyClientsOfBothRevisionsAtOnce(t *testing.T) {
	t.Parallel()
	s := open(t, HTTPConfig{Sessions: 2})
	const clients, calls = 50, 4
	for i := range clients {
		s.gate.known[fmt.Sprint("t", i)] = Guest{fmt.Sprint("c", i), newCounter()}
	}
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			revision := newest
			if i%2 == 0 {
				revision = before
			}
			c, err := s.connect(fmt.Sprint("t", i), revision, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for k := range calls {
				want := fmt.Sprintf(`{"text":"%d of %d"}`, k, i)
				res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "test_echo", Arguments: map[string]string{"text": fmt.Sprintf("%d of %d", k, i)}})
				if err != nil || textOf(res) != want {
					t.Errorf("%v, %v", res, err)
				}
			}
		})
	}
	all.Wait()
	for i := range clients {
		door, _ := s.gate.known[fmt.Sprint("t", i)].Door.(*counter)
		if n := door.times("test_echo"); n != calls {
			t.Errorf("client %d: %d calls", i, n)
		}
	}
}

func TestDoorsAreOne(t *testing.T) {
	t.Parallel()
	first, second := newCounter(), newCounter()
	d := Doors(only{first, "ask"}, only{second, "test.echo"}, only{newCounter(), "ask"})
	list, err := d.Tools(t.Context())
	if err != nil || len(list) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	for _, name := range []string{"test_echo", "wait"} {
		if _, err := d.Call(t.Context(), Call{Tool: name, Key: name + "1"}); name == "test_echo" && err != nil {
			t.Error(err)
		}
		if name == "test_echo" {
			first.let = closed()
		}
	}
	if second.times("test_echo") != 1 || first.times("wait") != 1 {
		t.Error("a call went through another door")
	}
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// only is a door that offers one tool.
type only struct {
	*counter
	name string
}

// Tools implements Door.
func (o only) Tools(context.Context) ([]wire.MCPTool, error) {
	return []wire.MCPTool{{Name: o.name}}, nil
}
