package wire

import "context"

// TriggersList calls triggers.list: what can be started, and by what.
func (c *Client) TriggersList(ctx context.Context, req TriggersListRequest) (TriggersListResult, error) {
	return call(ctx, c, TriggersList, req)
}
