package wire

import "context"

// ToolsAdd calls tools.add: adds a program of others whose tools can be called; it gives nobody anything.
func (c *Client) ToolsAdd(ctx context.Context, req ToolsAddRequest) (ToolsAddResult, error) {
	return call(ctx, c, ToolsAdd, req)
}

// ToolsRemove calls tools.remove: ends a tool process and forgets it.
func (c *Client) ToolsRemove(ctx context.Context, req ToolsRemoveRequest) (Empty, error) {
	return call(ctx, c, ToolsRemove, req)
}

// ToolsTest calls tools.test: starts a tool process and says what it registers.
func (c *Client) ToolsTest(ctx context.Context, req ToolsTestRequest) (ToolsTestResult, error) {
	return call(ctx, c, ToolsTest, req)
}
