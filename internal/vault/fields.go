package vault

// Field is one column whose content the vault protects. Its number is part of
// what a sealed value is bound to: never change or reuse one, only append.
type Field uint16

// kind says what may be done with a field.
type kind uint8

const (
	sealed kind = iota + 1 // Seal and Open: stored, never compared
	blind                  // Blind: compared, never read back
)

// Domain groups fields under one derived key.
type domain string

const (
	domainEvent    domain = "event"
	domainRun      domain = "run"
	domainTalk     domain = "conversation"
	domainBlob     domain = "blob"
	domainMemory   domain = "memory"
	domainApproval domain = "approval"
	domainGrant    domain = "grant"
	domainSecret   domain = "secret"
)

// The sealed fields.
const (
	EventData           Field = 1
	EventSalt           Field = 2
	StepInput           Field = 3
	StepResult          Field = 4
	StepError           Field = 5
	MessageText         Field = 6
	BlobPiece           Field = 7
	MemoryText          Field = 8
	OutboxBody          Field = 9
	ApprovalInput       Field = 10
	ApprovalSummary     Field = 11
	RunInput            Field = 12
	RunResult           Field = 13
	InboundBody         Field = 14
	HistoryText         Field = 15
	ConversationTitle   Field = 16
	ConversationAddress Field = 17 // channel, account, chat and thread as the channel names them
	ConversationSummary Field = 18
	RunError            Field = 19
	TimerPayload        Field = 20
	BlockedError        Field = 21
	DeadLetterError     Field = 22
	ApprovalDetails     Field = 23 // scopes and reasons
	ApprovalNote        Field = 24
	OutboxError         Field = 25
	OutboxRef           Field = 26 // the channel's own id of what was delivered
	MemoryLabel         Field = 27
	ResultLabel         Field = 28
	FileLabel           Field = 29
	GrantBody           Field = 30 // subject, scope, effect and the rest of a grant
	LevelBody           Field = 31
	ApprovalAnswer      Field = 32 // what a person filled in with a yes
	JobBody             Field = 40 // what a job may do, and the label of what it has seen
	SenderBody          Field = 41 // who a known sender is, as the channel names them
	SecretBody          Field = 50 // the value of a secret, where it may be sent and who set it
	ToolProcessBody     Field = 53 // its command, its walls and the scopes it may ask for
	ToolProcessKnown    Field = 54 // the tools it registered last
	CheckpointBody      Field = 56 // whose work tree it is of, for which call, and what it lacks
	ScheduleBody        Field = 60 // its name, when, and what it starts
	ScheduleError       Field = 61 // why it last started nothing
	RecipeText          Field = 75 // what a recipe says
	RecipeFile          Field = 76 // where a recipe is, and what is wrong with its file
	LoopNoteBody        Field = 67 // an entry of a loop's short memory
	LoopLogText         Field = 68
	IntegrationReason   Field = 69 // why an integration stands as it does
	TargetBody          Field = 63 // what is started, and what starts it
	SignedPiece         Field = 77 // a piece of the file of a signed loop
	SignedLoop          Field = 78 // as what a signed loop was approved, and its settings
	SignedTrust         Field = 79 // whose signature counts, by whom and since when
	ChannelBody         Field = 80 // the settings of a channel
	ChannelCursor       Field = 81 // where its network goes on from
	ChannelPiece        Field = 82 // a part of a message as it is sent
	ChannelRef          Field = 83 // the network's id of it
	AdapterSettings     Field = 84 // what the operator has said of an adapter
	DelegationSession   Field = 86 // what a coding agent remembers, where, and what it has cost
	DelegationBody      Field = 87 // for whom and where one worked
	DelegationRecord    Field = 88 // what its program told, and the patch it left
	MCPBody             Field = 90 // how a server of MCP is reached, and what it is given
	MCPPinned           Field = 91 // what the operator accepted of what it offers
	MCPOffered          Field = 92 // what it offered last
	MCPLogin            Field = 93 // the tokens it takes
	SignalPayload       Field = 72 // what was sent to a run
	RunProgress         Field = 73 // how far it has come, in its own words
)

// The blind fields.
const (
	InboundDedupe   Field = 100
	ConversationKey Field = 101 // channel + account + chat + thread
	OutboxRecipient Field = 102
	MemoryKey       Field = 103
	MemorySlot      Field = 104 // what a fact says the value of
	FilePath        Field = 105 // absolute, without links
	GrantScope      Field = 110
	JobCallKey      Field = 120
	SenderKey       Field = 121 // channel + account + the provider's user id
	CheckpointRepo  Field = 132 // the git directory of a work tree
	ScheduleKey     Field = 134 // owner + name
	LoopNoteGroup   Field = 136 // subject + group of short memory
	LoopNoteEntry   Field = 137 // subject + group + key
	MCPCallKey      Field = 139 // client + the key it gave its call
	DelegationKey   Field = 141 // that a client gave its task
	HookKey         Field = 135 // route + the sender's id of a call, or what it sent
)

