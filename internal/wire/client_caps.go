package wire

import "context"

// CapsList calls caps.list: what subjects may do, by role and by grant.
func (c *Client) CapsList(ctx context.Context, req CapsListRequest) (CapsListResult, error) {
	return call(ctx, c, CapsList, req)
}

// CapsGrant calls caps.grant: gives a subject a scope, or takes one from it.
func (c *Client) CapsGrant(ctx context.Context, req CapsGrantRequest) (CapsGrantResult, error) {
	return call(ctx, c, CapsGrant, req)
}

// CapsRevoke calls caps.revoke: takes a grant back.
func (c *Client) CapsRevoke(ctx context.Context, req CapsRevokeRequest) (CapsRevokeResult, error) {
	return call(ctx, c, CapsRevoke, req)
}

// CapsWhy calls caps.why: how a call would be decided, and by what.
func (c *Client) CapsWhy(ctx context.Context, req CapsWhyRequest) (CapsWhyResult, error) {
	return call(ctx, c, CapsWhy, req)
}

// CapsMeter calls caps.meter: how calls ended.
func (c *Client) CapsMeter(ctx context.Context, req CapsMeterRequest) (CapsMeterResult, error) {
	return call(ctx, c, CapsMeter, req)
}

// AccessShow calls access.show: how much a subject does without asking.
func (c *Client) AccessShow(ctx context.Context, req AccessShowRequest) (Access, error) {
	return call(ctx, c, AccessShow, req)
}

// AccessSet calls access.set: sets how much a subject does without asking.
func (c *Client) AccessSet(ctx context.Context, req AccessSetRequest) (Access, error) {
	return call(ctx, c, AccessSet, req)
}

// AccessScope calls access.scope: sets how far into the machine a subject may reach.
func (c *Client) AccessScope(ctx context.Context, req AccessScopeRequest) (Access, error) {
	return call(ctx, c, AccessScope, req)
}
