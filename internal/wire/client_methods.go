package wire

import "context"

// The calls below are the methods of methods.go by the same name; what each does
// and returns is documented there and at its types. A stream calls on for each
// note, in order, on the caller's goroutine; an error of on ends the stream and
// is returned. While on runs nothing is read, and a daemon that can send nothing
// for its write timeout (30 s) ends the connection.

// SystemStatus calls system.status: what the daemon is and has to do.
func (c *Client) SystemStatus(ctx context.Context) (Status, error) {
	return call(ctx, c, SystemStatus, Empty{})
}

// SystemPing calls system.ping: answers at once, without the store.
func (c *Client) SystemPing(ctx context.Context) (Pong, error) {
	return call(ctx, c, SystemPing, Empty{})
}

// SystemStop calls system.stop: ends the daemon after the answer; work goes on at its next start.
func (c *Client) SystemStop(ctx context.Context) (StopResult, error) {
	return call(ctx, c, SystemStop, Empty{})
}

// MessageSend calls message.send: puts a message into a conversation; answered when it is durable.
func (c *Client) MessageSend(ctx context.Context, req MessageSendRequest) (MessageSendResult, error) {
	return call(ctx, c, MessageSend, req)
}

// TurnWatch calls turn.watch: follows a turn to its end; ending the watch does not end the turn.
func (c *Client) TurnWatch(ctx context.Context, req TurnWatchRequest, on func(TurnNote) error) (TurnResult, error) {
	return watch(ctx, c, TurnWatch, req, on)
}

// TurnCancel calls turn.cancel: asks a turn to stop.
func (c *Client) TurnCancel(ctx context.Context, req TurnCancelRequest) (TurnCancelResult, error) {
	return call(ctx, c, TurnCancel, req)
}

// EventsTail calls events.tail: follows the event log.
func (c *Client) EventsTail(ctx context.Context, req EventsTailRequest, on func(Event) error) (EventsTailResult, error) {
	return watch(ctx, c, EventsTail, req, on)
}

// EventsList calls events.list: reads a piece of the event log.
func (c *Client) EventsList(ctx context.Context, req EventsListRequest) (EventsListResult, error) {
	return call(ctx, c, EventsList, req)
}

// RunsList calls runs.list: lists runs, newest first.
func (c *Client) RunsList(ctx context.Context, req RunsListRequest) (RunsListResult, error) {
	return call(ctx, c, RunsList, req)
}

// RunsGet calls runs.get: one run with its steps.
func (c *Client) RunsGet(ctx context.Context, req RunsGetRequest) (RunsGetResult, error) {
	return call(ctx, c, RunsGet, req)
}

// RunsWatch calls runs.watch: follows a run to its end; ending the watch does not end the run.
func (c *Client) RunsWatch(ctx context.Context, req RunsWatchRequest, on func(RunNote) error) (RunsGetResult, error) {
	return watch(ctx, c, RunsWatch, req, on)
}

// RunsSignal calls runs.signal: sends a run a signal, kept until the run waits for it.
func (c *Client) RunsSignal(ctx context.Context, req RunsSignalRequest) (RunsSignalResult, error) {
	return call(ctx, c, RunsSignal, req)
}

// RunsResolve calls runs.resolve: says what became of an uncertain run.
func (c *Client) RunsResolve(ctx context.Context, req RunsResolveRequest) (RunsResolveResult, error) {
	return call(ctx, c, RunsResolve, req)
}

// RunsVerify calls runs.verify: folds the events of every run and compares them with the rows.
func (c *Client) RunsVerify(ctx context.Context) (RunsVerifyResult, error) {
	return call(ctx, c, RunsVerify, Empty{})
}

// RunsReceipt calls runs.receipt: the signed receipt of a run that has ended.
func (c *Client) RunsReceipt(ctx context.Context, req RunsReceiptRequest) (RunsReceiptResult, error) {
	return call(ctx, c, RunsReceipt, req)
}