type fieldInfo struct {
	name   string // "table.column" without the plural s of the table
	domain domain
	kind   kind
}

// fields is the whole table. A test holds its numbers and names to be unique.
var fields = map[Field]fieldInfo{
	EventData:           {"event.data", domainEvent, sealed},
	EventSalt:           {"event.salt", domainEvent, sealed},
	StepInput:           {"step.input", domainRun, sealed},
	StepResult:          {"step.result", domainRun, sealed},
	StepError:           {"step.error", domainRun, sealed},
	MessageText:         {"message.text", domainTalk, sealed},
	BlobPiece:           {"blob.piece", domainBlob, sealed},
	MemoryText:          {"memory.text", domainMemory, sealed},
	OutboxBody:          {"outbox.body", domainTalk, sealed},
	ApprovalInput:       {"approval.input", domainApproval, sealed},
	ApprovalSummary:     {"approval.summary", domainApproval, sealed},
	RunInput:            {"run.input", domainRun, sealed},
	RunResult:           {"run.result", domainRun, sealed},
	InboundBody:         {"inbound.body", domainTalk, sealed},
	HistoryText:         {"history.text", domainTalk, sealed},
	ConversationTitle:   {"conversation.title", domainTalk, sealed},
	ConversationAddress: {"conversation.address", domainTalk, sealed},
	ConversationSummary: {"conversation.summary", domainTalk, sealed},
	RunError:            {"run.error", domainRun, sealed},
	TimerPayload:        {"timer.payload", domainRun, sealed},
	BlockedError:        {"blocked.error", domainEvent, sealed},
	DeadLetterError:     {"dead_letter.error", domainEvent, sealed},
	ApprovalDetails:     {"approval.details", domainApproval, sealed},
	ApprovalNote:        {"approval.note", domainApproval, sealed},
	ApprovalAnswer:      {"approval.answer", domainApproval, sealed},
	OutboxError:         {"outbox.error", domainTalk, sealed},
	OutboxRef:           {"outbox.ref", domainTalk, sealed},
	MemoryLabel:         {"memory.label", domainMemory, sealed},
	ResultLabel:         {"result.label", domainRun, sealed},
	FileLabel:           {"file_label.label", domainRun, sealed},
	GrantBody:           {"grant.body", domainGrant, sealed},
	LevelBody:           {"level.body", domainGrant, sealed},
	JobBody:             {"job.body", domainGrant, sealed},
	SenderBody:          {"sender.body", domainGrant, sealed},
	SecretBody:          {"secret.body", domainSecret, sealed},
	ToolProcessBody:     {"tool_process.body", domainGrant, sealed},
	ToolProcessKnown:    {"tool_process.registered", domainGrant, sealed},
	DelegationSession:   {"delegation_session.body", domainRun, sealed},
	DelegationBody:      {"delegation.body", domainRun, sealed},
	DelegationRecord:    {"delegation.record", domainRun, sealed},
	MCPBody:             {"mcp_server.body", domainGrant, sealed},
	MCPPinned:           {"mcp_server.pinned", domainGrant, sealed},
	MCPOffered:          {"mcp_server.offered", domainGrant, sealed},
	MCPLogin:            {"mcp_server.login", domainSecret, sealed},
	CheckpointBody:      {"checkpoint.body", domainRun, sealed},
	ScheduleBody:        {"schedule.body", domainRun, sealed},
	ScheduleError:       {"schedule.error", domainRun, sealed},
	RecipeText:          {"recipe_definition.body", domainRun, sealed},
	RecipeFile:          {"recipe_file.body", domainRun, sealed},
	SignedPiece:         {"signed_piece.data", domainRun, sealed},
	SignedLoop:          {"signed_loop.body", domainGrant, sealed},
	SignedTrust:         {"signed_trust.body", domainGrant, sealed},
	ChannelBody:         {"channel.body", domainGrant, sealed},
	ChannelCursor:       {"channel.cursor", domainTalk, sealed},
	ChannelPiece:        {"channel_piece.body", domainTalk, sealed},
	ChannelRef:          {"channel_piece.ref", domainTalk, sealed},
	AdapterSettings:     {"adapter.settings", domainGrant, sealed},
	LoopNoteBody:        {"loop_note.body", domainRun, sealed},
	LoopLogText:         {"loop_log.text", domainRun, sealed},
	IntegrationReason:   {"integration.reason", domainRun, sealed},
	TargetBody:          {"target.body", domainRun, sealed},
	SignalPayload:       {"signal.payload", domainRun, sealed},
	RunProgress:         {"run.progress", domainRun, sealed},

	InboundDedupe:   {"inbound.dedupe", domainTalk, blind},
	ConversationKey: {"conversation.key", domainTalk, blind},
	OutboxRecipient: {"outbox.recipient", domainTalk, blind},
	MemoryKey:       {"memory.key", domainMemory, blind},
	MemorySlot:      {"memory.slot", domainMemory, blind},
	FilePath:        {"file_label.path", domainRun, blind},
	GrantScope:      {"grant.scope", domainGrant, blind},
	MCPCallKey:      {"mcp_call.key", domainGrant, blind},
	DelegationKey:   {"delegation.key", domainRun, blind},
	JobCallKey:      {"job_call.key", domainGrant, blind},
	SenderKey:       {"sender.key", domainGrant, blind},
	CheckpointRepo:  {"checkpoint.repository", domainRun, blind},
	ScheduleKey:     {"schedule.key", domainRun, blind},
	LoopNoteGroup:   {"loop_note.grp", domainRun, blind},
	LoopNoteEntry:   {"loop_note.entry", domainRun, blind},
	HookKey:         {"hook.key", domainRun, blind},
}

