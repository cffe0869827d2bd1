package wire

// The methods of agent.sock, where the operator's methods do not exist. Each
// carries what proves who asks: the token of a job or the credential of an adapter.
// One that is unknown, wrong or ended is answered as denied, always alike.
var (
	JobCall   = unary[JobCallRequest, JobCallResult]("job.call", "makes a call for a job, within its bounds")
	JobTools  = unary[JobTokenRequest, JobToolsResult]("job.tools", "the tools a job can try", repeatable)
	JobWhoami = unary[JobTokenRequest, JobWhoamiResult]("job.whoami", "what a token is good for", repeatable)

	MCPTools = unary[MCPTokenRequest, MCPToolsResult]("mcp.tools", "the tools a client of the Model Context Protocol can try", repeatable)
	MCPCall  = unary[MCPCallRequest, JobCallResult]("mcp.call", "makes a call for such a client, within what it was granted")

	AdapterDeliver = unary[AdapterDeliverRequest, AdapterDeliverResult]("adapter.deliver", "hands a message over; answered when it is durable", repeatable)
	AdapterNext    = unary[AdapterNextRequest, AdapterNextResult]("adapter.next", "takes messages to be sent; one that is not settled is handed out again, marked so", repeatable)
	AdapterAck     = unary[AdapterAckRequest, Empty]("adapter.ack", "says what became of a message", repeatable)
)

// AgentMethods lists the methods of agent.sock, in a fresh slice.
func AgentMethods() []Method {
	return []Method{
		JobCall.Method, JobTools.Method, JobWhoami.Method,
		MCPTools.Method, MCPCall.Method,
		AdapterDeliver.Method, AdapterNext.Method, AdapterAck.Method,
		RequestCancel.Method,
	}
}
