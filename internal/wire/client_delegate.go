package wire

import "context"

// DelegateStart calls delegate.start: gives a task to a coding agent.
func (c *Client) DelegateStart(ctx context.Context, req DelegateRequest) (DelegateResult, error) {
	return call(ctx, c, DelegateStart, req)
}

// DelegatePlan calls delegate.plan: what a task would be run by, what it needs and may cost.
func (c *Client) DelegatePlan(ctx context.Context, req DelegateRequest) (DelegatePlanResult, error) {
	return call(ctx, c, DelegatePlan, req)
}

// DelegateWait calls delegate.wait: waits until a delegation ends or asks.
func (c *Client) DelegateWait(ctx context.Context, req DelegateWaitRequest) (DelegateWaitResult, error) {
	return call(ctx, c, DelegateWait, req)
}

// DelegateList calls delegate.list: tasks that were given to coding agents, newest first.
func (c *Client) DelegateList(ctx context.Context, req DelegateListRequest) (DelegateListResult, error) {
	return call(ctx, c, DelegateList, req)
}

// DelegateShow calls delegate.show: one of them, with what it told and changed.
func (c *Client) DelegateShow(ctx context.Context, req DelegateShowRequest) (DelegateShowResult, error) {
	return call(ctx, c, DelegateShow, req)
}

// DelegateApply calls delegate.apply: puts what one changed into the repository.
func (c *Client) DelegateApply(ctx context.Context, req DelegateShowRequest) (DelegateApplyResult, error) {
	return call(ctx, c, DelegateApply, req)
}

// DelegateDrop calls delegate.drop: forgets a session and removes its worktree.
func (c *Client) DelegateDrop(ctx context.Context, req DelegateDropRequest) (DelegateDropResult, error) {
	return call(ctx, c, DelegateDrop, req)
}

// HarnessList calls harness.list: the coding agents that are set up.
func (c *Client) HarnessList(ctx context.Context) (HarnessListResult, error) {
	return call(ctx, c, HarnessList, Empty{})
}

// HarnessProbe calls harness.probe: asks a coding agent's program for its version and login; it uses no tokens.
func (c *Client) HarnessProbe(ctx context.Context, req HarnessRequest) (HarnessProbeResult, error) {
	return call(ctx, c, HarnessProbe, req)
}

// HarnessRoutes calls harness.routes: the routes that may run, and those that ran.
func (c *Client) HarnessRoutes(ctx context.Context) (HarnessRoutesResult, error) {
	return call(ctx, c, HarnessRoutes, Empty{})
}

// HarnessLogin calls harness.login: how a coding agent's program is logged in by hand.
func (c *Client) HarnessLogin(ctx context.Context, req HarnessRequest) (HarnessLoginResult, error) {
	return call(ctx, c, HarnessLogin, req)
}
