package wire

// The methods, by noun. These descriptors never change after start; client and
// server both take them, so a wrong type does not compile.
var (
	SystemStatus = unary[Empty, Status]("system.status", "what the daemon is and has to do", repeatable)
	SystemPing   = unary[Empty, Pong]("system.ping", "answers at once, without the store", repeatable)
	SystemStop   = unary[Empty, StopResult]("system.stop", "ends the daemon after the answer; work goes on at its next start", repeatable)

	MessageSend = unary[MessageSendRequest, MessageSendResult]("message.send", "puts a message into a conversation; answered when it is durable")

	TurnWatch  = stream[TurnWatchRequest, TurnNote, TurnResult]("turn.watch", "follows a turn to its end; ending the watch does not end the turn", TurnDelta{}, TurnStatus{}, TurnApproval{})
	TurnCancel = unary[TurnCancelRequest, TurnCancelResult]("turn.cancel", "asks a turn to stop", repeatable)

	EventsTail = stream[EventsTailRequest, Event, EventsTailResult]("events.tail", "follows the event log", Event{})
	EventsList = unary[EventsListRequest, EventsListResult]("events.list", "reads a piece of the event log", repeatable)

	RunsList    = unary[RunsListRequest, RunsListResult]("runs.list", "lists runs, newest first", repeatable)
	RunsGet     = unary[RunsGetRequest, RunsGetResult]("runs.get", "one run with its steps", repeatable)
	RunsWatch   = stream[RunsWatchRequest, RunNote, RunsGetResult]("runs.watch", "follows a run to its end; ending the watch does not end the run", RunMoved{}, RunStepped{})
	RunsSignal  = unary[RunsSignalRequest, RunsSignalResult]("runs.signal", "sends a run a signal, kept until the run waits for it")
	RunsResolve = unary[RunsResolveRequest, RunsResolveResult]("runs.resolve", "says what became of an uncertain run")
	RunsVerify  = unary[Empty, RunsVerifyResult]("runs.verify", "folds the events of every run and compares them with the rows", repeatable)
	RunsReceipt = unary[RunsReceiptRequest, RunsReceiptResult]("runs.receipt", "the signed receipt of a run that has ended", repeatable, verbatim(isSigned))

	Explain = unary[ExplainRequest, Explanation]("explain", "tells the life of anything that has an id", repeatable)

	AuditVerify = unary[AuditVerifyRequest, AuditVerifyResult]("audit.verify", "checks every chain, link and signature", repeatable)
	AuditTail   = unary[AuditTailRequest, AuditTailResult]("audit.tail", "the last entries of the audit log", repeatable)
	AuditShow   = unary[AuditShowRequest, AuditShowResult]("audit.show", "one entry of the audit log", repeatable)
	AuditAnchor = unary[Empty, AuditAnchorResult]("audit.anchor", "signs the audit log at its present end", repeatable, verbatim(isSigned))
	AuditExport = stream[Empty, AuditLine, AuditExportResult]("audit.export", "sends the audit log line by line", AuditLine{}).as(verbatim(isSigned))

	CostReport = unary[CostReportRequest, CostReportResult]("cost.report", "what was spent, by day and model", repeatable)

	ApprovalsList    = unary[ApprovalsListRequest, ApprovalsListResult]("approvals.list", "questions to the operator", repeatable)
	ApprovalsResolve = unary[ApprovalsResolveRequest, ApprovalsResolveResult]("approvals.resolve", "decides a question, once")

	CapsList   = unary[CapsListRequest, CapsListResult]("caps.list", "what subjects may do, by role and by grant", repeatable)
	CapsGrant  = unary[CapsGrantRequest, CapsGrantResult]("caps.grant", "gives a subject a scope, or takes one from it", repeatable)
	CapsRevoke = unary[CapsRevokeRequest, CapsRevokeResult]("caps.revoke", "takes a grant back")
	CapsWhy    = unary[CapsWhyRequest, CapsWhyResult]("caps.why", "how a call would be decided, and by what", repeatable)
	CapsMeter  = unary[CapsMeterRequest, CapsMeterResult]("caps.meter", "how calls ended", repeatable)

	AccessShow  = unary[AccessShowRequest, Access]("access.show", "how much a subject does without asking", repeatable)
	AccessSet   = unary[AccessSetRequest, Access]("access.set", "sets how much a subject does without asking")
	AccessScope = unary[AccessScopeRequest, Access]("access.scope", "sets how far into the machine a subject may reach")

	DLQList   = unary[DLQListRequest, DLQListResult]("dlq.list", "what was given up: events, runs and deliveries", repeatable)
	DLQShow   = unary[DLQRequest, DLQResult]("dlq.show", "one dead letter, and how to go on", repeatable)
	DLQReplay = unary[DLQReplayRequest, DLQResult]("dlq.replay", "has what was given up done again")
	DLQDrop   = unary[DLQDropRequest, DLQResult]("dlq.drop", "lays a dead letter to rest")

	ConversationsList  = unary[ConversationsListRequest, ConversationsListResult]("conversations.list", "conversations, last used first", repeatable)
	ConversationsReset = unary[ConversationsResetRequest, ConversationsResetResult]("conversations.reset", "starts a conversation afresh; nothing is deleted", repeatable)

	MemoryList   = unary[MemoryListRequest, MemoryResult]("memory.list", "what is remembered, newest first", repeatable)
	MemorySearch = unary[MemorySearchRequest, MemoryResult]("memory.search", "recalls", repeatable)

	RecipeList    = unary[Empty, RecipeListResult]("recipe.list", "work that is described in files", repeatable)
	RecipeShow    = unary[RecipeRequest, RecipeShowResult]("recipe.show", "one recipe with what it says", repeatable)
	RecipeRun     = unary[RecipeRunRequest, RecipeRunResult]("recipe.run", "starts a recipe by hand")
	RecipeEnable  = unary[RecipeRequest, RecipeResult]("recipe.enable", "lets a recipe be started again", repeatable)
	RecipeDisable = unary[RecipeRequest, RecipeResult]("recipe.disable", "keeps a recipe from being started by anything", repeatable)
	RecipeWorld   = unary[Empty, RecipeWorldResult]("recipe.world", "what a recipe can refer to: tools, loops, secrets, other recipes", repeatable)

	TriggersList = unary[TriggersListRequest, TriggersListResult]("triggers.list", "what can be started, and by what", repeatable)

	ScheduleList   = unary[ScheduleListRequest, ScheduleListResult]("schedule.list", "what starts by itself at times", repeatable)
	ScheduleAdd    = unary[ScheduleAddRequest, ScheduleResult]("schedule.add", "lets something start at times")
	SchedulePause  = unary[ScheduleRequest, ScheduleResult]("schedule.pause", "keeps a schedule from firing", repeatable)
	ScheduleResume = unary[ScheduleRequest, ScheduleResult]("schedule.resume", "lets a paused schedule go on, with its first instant from now", repeatable)
	ScheduleRemove = unary[ScheduleRequest, ScheduleResult]("schedule.remove", "forgets a schedule; its events stay")
	ScheduleRun    = unary[ScheduleRequest, ScheduleRunResult]("schedule.run", "fires a schedule now, whatever its state")

	LoopList         = unary[LoopListRequest, LoopListResult]("loop.list", "loops and how they do", repeatable)
	LoopRun          = unary[LoopRunRequest, LoopRunResult]("loop.run", "starts a loop now")
	LoopDisable      = unary[LoopRequest, LoopResult]("loop.disable", "keeps a loop from being started by anything", repeatable)
	LoopEnable       = unary[LoopRequest, LoopResult]("loop.enable", "lets a disabled loop be started again", repeatable)
	LoopLogs         = unary[LoopLogsRequest, LoopLogsResult]("loop.logs", "what loops and recipes wrote to their logs", repeatable)
	LoopUpload       = unary[LoopUploadRequest, LoopUploadResult]("loop.upload", "hands a piece of a signed loop over, to be inspected")
	LoopInspect      = unary[LoopInspectRequest, LoopPreview]("loop.inspect", "what installing a signed loop would mean", repeatable)
	LoopInstall      = unary[LoopInstallRequest, LoopResult]("loop.install", "installs a signed loop, or replaces its version")
	LoopRemove       = unary[LoopRequest, Empty]("loop.remove", "takes a signed loop away")
	LoopSet          = unary[LoopSetRequest, LoopResult]("loop.set", "changes the settings of a signed loop")
	LoopVerify       = unary[LoopVerifyRequest, LoopVerifyResult]("loop.verify", "whether installed loops are what was approved", repeatable)
	TrustList        = unary[Empty, TrustListResult]("trust.list", "whose signature counts", repeatable)
	TrustChange      = unary[TrustChangeRequest, TrustChangeResult]("trust.change", "changes whose signature counts")
	IntegrationsList = unary[IntegrationsRequest, IntegrationsResult]("integrations.list", "how everything stands that ombud depends on", repeatable)

	ToolsList = unary[Empty, ToolsListResult]("tools.list", "tools, their access and those in quarantine", repeatable)
	LogsTail  = stream[LogsTailRequest, LogLine, Empty]("logs.tail", "the daemon's own log", LogLine{})

	ToolsAdd    = unary[ToolsAddRequest, ToolsAddResult]("tools.add", "adds a program of others whose tools can be called; it gives nobody anything")
	ToolsRemove = unary[ToolsRemoveRequest, Empty]("tools.remove", "ends a tool process and forgets it")
	ToolsTest   = unary[ToolsTestRequest, ToolsTestResult]("tools.test", "starts a tool process and says what it registers")

	MCPClientAdd    = unary[MCPClientRequest, MCPClientAddResult]("mcpclient.add", "lets a coding agent connect by itself; its credential is told only here", verbatim(toldOnce))
	MCPClientList   = unary[Empty, MCPClientListResult]("mcpclient.list", "the coding agents that may connect by themselves", repeatable)
	MCPClientRemove = unary[MCPClientRequest, Empty]("mcpclient.remove", "ends such a client, its sessions and its calls")
	MCPClientLend   = unary[MCPClientRequest, MCPClientLendResult]("mcpclient.lend", "a passing credential of a client, for a program the operator starts for it", repeatable, verbatim(toldOnce))

	MCPServerAdd    = unary[MCPServerAddRequest, MCPServerResult]("mcpserver.add", "adds a server whose tools can be called, once they are accepted; it gives nobody anything")
	MCPServerList   = unary[Empty, MCPServerListResult]("mcpserver.list", "the servers there are, and what they offer", repeatable)
	MCPServerTest   = unary[MCPServerRequest, MCPServerTestResult]("mcpserver.test", "reaches a server and says what it offers; nothing of it is called", repeatable)
	MCPServerDiff   = unary[MCPServerRequest, MCPServerDiffResult]("mcpserver.diff", "what a server offers other than what was accepted", repeatable)
	MCPServerAccept = unary[MCPServerAcceptRequest, MCPServerResult]("mcpserver.accept", "takes what a server offers, as it was shown", repeatable)
	MCPServerLogs   = unary[MCPServerLogsRequest, MCPServerLogsResult]("mcpserver.logs", "the last lines a server wrote to its standard error", repeatable)
	MCPServerEnable = unary[MCPServerEnableRequest, MCPServerResult]("mcpserver.enable", "switches a server on or off", repeatable)
	MCPServerRemove = unary[MCPServerRequest, Empty]("mcpserver.remove", "ends a server and forgets it")
	MCPServerLogin  = stream[MCPServerRequest, MCPServerBrowse, MCPServerResult]("mcpserver.login", "has the operator log in to a server in a browser", MCPServerBrowse{})

	AdapterAdd    = unary[AdapterAddRequest, AdapterAddResult]("adapter.add", "makes an adapter; its credential is told only here", verbatim(toldOnce))
	AdapterList   = unary[Empty, AdapterListResult]("adapter.list", "the adapters there are", repeatable)
	AdapterRemove = unary[AdapterRemoveRequest, Empty]("adapter.remove", "ends an adapter and its credential", repeatable)

	ChannelList   = unary[Empty, ChannelListResult]("channel.list", "chat networks and how they stand", repeatable)
	ChannelKinds  = unary[Empty, ChannelKindsResult]("channel.kinds", "what kinds of channel can be added, and what each needs", repeatable)
	ChannelShow   = unary[ChannelRequest, ChannelResult]("channel.show", "one channel, with the groups that were seen", repeatable)
	ChannelAdd    = unary[ChannelAddRequest, ChannelResult]("channel.add", "connects a chat network, once it has said who ombud is there")
	ChannelSet    = unary[ChannelSetRequest, ChannelResult]("channel.set", "changes the settings of a channel", repeatable)
	ChannelPause  = unary[ChannelRequest, ChannelResult]("channel.pause", "keeps a channel from hearing and saying anything", repeatable)
	ChannelResume = unary[ChannelRequest, ChannelResult]("channel.resume", "ends a pause", repeatable)
	ChannelTest   = unary[ChannelRequest, ChannelResult]("channel.test", "asks a network who ombud is there, now", repeatable)
	ChannelRemove = unary[ChannelRequest, Empty]("channel.remove", "ends a channel and forgets its secrets")
	Send          = unary[SendRequest, SendResult]("send", "sends a message as the operator")
	SendState     = unary[SendStateRequest, SendResult]("send.state", "what became of a message", repeatable)

	DelegateStart = unary[DelegateRequest, DelegateResult]("delegate.start", "gives a task to a coding agent")
	DelegatePlan  = unary[DelegateRequest, DelegatePlanResult]("delegate.plan", "what a task would be run by, what it needs and may cost", repeatable)
	DelegateWait  = unary[DelegateWaitRequest, DelegateWaitResult]("delegate.wait", "waits until a delegation ends or asks", repeatable)
	DelegateList  = unary[DelegateListRequest, DelegateListResult]("delegate.list", "tasks that were given to coding agents, newest first", repeatable)
	DelegateShow  = unary[DelegateShowRequest, DelegateShowResult]("delegate.show", "one of them, with what it told and changed", repeatable)
	DelegateApply = unary[DelegateShowRequest, DelegateApplyResult]("delegate.apply", "puts what one changed into the repository")
	DelegateDrop  = unary[DelegateDropRequest, DelegateDropResult]("delegate.drop", "forgets a session and removes its worktree")
	HarnessList   = unary[Empty, HarnessListResult]("harness.list", "the coding agents that are set up", repeatable)
	HarnessProbe  = unary[HarnessRequest, HarnessProbeResult]("harness.probe", "asks a coding agent's program for its version and login; it uses no tokens", repeatable)
	HarnessLogin  = unary[HarnessRequest, HarnessLoginResult]("harness.login", "how a coding agent's program is logged in by hand", repeatable)
	HarnessRoutes = unary[Empty, HarnessRoutesResult]("harness.routes", "the routes that may run, and those that ran", repeatable)

	UndoList    = unary[UndoListRequest, UndoListResult]("undo.list", "what can be undone, newest first", repeatable)
	UndoShow    = unary[UndoShowRequest, UndoShowResult]("undo.show", "what an undo would do", repeatable)
	UndoRestore = unary[UndoRestoreRequest, UndoRestoreResult]("undo.restore", "takes a call, and those after it, back in a work tree")

	PairStart  = unary[PairStartRequest, PairStartResult]("pair.start", "shows a code that pairs a remote direct chat with the operator; the one before is good no longer", repeatable)
	PairList   = unary[Empty, PairListResult]("pair.list", "who on remote channels is the operator, or known", repeatable)
	PairAllow  = unary[PairAllowRequest, PairChangeResult]("pair.allow", "lists a remote sender as known", repeatable)
	PairRemove = unary[PairRemoveRequest, PairChangeResult]("pair.remove", "makes a remote sender a stranger again")

	VaultState       = unary[Empty, VaultStatus]("vault.status", "what opens the vault, and what that does not protect", repeatable)
	VaultPassphrase  = unary[VaultPassphraseRequest, VaultStatus]("vault.passphrase", "sets or changes the passphrase", repeatable)
	VaultRotate      = unary[VaultRotateRequest, VaultStatus]("vault.rotate", "makes new keys for what opens the vault; the data stays as it is")
	VaultRecover     = unary[VaultRecoverRequest, VaultStatus]("vault.recover", "sets anew what opens the vault, by the recovery key", repeatable)
	VaultRecoveryKey = unary[Empty, VaultRecoveryKeyResult]("vault.recoverykey", "makes a recovery key in the place of the one before; it is told only here", verbatim(toldOnce))

	SecretSet    = unary[SecretSetRequest, SecretSetResult]("secret.set", "sets a secret; no method gives it back")
	SecretList   = unary[Empty, SecretListResult]("secret.list", "the secrets there are, without their values", repeatable)
	SecretRemove = unary[SecretRemoveRequest, SecretRemoveResult]("secret.remove", "removes a secret")

	BackupCreate   = stream[BackupCreateRequest, BackupProgress, BackupResult]("backup.create", "writes a backup of the whole instance, flushed and read back", BackupProgress{})
	RestorePending = unary[Empty, PendingWork]("restore.pending", "what would happen if a restored instance were let go", repeatable)
	RestoreRelease = unary[RestoreReleaseRequest, RestoreReleaseResult]("restore.release", "lets a restored instance go")

	DoctorRun     = unary[Empty, DoctorResult]("doctor.run", "looks at everything the daemon depends on", repeatable)
	ConfigExplain = unary[ConfigExplainRequest, ConfigExplainResult]("config.explain", "where each configuration value comes from", repeatable)

	RequestCancel = unary[RequestCancelRequest, RequestCancelResult]("request.cancel", "ends another request of this connection early; may be a notification", repeatable, builtin)
)

