package server

import (
	"context"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ombud-run/ombud/internal/httpd"
	"github.com/ombud-run/ombud/internal/redact"
)

// Through ombud's listener, which gives every answer a time and hides secrets in it: a
// call may take longer than that time, and what is told of it comes while it waits.
func TestAListenerLetsCallsTakeTheirTime(t *testing.T) {
	t.Parallel()
	hide := redact.New()
	hide.Register("key", []byte("a-secret-of-some-length"))
	const write = 100 * time.Millisecond
	door := newCounter()
	h := NewHTTP(&gate{known: map[string]Guest{"ta": {"a", door}}}, HTTPConfig{Config: Config{Tell: 10 * time.Millisecond}, Read: write})
	l := httpd.New(httpd.Config{Address: netip.MustParseAddrPort("127.0.0.1:0"), Write: write, Read: write}, httpd.Deps{Hide: hide})
	l.Mount(Path, h)
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := l.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for _, revision := range []string{newest, before} {
		told := make(chan string, 1000)
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { told <- r.Params.Message },
		})
		c, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
			Endpoint: l.State().URL() + Path, HTTPClient: &http.Client{Transport: bearer{"ta"}}, MaxRetries: -1,
		}, &mcp.ClientSessionOptions{ProtocolVersion: revision})
		if err != nil {
			t.Fatal(err)
		}
		p := &mcp.CallToolParams{Name: "wait", Arguments: map[string]string{"text": "a-secret-of-some-length"}}
		p.SetProgressToken("p")
		done := make(chan string, 1)
		go func() {
			res, err := c.CallTool(t.Context(), p)
			if err != nil {
				t.Error(revision, err)
				done <- ""
				return
			}
			done <- textOf(res)
		}()
		<-door.begun
		long := time.After(3 * write)
		for waited := false; !waited; {
			select {
			case <-told: // while it waits
			case <-long:
				waited = true
			}
		}
		if text := <-told; text != "working" {
			t.Errorf("%s: told %q", revision, text)
		}
		door.let <- struct{}{}
		if text := <-done; text != `{"text":"[secret:key]"}` {
			t.Errorf("%s: %q", revision, text)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