// String returns the name of the field for people.
func (f Field) String() string {
	if info, ok := fields[f]; ok {
		return info.name
	}
	return "unknown field"
}

// columns are where the sealed fields are kept, by the names of the schema. The
// names of fields are part of what was derived from them and stay as they are.
var columns = map[Field]string{
	EventData:           "events.data",
	BlockedError:        "blocked.error",
	DeadLetterError:     "dead_letters.error",
	BlobPiece:           "blob_pieces.data",
	RunInput:            "runs.input",
	RunResult:           "runs.result",
	RunError:            "runs.error",
	StepResult:          "steps.result",
	StepError:           "steps.error",
	TimerPayload:        "timers.payload",
	ApprovalSummary:     "approvals.summary",
	ApprovalInput:       "approvals.input",
	ApprovalDetails:     "approvals.details",
	ApprovalNote:        "approvals.note",
	ApprovalAnswer:      "approvals.answer",
	OutboxBody:          "outbox.body",
	OutboxRef:           "outbox.ref",
	OutboxError:         "outbox.error",
	ConversationTitle:   "conversations.title",
	ConversationAddress: "conversations.address",
	InboundBody:         "inbound.notice",
	HistoryText:         "history.body",
	MemoryText:          "memories.text",
	MemoryLabel:         "memories.label",
	ResultLabel:         "results.label",
	FileLabel:           "file_labels.label",
	GrantBody:           "grants.body",
	LevelBody:           "levels.body",
	JobBody:             "jobs.body",
	SenderBody:          "senders.body",
	SecretBody:          "secrets.body",
	ToolProcessBody:     "tool_processes.body",
	ToolProcessKnown:    "tool_processes.registered",
	DelegationSession:   "delegation_sessions.body",
	DelegationBody:      "delegations.body",
	DelegationRecord:    "delegations.record",
	MCPBody:             "mcp_servers.body",
	MCPPinned:           "mcp_servers.pinned",
	MCPOffered:          "mcp_servers.offered",
	MCPLogin:            "mcp_servers.login",
	CheckpointBody:      "checkpoints.body",
	ScheduleBody:        "schedules.body",
	ScheduleError:       "schedules.error",
	RecipeText:          "recipe_definitions.body",
	RecipeFile:          "recipe_files.body",
	SignedPiece:         "signed_pieces.data",
	SignedLoop:          "signed_loops.body",
	SignedTrust:         "signed_trust.body",
	ChannelBody:         "channels.body",
	ChannelCursor:       "channels.cursor",
	ChannelPiece:        "channel_pieces.body",
	ChannelRef:          "channel_pieces.ref",
	AdapterSettings:     "adapters.settings",
	LoopNoteBody:        "loop_notes.body",
	LoopLogText:         "loop_logs.text",
	IntegrationReason:   "integrations.reason",
	TargetBody:          "targets.body",
	SignalPayload:       "signals.payload",
	RunProgress:         "runs.progress",
}

// Column returns "table.column" of a field, as the schema calls it.
func (f Field) Column() string {
	if c, ok := columns[f]; ok {
		return c
	}
	return f.String()
}
