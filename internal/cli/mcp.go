package cli

import "github.com/spf13/cobra"

func (a *app) mcpCmd() *cobra.Command {
	return a.noun(spec{
		use:   "mcp",
		short: "the Model Context Protocol: servers that ombud calls, and coding agents that call ombud",
		long: `Both ways of the protocol. ombud mcp add connects a server whose tools ombud then has. ombud
mcp client add lets a coding agent that you run yourself call ombud's tools: it has a token
of its own and what you granted it, which is nothing at first; every call is decided and
recorded like any other, and what needs you waits in your inbox. docs/mcp.md tells more.`,
		example: "ombud mcp client add claude\nombud caps grant mcp:claude memory.read\nombud mcp serve --client claude\nombud mcp list",
	}, append(a.mcpServerCmds(), a.mcpServeCmd(), a.mcpClientCmd())...)
}