// Explain calls explain: tells the life of anything that has an id.
func (c *Client) Explain(ctx context.Context, req ExplainRequest) (Explanation, error) {
	return call(ctx, c, Explain, req)
}

// AuditVerify calls audit.verify: checks every chain, link and signature.
func (c *Client) AuditVerify(ctx context.Context, req AuditVerifyRequest) (AuditVerifyResult, error) {
	return call(ctx, c, AuditVerify, req)
}

// AuditTail calls audit.tail: the last entries of the audit log.
func (c *Client) AuditTail(ctx context.Context, req AuditTailRequest) (AuditTailResult, error) {
	return call(ctx, c, AuditTail, req)
}

// AuditShow calls audit.show: one entry of the audit log.
func (c *Client) AuditShow(ctx context.Context, req AuditShowRequest) (AuditShowResult, error) {
	return call(ctx, c, AuditShow, req)
}

// AuditAnchor calls audit.anchor: signs the audit log at its present end.
func (c *Client) AuditAnchor(ctx context.Context) (AuditAnchorResult, error) {
	return call(ctx, c, AuditAnchor, Empty{})
}

// AuditExport calls audit.export: sends the audit log line by line.
func (c *Client) AuditExport(ctx context.Context, on func(AuditLine) error) (AuditExportResult, error) {
	return watch(ctx, c, AuditExport, Empty{}, on)
}

// CostReport calls cost.report: what was spent, by day and model.
func (c *Client) CostReport(ctx context.Context, req CostReportRequest) (CostReportResult, error) {
	return call(ctx, c, CostReport, req)
}

// ApprovalsList calls approvals.list: questions to the operator.
func (c *Client) ApprovalsList(ctx context.Context, req ApprovalsListRequest) (ApprovalsListResult, error) {
	return call(ctx, c, ApprovalsList, req)
}

// ApprovalsResolve calls approvals.resolve: decides a question, once.
func (c *Client) ApprovalsResolve(ctx context.Context, req ApprovalsResolveRequest) (ApprovalsResolveResult, error) {
	return call(ctx, c, ApprovalsResolve, req)
}

// ConversationsList calls conversations.list: conversations, last used first.
func (c *Client) ConversationsList(ctx context.Context, req ConversationsListRequest) (ConversationsListResult, error) {
	return call(ctx, c, ConversationsList, req)
}

// ConversationsReset calls conversations.reset: starts a conversation afresh; nothing is deleted.
func (c *Client) ConversationsReset(ctx context.Context, req ConversationsResetRequest) (ConversationsResetResult, error) {
	return call(ctx, c, ConversationsReset, req)
}

// MemoryList calls memory.list: what is remembered, newest first.
func (c *Client) MemoryList(ctx context.Context, req MemoryListRequest) (MemoryResult, error) {
	return call(ctx, c, MemoryList, req)
}

// MemorySearch calls memory.search: recalls.
func (c *Client) MemorySearch(ctx context.Context, req MemorySearchRequest) (MemoryResult, error) {
	return call(ctx, c, MemorySearch, req)
}

// ToolsList calls tools.list: tools, their access and those in quarantine.
func (c *Client) ToolsList(ctx context.Context) (ToolsListResult, error) {
	return call(ctx, c, ToolsList, Empty{})
}

// LogsTail calls logs.tail: the daemon's own log.
func (c *Client) LogsTail(ctx context.Context, req LogsTailRequest, on func(LogLine) error) (Empty, error) {
	return watch(ctx, c, LogsTail, req, on)
}

// DoctorRun calls doctor.run: looks at everything the daemon depends on.
func (c *Client) DoctorRun(ctx context.Context) (DoctorResult, error) {
	return call(ctx, c, DoctorRun, Empty{})
}

// ConfigExplain calls config.explain: where each configuration value comes from.
func (c *Client) ConfigExplain(ctx context.Context, req ConfigExplainRequest) (ConfigExplainResult, error) {
	return call(ctx, c, ConfigExplain, req)
}

