package server

import (
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

var update = flag.Bool("update", false, "write what was received into testdata/*.txtar")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	newest = "2026-07-28"
	before = "2025-11-25"
)

// counter is a door that counts. Each key is one call; "ask" waits for a person until
// it is decided; "wait" waits until it is let go; "gone" is a client that is none.
type counter struct {
	mu      sync.Mutex
	made    map[string]int // by tool
	keys    map[string]wire.JobCallResult
	order   []string // the keys of all calls, as they came
	decided bool
	begun   chan struct{} // told when "wait" began; holds one
	let     chan struct{}
}

func newCounter() *counter {
	return &counter{made: map[string]int{}, keys: map[string]wire.JobCallResult{}, begun: make(chan struct{}, 1), let: make(chan struct{})}
}

// Tools implements Door.
func (c *counter) Tools(context.Context) ([]wire.MCPTool, error) {
	schema := json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}}}`)
	return []wire.MCPTool{
		{Name: "wait", Description: "waits", Input: schema, Destructive: true},
		{Name: "test.echo", Description: "says it again", Input: schema, ReadOnly: true, Repeatable: true},
		{Name: "ask", Description: "asks a person", Input: schema},
		{Name: "a name that no client takes", Input: schema},
	}, nil
}

// Call implements Door.
func (c *counter) Call(ctx context.Context, x Call) (out wire.JobCallResult, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order = append(c.order, x.Key)
	if had, there := c.keys[x.Key]; there && had.Class != fault.Waiting {
		return had, nil
	}
	out = wire.JobCallResult{RunID: "run_1", Status: "ok", Tool: x.Tool, Text: string(x.Input), Label: "from own, for operator"}
	switch x.Tool {
	case "test_echo":
	case "ask":
		if !c.decided {
			out.Status, out.Class, out.Approval, out.Text = "parked", fault.Waiting, "apr_1", "not done"
			c.keys[x.Key] = out
			c.mu.Unlock()
			select {
			case <-time.After(x.Wait):
			case <-ctx.Done():
			}
			c.mu.Lock()
			return out, ctx.Err()
		}
	case "wait":
		c.begun <- struct{}{}
		c.mu.Unlock()
		select {
		case <-c.let:
		case <-ctx.Done():
		}
		c.mu.Lock()
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
	case "gone":
		return out, fault.New(fault.Denied, "this client is gone")
	default:
		out.Status, out.Class, out.Text = "refused", fault.NotFound, "no tool "+x.Tool
	}
	c.made[x.Tool]++
	c.keys[x.Key] = out
	return out, nil
}

func (c *counter) times(tool string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made[tool]
}

func (c *counter) decide() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.decided = true
}

// gate lets in who has a token of its table.
type gate struct {
	mu    sync.Mutex
	known map[string]Guest // by token
}

// Enter implements Gate.
func (g *gate) Enter(_ context.Context, token string) (Guest, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if guest, there := g.known[token]; there {
		return guest, nil
	}
	return Guest{}, fault.New(fault.Denied, "this token is nobody's")
}

func (g *gate) revoke(token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.known, token)
}

// site is a handler on a port of its own.
type site struct {
	t    testing.TB
	gate *gate
	http *HTTP
	url  string
	door *counter // of the client a
}

// open serves two clients: a with the token ta, b with tb.
func open(t testing.TB, c HTTPConfig) *site {
	t.Helper()
	if c.Patience == 0 {
		c.Patience, c.Tell = time.Second, 10*time.Millisecond
	}
	c.Version = "v0"
	s := &site{t: t, door: newCounter()}
	s.gate = &gate{known: map[string]Guest{"ta": {"a", s.door}, "tb": {"b", newCounter()}}}
	s.http = NewHTTP(s.gate, c)
	server := httptest.NewServer(s.http)
	s.url = server.URL
	t.Cleanup(func() {
		if err := s.http.Close(context.Background()); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return s
}

// bearer adds a token to every request.
type bearer struct{ token string }

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// connect is the official client, in a revision.
func (s *site) connect(token, revision string, o *mcp.ClientOptions) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o)
	return client.Connect(s.t.Context(), &mcp.StreamableClientTransport{
		Endpoint: s.url + Path, HTTPClient: &http.Client{Transport: bearer{token}}, MaxRetries: -1,
	}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
}

func (s *site) must(token, revision string, o *mcp.ClientOptions) *mcp.ClientSession {
	s.t.Helper()
	c, err := s.connect(token, revision, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func call(t testing.TB, c *mcp.ClientSession, tool, text string) *mcp.CallToolResult {
	t.Helper()
	res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]string{"text": text}})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return res
}

func textOf(r *mcp.CallToolResult) string {
	if len(r.Content) != 1 {
		return ""
	}
	text, _ := r.Content[0].(*mcp.TextContent)
	return text.Text
}
