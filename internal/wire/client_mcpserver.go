package wire

import "context"

// MCPServerAdd calls mcpserver.add: adds a server whose tools can be called, once they are accepted.
func (c *Client) MCPServerAdd(ctx context.Context, req MCPServerAddRequest) (MCPServerResult, error) {
	return call(ctx, c, MCPServerAdd, req)
}

// MCPServerList calls mcpserver.list: the servers there are, and what they offer.
func (c *Client) MCPServerList(ctx context.Context) (MCPServerListResult, error) {
	return call(ctx, c, MCPServerList, Empty{})
}

// MCPServerTest calls mcpserver.test: reaches a server and says what it offers.
func (c *Client) MCPServerTest(ctx context.Context, req MCPServerRequest) (MCPServerTestResult, error) {
	return call(ctx, c, MCPServerTest, req)
}

// MCPServerDiff calls mcpserver.diff: what a server offers other than what was accepted.
func (c *Client) MCPServerDiff(ctx context.Context, req MCPServerRequest) (MCPServerDiffResult, error) {
	return call(ctx, c, MCPServerDiff, req)
}

// MCPServerAccept calls mcpserver.accept: takes what a server offers, as it was shown.
func (c *Client) MCPServerAccept(ctx context.Context, req MCPServerAcceptRequest) (MCPServerResult, error) {
	return call(ctx, c, MCPServerAccept, req)
}

// MCPServerLogs calls mcpserver.logs: the last lines a server wrote to its standard error.
func (c *Client) MCPServerLogs(ctx context.Context, req MCPServerLogsRequest) (MCPServerLogsResult, error) {
	return call(ctx, c, MCPServerLogs, req)
}

// MCPServerEnable calls mcpserver.enable: switches a server on or off.
func (c *Client) MCPServerEnable(ctx context.Context, req MCPServerEnableRequest) (MCPServerResult, error) {
	return call(ctx, c, MCPServerEnable, req)
}

// MCPServerRemove calls mcpserver.remove: ends a server and forgets it.
func (c *Client) MCPServerRemove(ctx context.Context, req MCPServerRequest) (Empty, error) {
	return call(ctx, c, MCPServerRemove, req)
}

// MCPServerLogin calls mcpserver.login: browse is told where the operator logs in to a server.
func (c *Client) MCPServerLogin(ctx context.Context, req MCPServerRequest, browse func(MCPServerBrowse) error) (MCPServerResult, error) {
	return watch(ctx, c, MCPServerLogin, req, browse)
}
