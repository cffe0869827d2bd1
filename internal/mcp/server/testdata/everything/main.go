// Command everything serves what the conformance suite of the protocol wants to find, by
// ombud's own listener and handler: its checks, its sessions, its bounds, its way of
// telling the two revisions apart. The tools, prompts and resources are those of the official module's
// conformance/everything-server, which scripts/test-mcp.sh lays beside this file.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ombud-run/ombud/internal/httpd"
	"github.com/ombud-run/ombud/internal/mcp/server"
	"github.com/ombud-run/ombud/internal/redact"
)

// everybody lets everybody in: the suite sends no token.
type everybody struct{}

func (everybody) Enter(context.Context, string) (server.Guest, error) {
	return server.Guest{Name: "suite"}, nil
}

// run serves until it is ended; the first line it writes is its address.
func run() error {
	s := mcp.NewServer(&mcp.Implementation{Name: "ombud-everything", Version: "1.0.0"}, &mcp.ServerOptions{
		CompletionHandler: completionHandler, SubscribeHandler: subscribeHandler, UnsubscribeHandler: unsubscribeHandler,
	})
	registerTools(s)
	registerResources(s)
	registerPrompts(s)
	go watchedResourceUpdater(context.Background(), s)
	h := server.NewHTTP(everybody{}, server.HTTPConfig{Make: func(server.Guest) *mcp.Server { return s }})
	listener := httpd.New(httpd.Config{Address: netip.MustParseAddrPort("127.0.0.1:0")}, httpd.Deps{Hide: redact.New()})
	listener.Mount(server.Path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer anybody")
		h.ServeHTTP(w, r)
	}))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := listener.Start(ctx); err != nil {
		return err
	}
	fmt.Println(listener.State().URL() + server.Path)
	<-ctx.Done()
	return errors.Join(h.Close(context.Background()), listener.Stop(context.Background()))
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
