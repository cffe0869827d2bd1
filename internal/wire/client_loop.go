package wire

import "context"

// LoopList calls loop.list: loops and how they do.
func (c *Client) LoopList(ctx context.Context, req LoopListRequest) (LoopListResult, error) {
	return call(ctx, c, LoopList, req)
}

// LoopRun calls loop.run: starts a loop now.
func (c *Client) LoopRun(ctx context.Context, req LoopRunRequest) (LoopRunResult, error) {
	return call(ctx, c, LoopRun, req)
}

// LoopDisable calls loop.disable: keeps a loop from being started by anything.
func (c *Client) LoopDisable(ctx context.Context, req LoopRequest) (LoopResult, error) {
	return call(ctx, c, LoopDisable, req)
}

// LoopEnable calls loop.enable: lets a disabled loop be started again.
func (c *Client) LoopEnable(ctx context.Context, req LoopRequest) (LoopResult, error) {
	return call(ctx, c, LoopEnable, req)
}

// LoopLogs calls loop.logs: what loops and recipes wrote to their logs.
func (c *Client) LoopLogs(ctx context.Context, req LoopLogsRequest) (LoopLogsResult, error) {
	return call(ctx, c, LoopLogs, req)
}

// IntegrationsList calls integrations.list: how everything stands that ombud depends on.
func (c *Client) IntegrationsList(ctx context.Context, req IntegrationsRequest) (IntegrationsResult, error) {
	return call(ctx, c, IntegrationsList, req)
}
