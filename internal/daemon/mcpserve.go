package daemon

import (
	"context"
	"strings"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/grant"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/mcp/guests"
	"github.com/ombud-run/ombud/internal/mcp/server"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/wire"
)

// openMCPClients constructs what lets coding agents in that connect by themselves.
func (d *Daemon) openMCPClients(kinds *run.Kinds) error {
	usual, err := policy.NewAutonomy(d.grants.Usual(), nil)
	if err != nil {
		return err
	}
	d.mcpClients = guests.New(guests.Deps{
		DB: d.db, Vault: d.vault, Log: d.events, Audit: d.audit, Runs: d.runs, Act: d.act, Tools: d.tools, Approvals: d.approvals, Budget: d.budget,
		Granted: d.grants, Usual: usual, Hide: d.hide, Logger: d.log,
	})
	d.mcpHTTP = server.NewHTTP(mcpGate{d.mcpClients}, server.HTTPConfig{
		Config: server.Config{Version: d.o.Version, Logger: d.log}, BehindProxy: d.o.Config.Config.Listen.BehindProxy,
	})
	return kinds.Add(d.mcpClients.Kind())
}

// mountMCP puts the protocol on the network listener.
func (d *Daemon) mountMCP() {
	d.listener.Mount(server.Path, d.mcpHTTP)
	d.listener.Mount(server.MetaPath, d.mcpHTTP)
}

// mcpGate lets clients in over the network.
type mcpGate struct{ clients *guests.Clients }

// Enter implements server.Gate.
func (g mcpGate) Enter(ctx context.Context, token string) (server.Guest, error) {
	name, err := g.clients.Verify(ctx, token)
	return server.Guest{Name: name, Door: mcpDoor{g.clients, name}}, err
}

// mcpDoor is what one client gets to see.
type mcpDoor struct {
	clients *guests.Clients
	name    string
}

// Tools implements server.Door.
func (m mcpDoor) Tools(ctx context.Context) ([]wire.MCPTool, error) {
	return m.clients.Offers(ctx, m.name)
}

// Call implements server.Door.
func (m mcpDoor) Call(ctx context.Context, c server.Call) (wire.JobCallResult, error) {
	return m.clients.Call(ctx, guests.Request{Client: m.name, Tool: c.Tool, Input: c.Input, Key: c.Key, Wait: c.Wait})
}

// mcpAgentMethods are what a client calls through agent.sock, as ombud mcp serve does.
func (d *Daemon) mcpAgentMethods(m *ipc.Mux) {
	ipc.Handle(m, wire.MCPTools, func(ctx context.Context, req wire.MCPTokenRequest) (out wire.MCPToolsResult, err error) {
		name, err := d.mcpClients.Verify(ctx, req.Token)
		if err != nil {
			return out, err
		}
		out.Subject = guests.Prefix + name
		out.Tools, err = d.mcpClients.Offers(ctx, name)
		return out, err
	})
	ipc.Handle(m, wire.MCPCall, func(ctx context.Context, req wire.MCPCallRequest) (out wire.JobCallResult, err error) {
		name, err := d.mcpClients.Verify(ctx, req.Token)
		if err != nil {
			return out, err
		}
		ctx, done := whileConnected(ctx)
		defer done()
		return d.mcpClients.Call(ctx, guests.Request{Client: name, Tool: req.Tool, Input: req.Input, Key: req.Key, Wait: seconds(req.WaitS)})
	})
}

// mcpOperatorMethods are the operator's methods about clients.
func (d *Daemon) mcpOperatorMethods(m *ipc.Mux) {
	ipc.Handle(m, wire.MCPClientAdd, func(ctx context.Context, req wire.MCPClientRequest) (out wire.MCPClientAddResult, err error) {
		c, token, err := d.mcpClients.Add(ctx, req.Name, byOperator)
		if err != nil {
			return out, err
		}
		return wire.MCPClientAddResult{Client: wireMCPClient(c), Token: token, URL: d.mcpURL()}, nil
	})
	ipc.Handle(m, wire.MCPClientList, func(ctx context.Context, _ wire.Empty) (wire.MCPClientListResult, error) {
		list, err := d.mcpClients.List(ctx)
		out := wire.MCPClientListResult{Clients: []wire.MCPClient{}, URL: d.mcpURL()}
		for _, c := range list {
			out.Clients = append(out.Clients, wireMCPClient(c))
		}
		return out, err
	})
	ipc.Handle(m, wire.MCPClientRemove, func(ctx context.Context, req wire.MCPClientRequest) (wire.Empty, error) {
		return wire.Empty{}, d.removeMCPClient(ctx, req.Name)
	})
	ipc.Handle(m, wire.MCPClientLend, func(ctx context.Context, req wire.MCPClientRequest) (wire.MCPClientLendResult, error) {
		token, err := d.mcpClients.Lend(ctx, req.Name)
		return wire.MCPClientLendResult{Token: token}, err
	})
}

// removeMCPClient ends a client, with what it was granted: one that is made under its
// name later begins with nothing.
func (d *Daemon) removeMCPClient(ctx context.Context, name string) error {
	const most = 1000
	granted, err := d.grants.List(ctx, grant.Filter{Subject: guests.Prefix + name, Limit: most})
	if err != nil {
		return err
	}
	err = d.mcpClients.Remove(ctx, name, byOperator, func(ctx context.Context, tx *db.Tx) error {
		for _, x := range granted {
			if _, err := d.grants.RevokeTx(ctx, tx, x.ID, grant.Operator); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		d.mcpHTTP.End(name)
	}
	return err
}

func wireMCPClient(c guests.Client) wire.MCPClient {
	return wire.MCPClient{Name: c.Name, Subject: c.Subject(), AddedAt: c.Added, SeenAt: c.Seen}
}

// mcpURL is where clients connect over the network, "" if nothing listens.
func (d *Daemon) mcpURL() string {
	if d.listener == nil || !d.listener.State().Open {
		return ""
	}
	return d.listener.State().URL() + server.Path
}

// isMCP reports whether a subject is a client of the protocol.
func isMCP(subject string) bool { return strings.HasPrefix(subject, guests.Prefix) }
