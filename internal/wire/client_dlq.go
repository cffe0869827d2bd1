package wire

import "context"

// DLQList calls dlq.list: what was given up: events, runs and deliveries.
func (c *Client) DLQList(ctx context.Context, req DLQListRequest) (DLQListResult, error) {
	return call(ctx, c, DLQList, req)
}

// DLQShow calls dlq.show: one dead letter, and how to go on.
func (c *Client) DLQShow(ctx context.Context, req DLQRequest) (DLQResult, error) {
	return call(ctx, c, DLQShow, req)
}

// DLQReplay calls dlq.replay: has what was given up done again.
func (c *Client) DLQReplay(ctx context.Context, req DLQReplayRequest) (DLQResult, error) {
	return call(ctx, c, DLQReplay, req)
}

// DLQDrop calls dlq.drop: lays a dead letter to rest.
func (c *Client) DLQDrop(ctx context.Context, req DLQDropRequest) (DLQResult, error) {
	return call(ctx, c, DLQDrop, req)
}
