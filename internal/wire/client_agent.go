package wire

import "context"

// AgentClient calls a daemon through agent.sock, as a job or an adapter does. What
// is said of Client holds for it.
type AgentClient struct{ c *Client }

// NewAgentClient returns a client of the agent socket at a path.
func NewAgentClient(socket string) *AgentClient { return &AgentClient{NewClient(socket)} }

// JobCall calls job.call: makes a call for a job, within its bounds.
func (a *AgentClient) JobCall(ctx context.Context, req JobCallRequest) (JobCallResult, error) {
	return call(ctx, a.c, JobCall, req)
}

// JobTools calls job.tools: the tools a job can try.
func (a *AgentClient) JobTools(ctx context.Context, req JobTokenRequest) (JobToolsResult, error) {
	return call(ctx, a.c, JobTools, req)
}

// JobWhoami calls job.whoami: what a token is good for.
func (a *AgentClient) JobWhoami(ctx context.Context, req JobTokenRequest) (JobWhoamiResult, error) {
	return call(ctx, a.c, JobWhoami, req)
}

// AdapterDeliver calls adapter.deliver: hands a message over; answered when it is durable.
func (a *AgentClient) AdapterDeliver(ctx context.Context, req AdapterDeliverRequest) (AdapterDeliverResult, error) {
	return call(ctx, a.c, AdapterDeliver, req)
}

// AdapterNext calls adapter.next: takes messages to be sent.
func (a *AgentClient) AdapterNext(ctx context.Context, req AdapterNextRequest) (AdapterNextResult, error) {
	return call(ctx, a.c, AdapterNext, req)
}

// AdapterAck calls adapter.ack: says what became of a message.
func (a *AgentClient) AdapterAck(ctx context.Context, req AdapterAckRequest) (Empty, error) {
	return call(ctx, a.c, AdapterAck, req)
}
