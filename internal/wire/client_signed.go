package wire

import "context"

// LoopUpload calls loop.upload: hands a piece of a signed loop over, to be inspected.
func (c *Client) LoopUpload(ctx context.Context, req LoopUploadRequest) (LoopUploadResult, error) {
	return call(ctx, c, LoopUpload, req)
}

// LoopInspect calls loop.inspect: what installing a signed loop would mean.
func (c *Client) LoopInspect(ctx context.Context, req LoopInspectRequest) (LoopPreview, error) {
	return call(ctx, c, LoopInspect, req)
}

// LoopInstall calls loop.install: installs a signed loop, or replaces its version.
func (c *Client) LoopInstall(ctx context.Context, req LoopInstallRequest) (LoopResult, error) {
	return call(ctx, c, LoopInstall, req)
}

// LoopRemove calls loop.remove: takes a signed loop away.
func (c *Client) LoopRemove(ctx context.Context, req LoopRequest) (Empty, error) {
	return call(ctx, c, LoopRemove, req)
}

// LoopSet calls loop.set: changes the settings of a signed loop.
func (c *Client) LoopSet(ctx context.Context, req LoopSetRequest) (LoopResult, error) {
	return call(ctx, c, LoopSet, req)
}

// LoopVerify calls loop.verify: whether installed loops are what was approved.
func (c *Client) LoopVerify(ctx context.Context, req LoopVerifyRequest) (LoopVerifyResult, error) {
	return call(ctx, c, LoopVerify, req)
}

// TrustList calls trust.list: whose signature counts.
func (c *Client) TrustList(ctx context.Context) (TrustListResult, error) {
	return call(ctx, c, TrustList, Empty{})
}

// TrustChange calls trust.change: changes whose signature counts.
func (c *Client) TrustChange(ctx context.Context, req TrustChangeRequest) (TrustChangeResult, error) {
	return call(ctx, c, TrustChange, req)
}
