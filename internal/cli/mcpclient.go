package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) mcpClientCmd() *cobra.Command {
	list := a.command(spec{use: "list", short: "coding agents that may connect", example: "ombud mcp client list --json"}, a.mcpClientList)
	return byDefault(a.noun(spec{
		use: "client", short: "coding agents that may connect by themselves",
		long:    "A client has a token of its own and acts as mcp:NAME, with what you granted that and nothing else.",
		example: "ombud mcp client add claude\nombud mcp client rm claude",
	}, list,
		a.command(spec{
			use: "add NAME", short: "let a coding agent connect, and print how it is set up",
			long: `Makes a client and prints its token, which is shown only here, with what to put into the
configuration of the agent. It can do nothing before you grant it something.`,
			example: "ombud mcp client add claude\nombud caps grant mcp:claude memory.read", args: cobra.ExactArgs(1),
		}, a.mcpClientAdd),
		a.command(spec{
			use: "rm NAME", short: "end a client, its sessions, its calls and its grants", example: "ombud mcp client rm claude", args: cobra.ExactArgs(1),
		}, func(ctx context.Context, args []string) error {
			if _, err := a.client.MCPClientRemove(ctx, wire.MCPClientRequest{Name: args[0]}); err != nil {
				return err
			}
			return a.show("mcp-client-removed/1", wire.MCPClientRequest{Name: args[0]}, func(p *page) {
				p.line("removed %s: its token is good no longer, and what it was granted is taken back", p.strong(oneLine(args[0])))
			})
		}),
	), list)
}

func (a *app) mcpClientList(ctx context.Context, _ []string) error {
	res, err := a.client.MCPClientList(ctx)
	if err != nil {
		return err
	}
	return a.show("mcp-clients/1", res, func(p *page) {
		if len(res.Clients) == 0 {
			p.line("no clients")
			p.line("%s", p.faint("ombud mcp client add NAME lets a coding agent connect"))
			return
		}
		t := table{head: []string{"NAME", "ACTS AS", "ADDED", "SEEN"}}
		for _, c := range res.Clients {
			t.add(c.Name, c.Subject, p.clock(c.AddedAt), clockOrDash(p, c.SeenAt))
		}
		p.table(t)
		if res.URL != "" {
			p.line("%s", p.faint("they connect to "+res.URL+", or start: ombud mcp serve --client NAME"))
		}
	})
}

func (a *app) mcpClientAdd(ctx context.Context, args []string) error {
	if _, err := a.ensure(ctx); err != nil {
		return err
	}
	res, err := a.client.MCPClientAdd(ctx, wire.MCPClientRequest{Name: args[0]})
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		program = "ombud"
	}
	local := mcpServer{Command: program, Args: append(a.instanceArgs(), "mcp", "serve", "--client", res.Client.Name)}
	if home := a.getenv(homeVariable); home != "" { // agents hand on little of their environment
		local.Env = map[string]string{homeVariable: home}
	}
	return a.show("mcp-client/1", res, func(p *page) { showMCPClient(p, res, local) })
}

// homeVariable says where the instances are, if not where they usually are.
const homeVariable = "OMBUD_HOME"

// instanceArgs name the instance to a program that is started elsewhere.
func (a *app) instanceArgs() []string {
	if a.instance == "" {
		return nil
	}
	return []string{"--instance", a.instance}
}

// mcpServers is the file most programs know servers by.
type mcpServers struct {
	Servers map[string]mcpServer `json:"mcpServers"`
}

type mcpServer struct {
	Type    string            `json:"type,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
}

func serversFile(s mcpServer) (string, error) {
	raw, err := json.Marshal(mcpServers{map[string]mcpServer{"ombud": s}})
	if err != nil {
		return "", fault.New(fault.Internal, "a configuration: %w", err)
	}
	return string(raw), nil
}

// showMCPClient prints how an agent is set up.
func showMCPClient(p *page, res wire.MCPClientAddResult, local mcpServer) {
	p.line("added %s, which acts as %s; its token, shown only here:", p.strong(res.Client.Name), res.Client.Subject)
	p.line("  %s", res.Token)
	p.line("")
	p.line("%s", p.strong("started by the agent, as you (no token needed)"))
	p.line("  %s", p.faint("any agent, in its mcpServers:"))
	printServers(p, local)
	p.line("  %s", p.faint("Claude Code:"))
	options := ""
	if home, set := local.Env[homeVariable]; set {
		options = " --env " + homeVariable + "=" + oneLine(home)
	}
	p.line("  claude mcp add ombud%s -- %s %s", options, oneLine(local.Command), strings.Join(local.Args, " "))
	p.line("  %s", p.faint("codex, in ~/.codex/config.toml:"))
	p.line("  [mcp_servers.ombud]")
	p.line("  command = %s", encodedText(local.Command))
	p.line("  args = %s", encodedText(local.Args))
	if home, set := local.Env[homeVariable]; set {
		p.line("  env = { %s = %s }", homeVariable, encodedText(home))
	}
	if res.URL != "" {
		p.line("")
		p.line("%s", p.strong("over the network, by the token"))
		p.line("  %s", p.faint("any agent, in its mcpServers:"))
		printServers(p, mcpServer{Type: "http", URL: res.URL, Headers: map[string]string{"Authorization": "Bearer " + res.Token}})
		p.line("  %s", p.faint("Claude Code:"))
		p.line("  claude mcp add --transport http ombud %s --header %s", res.URL, encodedText("Authorization: Bearer "+res.Token))
		p.line("  %s", p.faint("codex, in ~/.codex/config.toml, with the token in the variable OMBUD_MCP_TOKEN:"))
		p.line("  [mcp_servers.ombud]")
		p.line("  url = %s", encodedText(res.URL))
		p.line("  bearer_token_env_var = %s", encodedText("OMBUD_MCP_TOKEN"))
	}
	p.line("")
	p.line("it can do nothing yet; for example: %s", p.strong(fmt.Sprintf("ombud caps grant %s memory.read", res.Client.Subject)))
}

func printServers(p *page, s mcpServer) {
	if text, err := serversFile(s); err == nil {
		p.line("  %s", text)
	}
}

// encodedText is a text or a list of them as JSON and TOML both write it.
func encodedText[T string | []string](v T) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return `""` // neither fails
	}
	return string(raw)
}
