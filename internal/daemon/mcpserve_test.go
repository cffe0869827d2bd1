//go:build unix

package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/mcp/server"
	"github.com/ombud-run/ombud/internal/wire"
)

// bearing sends a token with every request.
type bearing struct{ token string }

// RoundTrip implements http.RoundTripper.
func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

func speak(t *testing.T, addr, token, revision string) *mcp.ClientSession {
	t.Helper()
	c, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: "http://" + addr + server.Path, HTTPClient: &http.Client{Transport: bearing{token}}, MaxRetries: -1,
	}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // its session may be gone
	return c
}

func said(t *testing.T, c *mcp.ClientSession, tool, input string) (text string, failed bool) {
	t.Helper()
	res, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(input)})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	for _, part := range res.Content {
		if x, is := part.(*mcp.TextContent); is {
			text += x.Text
		}
	}
	return text, res.IsError
}

func grantTo(t *testing.T, c *wire.Client, scope, effect string) {
	t.Helper()
	if _, err := c.CapsGrant(t.Context(), wire.CapsGrantRequest{Subject: "mcp:claude", Scope: scope, Effect: effect}); err != nil {
		t.Fatal(err)
	}
}

// approveNext approves the next question there is.
func approveNext(ctx context.Context, c *wire.Client) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		list, err := c.ApprovalsList(ctx, wire.ApprovalsListRequest{})
		if err != nil {
			return err
		}
		for _, a := range list.Approvals {
			_, err := c.ApprovalsResolve(ctx, wire.ApprovalsResolveRequest{ID: a.ID, Decision: wire.Approve})
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestACodingAgentUsesWhatItWasGranted(t *testing.T) {
	t.Parallel()
	h := listen(t)
	ctx := t.Context()
	op := wire.NewClient(h.d.o.Instance.Socket())
	if _, err := op.CapsGrant(ctx, wire.CapsGrantRequest{Subject: "mcp:claude", Scope: "time.read"}); !fault.Is(err, fault.NotFound) {
		t.Errorf("a grant for nobody: %v", err)
	}
	added, err := op.MCPClientAdd(ctx, wire.MCPClientRequest{Name: "claude"})
	if err != nil || added.URL != "http://"+h.addr+server.Path {
		t.Fatalf("%+v, %v", added, err)
	}
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		c := speak(t, h.addr, added.Token, revision)
		if text, failed := said(t, c, "time_now", "{}"); !failed || !strings.Contains(text, "ombud caps grant mcp:claude 'time.read'") {
			t.Errorf("nothing was granted: %s", text)
		}
		grantTo(t, op, "time.read", "")
		grantTo(t, op, "memory.write", "ask")
		list, err := c.ListTools(ctx, nil)
		if err != nil || len(list.Tools) < 2 {
			t.Errorf("%+v, %v", list, err)
		}
		for _, x := range list.Tools {
			if strings.HasPrefix(x.Name, "fs_") || strings.HasPrefix(x.Name, "shell") || strings.HasPrefix(x.Name, "kit_") {
				t.Errorf("%s is offered", x.Name)
			}
		}
		if text, failed := said(t, c, "time_now", "{}"); failed {
			t.Error(text)
		}
		done := make(chan error, 1)
		go func() { done <- approveNext(ctx, op) }()
		if text, failed := said(t, c, "memory_remember", `{"text":"asked for in `+revision+`"}`); failed || !strings.Contains(text, "Remembered") {
			t.Errorf("asked: %s", text)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if text, failed := said(t, c, "fs_read", `{"path":"x"}`); !failed || !strings.Contains(text, "No client of this kind can be given") {
			t.Errorf("a file: %s", text)
		}
		held, err := op.CapsList(ctx, wire.CapsListRequest{Subject: "mcp:claude"})
		if err != nil || len(held.Grants) != 2 {
			t.Fatalf("%+v, %v", held, err)
		}
		for _, g := range held.Grants {
			if _, err := op.CapsRevoke(ctx, wire.CapsRevokeRequest{ID: g.ID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	grantTo(t, op, "time.read", "")
	old := speak(t, h.addr, added.Token, "2025-11-25")
	if _, err := op.MCPClientRemove(ctx, wire.MCPClientRequest{Name: "claude"}); err != nil {
		t.Fatal(err)
	}
	if _, err := old.CallTool(ctx, &mcp.CallToolParams{Name: "time_now"}); err == nil {
		t.Error("a client that was removed calls on")
	}
	if status, body := h.do("POST", server.Path, "{}", "Authorization", "Bearer "+added.Token); status != http.StatusUnauthorized || strings.Contains(body, added.Token) {
		t.Errorf("its token: %d %s", status, body)
	}
	again, err := op.MCPClientAdd(ctx, wire.MCPClientRequest{Name: "claude"})
	if err != nil || again.Token == added.Token {
		t.Fatal(err)
	}
	if list, err := speak(t, h.addr, again.Token, "2025-11-25").ListTools(ctx, nil); err != nil || len(list.Tools) != 0 {
		t.Errorf("made again, it has %d tools, %v", len(list.Tools), err)
	}
	for _, head := range []string{"Origin", "Host"} {
		if status, _ := h.do("POST", server.Path, "{}", "Authorization", "Bearer "+again.Token, head, "http://evil.example"); head == "Origin" && status != http.StatusForbidden {
			t.Errorf("from a page of another site: %d", status)
		}
	}
	if status, body := h.do("GET", server.MetaPath+server.Path, ""); status != 200 || !strings.Contains(body, `"resource":"http://`+h.addr+server.Path+`"`) {
		t.Errorf("%d %s", status, body)
	}
}

// A daemon that was started anew knows no session, which clients are told by 404; what
// came by agent.sock goes on under a new token.
func TestSessionsEndWithTheDaemonAndClientsDoNot(t *testing.T) {
	t.Parallel()
	o := options(t, "listen: {address: '127.0.0.1:0'}\n")
	ctx := t.Context()
	run := func(do func(d *Daemon, op *wire.Client)) {
		d, err := open(ctx, o, turn{})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.start(ctx); err != nil {
			t.Fatal(err)
		}
		do(d, wire.NewClient(o.Instance.Socket()))
		if err := d.close(); err != nil {
			t.Fatal(err)
		}
	}
	post := func(d *Daemon, token, session, body string) (int, string) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.listener.State().Address+server.Path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{
			"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Mcp-Session-Id": {session},
		}
		if session == "" {
			r.Header.Del("Mcp-Session-Id")
		}
		res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if _, err := io.ReadAll(res.Body); err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, res.Header.Get("Mcp-Session-Id")
	}
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	const list = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	var token, session string
	var door server.Door
	run(func(d *Daemon, op *wire.Client) {
		added, err := op.MCPClientAdd(ctx, wire.MCPClientRequest{Name: "claude"})
		if err != nil {
			t.Fatal(err)
		}
		grantTo(t, op, "time.read", "")
		token = added.Token
		if _, session = post(d, token, "", hello); session == "" {
			t.Fatal("no session")
		}
		if status, _ := post(d, token, session, list); status != 200 {
			t.Errorf("in the session: %d", status)
		}
		lend := func(ctx context.Context) (string, error) {
			res, err := op.MCPClientLend(ctx, wire.MCPClientRequest{Name: "claude"})
			return res.Token, err
		}
		lent, err := lend(ctx)
		if err != nil {
			t.Fatal(err)
		}
		door = server.Remote(wire.NewAgentClient(o.Instance.AgentSocket()), lent, lend)
		if res, err := door.Call(ctx, server.Call{Tool: "time_now", Key: "k1"}); err != nil || res.Status != "ok" {
			t.Errorf("%+v, %v", res, err)
		}
	})
	if _, err := door.Tools(ctx); !fault.Is(err, fault.Unavailable) {
		t.Errorf("while no daemon runs: %v", err)
	}
	run(func(d *Daemon, _ *wire.Client) {
		if status, _ := post(d, token, session, list); status != http.StatusNotFound {
			t.Errorf("the session of the daemon before: %d", status)
		}
		if status, fresh := post(d, token, "", hello); status != 200 || fresh == session {
			t.Errorf("a new one: %d %s", status, fresh)
		}
		again, err := door.Call(ctx, server.Call{Tool: "time_now", Key: "k1"})
		if err != nil || again.Status != "ok" || !again.Duplicate {
			t.Errorf("the same call after the start: %+v, %v", again, err)
		}
	})
}

// A program that ombud runs speaks the protocol with the token of its job: it sees what its
// parent may do, what asks its parent asks, and its token ends with it.
func TestAJobIsServedByTheProtocol(t *testing.T) {
	t.Parallel()
	o := options(t, "models:\n  main: scripted/"+script(t)+"\n")
	got := make(chan string, 1)
	var later server.Door
	within(t, o, func(d *Daemon) {
		addHost(t, d, func(ctx context.Context, token string, a *wire.AgentClient) string {
			door := server.Remote(a, token, nil)
			later = door
			in, toIn := io.Pipe()
			fromOut, out := io.Pipe()
			done := make(chan error, 1)
			go func() { done <- server.Serve(ctx, server.New(door, server.Config{}), in, out) }()
			var said []string
			c, err := mcp.NewClient(&mcp.Implementation{Name: "codex-mcp-client", Version: "1"}, nil).
				Connect(ctx, &mcp.IOTransport{Reader: fromOut, Writer: toIn}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-06-18"})
			if err != nil {
				got <- err.Error()
				return ""
			}
			list, err := c.ListTools(ctx, nil)
			said = append(said, strconv.FormatBool(err == nil && len(list.Tools) > 3))
			approved := make(chan error, 1)
			for _, call := range []*mcp.CallToolParams{
				{Name: "time_now"}, {Name: "fs_write", Arguments: json.RawMessage(`{"path":"a.txt","content":"x"}`)}, {Name: "email_send"},
			} {
				if call.Name == "fs_write" {
					go func() { approved <- approveNext(ctx, wire.NewClient(o.Instance.Socket())) }()
				}
				res, err := c.CallTool(ctx, call)
				said = append(said, fmt.Sprintf("%s %v %v", call.Name, err == nil && !res.IsError, err))
			}
			said = append(said, fmt.Sprint(<-approved))
			_ = c.Close()
			_ = toIn.Close()
			said = append(said, fmt.Sprint(<-done))
			got <- strings.Join(said, ", ")
			return "over"
		})
	})
	ask(t, wire.NewClient(o.Instance.Socket()), "go")
	if s := <-got; s != "true, time_now true <nil>, fs_write true <nil>, email_send false <nil>, <nil>, <nil>" {
		t.Error(s)
	}
	if _, err := later.Tools(t.Context()); !fault.Is(err, fault.Denied) {
		t.Errorf("after its end: %v", err)
	}
}
