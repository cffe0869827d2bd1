package cli

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/mcp/server"
	"github.com/ombud-run/ombud/internal/wire"
)

// mcpServing says how ombud mcp serve reaches the daemon.
type mcpServing struct{ socket, tokenFile, client string }

func (a *app) mcpServeCmd() *cobra.Command {
	var f mcpServing
	c := a.command(spec{
		use:   "serve --client NAME | --token-file FILE [--socket PATH]",
		short: "speak the protocol over standard input and output",
		long: `What coding agents start as a server of their own. It offers what the client was granted,
and ends with its standard input or with the program that started it. With --client it is
let in because you are the operator of this machine, and a daemon is started if none runs;
it can do what that client can and nothing more. With --token-file it is let in by that
token, a client's or the one a program was given that ombud itself has started.`,
		example: "ombud mcp serve --client claude\nombud mcp serve --socket /run/ombud/agent.sock --token-file token",
	}, func(ctx context.Context, _ []string) error { return a.mcpServe(ctx, f) })
	c.Flags().StringVar(&f.client, "client", "", "serve the client of this `name`, which ombud mcp client add made")
	c.Flags().StringVar(&f.tokenFile, "token-file", "", "be let in by the token in this `file`")
	c.Flags().StringVar(&f.socket, "socket", "", "the daemon's socket for agents, a `path` (default that of this instance)")
	return c
}

func (a *app) mcpServe(ctx context.Context, f mcpServing) error {
	if (f.client == "") == (f.tokenFile == "") {
		return fault.New(fault.Usage, "either --client or --token-file says who is served").WithHint("ombud mcp client list shows the clients there are")
	}
	if f.client != "" && f.socket != "" {
		return fault.New(fault.Usage, "--socket goes with --token-file: with --client the instance says it")
	}
	if f.socket == "" {
		f.socket = a.where.AgentSocket()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		withParent(ctx, cancel)
	}()
	defer func() { cancel(); <-ended }()
	door, err := a.mcpDoor(ctx, f)
	if err != nil {
		return err
	}
	return server.Serve(ctx, server.New(door, server.Config{Version: thisBuild().Version}), a.stdin, a.stdout)
}

// mcpDoor is the way to the daemon.
func (a *app) mcpDoor(ctx context.Context, f mcpServing) (server.Door, error) {
	agent := wire.NewAgentClient(f.socket)
	if f.client != "" {
		lend := func(ctx context.Context) (string, error) {
			if _, err := a.ensure(ctx); err != nil {
				return "", err
			}
			res, err := a.client.MCPClientLend(ctx, wire.MCPClientRequest{Name: f.client})
			return res.Token, err
		}
		token, err := lend(ctx)
		return server.Remote(agent, token, lend), err
	}
	const most = 4096
	raw, err := readFile(f.tokenFile, most)
	if err != nil {
		return nil, err
	}
	token := strings.TrimSpace(string(raw))
	if token == "" || len(raw) > most {
		return nil, fault.New(fault.Usage, "%s holds no token", f.tokenFile)
	}
	return server.Remote(agent, token, nil), nil
}

// parentStep is how often it is looked whether the parent is there.
const parentStep = 500 * time.Millisecond

// withParent calls end when whoever started this process has ended. What it left behind
// would hold standard input open in its children. The system's own signal for this
// (PR_SET_PDEATHSIG) is about the thread that started us, which may end long before.
func withParent(ctx context.Context, end func()) {
	first := os.Getppid()
	tick := time.NewTicker(parentStep)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if os.Getppid() != first {
			end()
			return
		}
	}
}
