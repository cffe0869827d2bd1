package wire

import "context"

// MCPClientAdd calls mcpclient.add: makes a client of the protocol; its credential is told only here.
func (c *Client) MCPClientAdd(ctx context.Context, req MCPClientRequest) (MCPClientAddResult, error) {
	return call(ctx, c, MCPClientAdd, req)
}

// MCPClientList calls mcpclient.list: the coding agents that may connect by themselves.
func (c *Client) MCPClientList(ctx context.Context) (MCPClientListResult, error) {
	return call(ctx, c, MCPClientList, Empty{})
}

// MCPClientRemove calls mcpclient.remove: ends a client, its sessions and its calls.
func (c *Client) MCPClientRemove(ctx context.Context, req MCPClientRequest) (Empty, error) {
	return call(ctx, c, MCPClientRemove, req)
}

// MCPClientLend calls mcpclient.lend: a passing credential of a client, for a program the operator starts.
func (c *Client) MCPClientLend(ctx context.Context, req MCPClientRequest) (MCPClientLendResult, error) {
	return call(ctx, c, MCPClientLend, req)
}

// MCPTools calls mcp.tools: the tools a client can try.
func (a *AgentClient) MCPTools(ctx context.Context, req MCPTokenRequest) (MCPToolsResult, error) {
	return call(ctx, a.c, MCPTools, req)
}

// MCPCall calls mcp.call: makes a call for a client, within what it was granted.
func (a *AgentClient) MCPCall(ctx context.Context, req MCPCallRequest) (JobCallResult, error) {
	return call(ctx, a.c, MCPCall, req)
}