// Methods lists every method, in a fresh slice.
func Methods() []Method {
	return []Method{
		SystemStatus.Method, SystemPing.Method, SystemStop.Method,
		MessageSend.Method, TurnWatch.Method, TurnCancel.Method,
		EventsTail.Method, EventsList.Method,
		RunsList.Method, RunsGet.Method, RunsWatch.Method, RunsSignal.Method, RunsResolve.Method, RunsVerify.Method, RunsReceipt.Method,
		Explain.Method, AuditVerify.Method, AuditTail.Method, AuditShow.Method, AuditAnchor.Method, AuditExport.Method, CostReport.Method,
		ApprovalsList.Method, ApprovalsResolve.Method,
		CapsList.Method, CapsGrant.Method, CapsRevoke.Method, CapsWhy.Method, CapsMeter.Method,
		AccessShow.Method, AccessSet.Method, AccessScope.Method,
		DLQList.Method, DLQShow.Method, DLQReplay.Method, DLQDrop.Method,
		ConversationsList.Method, ConversationsReset.Method,
		MemoryList.Method, MemorySearch.Method,
		RecipeList.Method, RecipeShow.Method, RecipeRun.Method, RecipeEnable.Method, RecipeDisable.Method, RecipeWorld.Method,
		TriggersList.Method,
		ScheduleList.Method, ScheduleAdd.Method, SchedulePause.Method, ScheduleResume.Method, ScheduleRemove.Method, ScheduleRun.Method,
		LoopList.Method, LoopRun.Method, LoopDisable.Method, LoopEnable.Method, LoopLogs.Method, IntegrationsList.Method,
		LoopUpload.Method, LoopInspect.Method, LoopInstall.Method, LoopRemove.Method, LoopSet.Method, LoopVerify.Method,
		TrustList.Method, TrustChange.Method,
		MCPClientAdd.Method, MCPClientList.Method, MCPClientRemove.Method, MCPClientLend.Method,
		MCPServerAdd.Method, MCPServerList.Method, MCPServerTest.Method, MCPServerDiff.Method, MCPServerAccept.Method,
		MCPServerLogs.Method, MCPServerEnable.Method, MCPServerRemove.Method, MCPServerLogin.Method,
		AdapterAdd.Method, AdapterList.Method, AdapterRemove.Method,
		ChannelList.Method, ChannelKinds.Method, ChannelShow.Method, ChannelAdd.Method, ChannelSet.Method, ChannelPause.Method,
		ChannelResume.Method, ChannelTest.Method, ChannelRemove.Method, Send.Method, SendState.Method,
		DelegateStart.Method, DelegatePlan.Method, DelegateWait.Method, DelegateList.Method, DelegateShow.Method, DelegateApply.Method, DelegateDrop.Method,
		HarnessList.Method, HarnessProbe.Method, HarnessLogin.Method, HarnessRoutes.Method,
		UndoList.Method, UndoShow.Method, UndoRestore.Method,
		PairStart.Method, PairList.Method, PairAllow.Method, PairRemove.Method,
		ToolsAdd.Method, ToolsRemove.Method, ToolsTest.Method,
		SecretSet.Method, SecretList.Method, SecretRemove.Method,
		ToolsList.Method, LogsTail.Method, DoctorRun.Method, ConfigExplain.Method,
		VaultState.Method, VaultPassphrase.Method, VaultRotate.Method, VaultRecover.Method, VaultRecoveryKey.Method,
		BackupCreate.Method, RestorePending.Method, RestoreRelease.Method,
		RequestCancel.Method,
	}
}
