//go:build unix

package cli

import (
	"context"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// cannedMCPClients answers about coding agents that connect by themselves.
func cannedMCPClients(m *ipc.Mux) {
	claude := wire.MCPClient{Name: "claude", Subject: "mcp:claude", AddedAt: noon, SeenAt: noon + 60_000_000}
	ipc.Handle(m, wire.MCPClientAdd, func(_ context.Context, req wire.MCPClientRequest) (wire.MCPClientAddResult, error) {
		if req.Name == "taken" {
			return wire.MCPClientAddResult{}, fault.New(fault.Conflict, "there is a client taken").WithHint("ombud mcp client rm taken first, to give it a new token")
		}
		return wire.MCPClientAddResult{
			Client: wire.MCPClient{Name: req.Name, Subject: "mcp:" + req.Name, AddedAt: noon}, Token: req.Name + ".c0ffee", URL: "http://127.0.0.1:7331/mcp",
		}, nil
	})
	ipc.Handle(m, wire.MCPClientList, answer[wire.Empty](wire.MCPClientListResult{Clients: []wire.MCPClient{claude}, URL: "http://127.0.0.1:7331/mcp"}))
	ipc.Handle(m, wire.MCPClientRemove, answer[wire.MCPClientRequest](wire.Empty{}))
	ipc.Handle(m, wire.MCPClientLend, answer[wire.MCPClientRequest](wire.MCPClientLendResult{Token: "claude.c0ffee"}))
}