// AdapterAdd calls adapter.add: makes an adapter; its credential is told only here.
func (c *Client) AdapterAdd(ctx context.Context, req AdapterAddRequest) (AdapterAddResult, error) {
	return call(ctx, c, AdapterAdd, req)
}

// AdapterList calls adapter.list: the adapters there are.
func (c *Client) AdapterList(ctx context.Context) (AdapterListResult, error) {
	return call(ctx, c, AdapterList, Empty{})
}

// AdapterRemove calls adapter.remove: ends an adapter and its credential.
func (c *Client) AdapterRemove(ctx context.Context, req AdapterRemoveRequest) (Empty, error) {
	return call(ctx, c, AdapterRemove, req)
}

// ChannelList calls channel.list: chat networks and how they stand.
func (c *Client) ChannelList(ctx context.Context) (ChannelListResult, error) {
	return call(ctx, c, ChannelList, Empty{})
}

// ChannelKinds calls channel.kinds: what kinds of channel can be added, and what each needs.
func (c *Client) ChannelKinds(ctx context.Context) (ChannelKindsResult, error) {
	return call(ctx, c, ChannelKinds, Empty{})
}

// ChannelShow calls channel.show: one channel, with the groups that were seen.
func (c *Client) ChannelShow(ctx context.Context, req ChannelRequest) (ChannelResult, error) {
	return call(ctx, c, ChannelShow, req)
}

// ChannelAdd calls channel.add: connects a chat network, once it has said who ombud is there.
func (c *Client) ChannelAdd(ctx context.Context, req ChannelAddRequest) (ChannelResult, error) {
	return call(ctx, c, ChannelAdd, req)
}

// ChannelSet calls channel.set: changes the settings of a channel.
func (c *Client) ChannelSet(ctx context.Context, req ChannelSetRequest) (ChannelResult, error) {
	return call(ctx, c, ChannelSet, req)
}

// ChannelPause calls channel.pause: keeps a channel from hearing and saying anything.
func (c *Client) ChannelPause(ctx context.Context, req ChannelRequest) (ChannelResult, error) {
	return call(ctx, c, ChannelPause, req)
}

// ChannelResume calls channel.resume: ends a pause.
func (c *Client) ChannelResume(ctx context.Context, req ChannelRequest) (ChannelResult, error) {
	return call(ctx, c, ChannelResume, req)
}

// ChannelTest calls channel.test: asks a network who ombud is there, now.
func (c *Client) ChannelTest(ctx context.Context, req ChannelRequest) (ChannelResult, error) {
	return call(ctx, c, ChannelTest, req)
}

// ChannelRemove calls channel.remove: ends a channel and forgets its secrets.
func (c *Client) ChannelRemove(ctx context.Context, req ChannelRequest) (Empty, error) {
	return call(ctx, c, ChannelRemove, req)
}

// Send calls send: sends a message as the operator.
func (c *Client) Send(ctx context.Context, req SendRequest) (SendResult, error) {
	return call(ctx, c, Send, req)
}

// SendState calls send.state: what became of a message.
func (c *Client) SendState(ctx context.Context, req SendStateRequest) (SendResult, error) {
	return call(ctx, c, SendState, req)
}

// PairStart calls pair.start: shows a code that pairs a remote direct chat with the operator.
func (c *Client) PairStart(ctx context.Context, req PairStartRequest) (PairStartResult, error) {
	return call(ctx, c, PairStart, req)
}

// PairList calls pair.list: who on remote channels is the operator, or known.
func (c *Client) PairList(ctx context.Context) (PairListResult, error) {
	return call(ctx, c, PairList, Empty{})
}

// PairAllow calls pair.allow: lists a remote sender as known.
func (c *Client) PairAllow(ctx context.Context, req PairAllowRequest) (PairChangeResult, error) {
	return call(ctx, c, PairAllow, req)
}

// PairRemove calls pair.remove: makes a remote sender a stranger again.
func (c *Client) PairRemove(ctx context.Context, req PairRemoveRequest) (PairChangeResult, error) {
	return call(ctx, c, PairRemove, req)
}
