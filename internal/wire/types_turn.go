package wire

import "encoding/json"

// MessageSendRequest puts a message of the operator into a conversation.
type MessageSendRequest struct {
	Conversation string `json:"conversation,omitempty"` // empty: "main"
	Text         string `json:"text"`                   // at most 1 MiB of UTF-8
	Key          string `json:"key,omitempty"`          // idempotency key: the same key and text is one message however often it is sent; empty: each is new
	Wait         bool   `json:"wait,omitempty"`         // answer only when its turn has ended
}

// MessageSendResult is sent after the message is durable.
type MessageSendResult struct {
	EventID      string      `json:"event_id"`         // of the comms.message
	RunID        string      `json:"run_id,omitempty"` // its turn; empty when a control message needed none
	Conversation string      `json:"conversation"`
	Duplicate    bool        `json:"duplicate"`        // the key was known: the ids are those of the first time
	Notice       string      `json:"notice,omitempty"` // the answer to a control message (/stop, /new, yes, no)
	Result       *TurnResult `json:"result,omitempty"` // with wait: how the turn ended
}

// TurnWatchRequest follows a turn from now on; one that has ended answers at once.
type TurnWatchRequest struct {
	RunID string `json:"run_id"`
}

// TurnCancelRequest asks a turn to stop after the step it is in.
type TurnCancelRequest struct {
	RunID string `json:"run_id"`
}

// TurnCancelResult answers turn.cancel.
type TurnCancelResult struct {
	RunID string `json:"run_id"`
	State string `json:"state"` // state of the run after the request
	Moved bool   `json:"moved"` // false: it had ended already
}

// TurnNote is what turn.watch sends: TurnDelta, TurnStatus or TurnApproval.
type TurnNote interface {
	Note
	turnNote()
}

// TurnDelta is a piece of the reply as the model writes it. It is a hint for the
// eyes: pieces may be missing, and the reply of the result is what counts.
type TurnDelta struct {
	Text string `json:"text"`
}

// TurnStatus says what the turn does now.
type TurnStatus struct {
	State string `json:"state"`          // state of the run: queued, running, waiting, …
	Note  string `json:"note,omitempty"` // for a person: which step or tool
	// Trouble says that the turn is held up and Note tells by what: to be shown
	// even where nothing is streamed.
	Trouble bool `json:"trouble,omitempty"`
}

// TurnApproval says that the turn waits for the operator's decision.
type TurnApproval struct {
	ID        string `json:"id"`         // for approvals.resolve
	Summary   string `json:"summary"`    // what would be done, in one line
	ExpiresAt int64  `json:"expires_at"` // Unix µs

	Form *ApprovalForm `json:"form,omitempty"` // what has to be filled in to approve it
}

// NoteName implements Note.
func (TurnDelta) NoteName() string { return "turn.delta" }

// NoteName implements Note.
func (TurnStatus) NoteName() string { return "turn.status" }

// NoteName implements Note.
func (TurnApproval) NoteName() string { return "turn.approval" }

func (TurnDelta) turnNote()    {}
func (TurnStatus) turnNote()   {}
func (TurnApproval) turnNote() {}

// TurnResult is how a turn ended.
type TurnResult struct {
	RunID        string         `json:"run_id"`
	Outcome      string         `json:"outcome"`         // completed, cancelled, timed_out, step_limit, looping, escalated, parked, over_budget, failed
	Reply        string         `json:"reply"`           // the whole text, "" if there is none
	Approvals    []TurnApproval `json:"approvals"`       // still open: the turn or a parked call waits for them
	Error        *Problem       `json:"error,omitempty"` // why it did not complete
	CostMicroUSD int64          `json:"cost_microusd"`   // what is known to have been spent
	CostKnown    bool           `json:"cost_known"`      // false: some price is unknown and the cost is a lower bound
	ToolCalls    int            `json:"tool_calls"`      // calls made, refused ones included
}

// Approval is a question to the operator.
type Approval struct {
	ID           string   `json:"id"`
	State        string   `json:"state"`                  // open, approved, denied, expired, void
	Summary      string   `json:"summary"`                // what would be done, in one line
	Tool         string   `json:"tool"`                   // canonical name
	Subject      string   `json:"subject"`                // who wants it
	Conversation string   `json:"conversation,omitempty"` // where it was asked
	RunID        string   `json:"run_id"`                 // what waits for it
	Step         string   `json:"step"`                   // which step of it
	Scopes       []string `json:"scopes"`                 // what it needs
	Reasons      []Reason `json:"reasons"`                // why it is asked
	AskedAt      int64    `json:"asked_at"`               // Unix µs
	ExpiresAt    int64    `json:"expires_at"`             // Unix µs
	ResolvedAt   int64    `json:"resolved_at,omitempty"`  // Unix µs
	Resolver     string   `json:"resolver,omitempty"`     // who decided
	Note         string   `json:"note,omitempty"`         // what they said

	Form   *ApprovalForm   `json:"form,omitempty"`   // what has to be filled in to approve it
	Answer json.RawMessage `json:"answer,omitempty"` // what was
}

// ApprovalForm is what a person fills in with a yes. Its texts are others' words, clean.
type ApprovalForm struct {
	Fields []ApprovalField `json:"fields"` // in the order in which they are asked
	Schema json.RawMessage `json:"schema"` // the JSON Schema of the answer, as it was written
}

// ApprovalField is one thing to fill in.
type ApprovalField struct {
	Name        string           `json:"name"` // the key in the answer
	Title       string           `json:"title,omitempty"`
	Description string           `json:"description,omitempty"`
	Type        string           `json:"type"` // text, number, whole, yesno, choices (a list)
	What        string           `json:"what"` // for a person, such as "a whole number, 1 to 5"
	Required    bool             `json:"required,omitempty"`
	Default     json.RawMessage  `json:"default,omitempty"` // what it has if nothing is said
	Choices     []ApprovalChoice `json:"choices,omitempty"` // what a text or an item of a list can be
}

// ApprovalChoice is one of the texts a field can have.
type ApprovalChoice struct {
	Value string `json:"value"`           // as it is answered
	Title string `json:"title,omitempty"` // for a person; absent: the value
}

// ApprovalsListRequest selects approvals, newest first.
type ApprovalsListRequest struct {
	State string `json:"state,omitempty"` // empty: open; "all": every state
	Limit int    `json:"limit,omitempty"` // 0: 100, at most 1,000
}

// ApprovalsListResult answers approvals.list.
type ApprovalsListResult struct {
	Approvals []Approval `json:"approvals"`
	Notices   []string   `json:"notices,omitempty"` // what else waits for the operator to look at
}

// The decisions of approvals.resolve.
const (
	Approve = "approve"
	Deny    = "deny"
)

// ApprovalsResolveRequest decides one open approval, once.
type ApprovalsResolveRequest struct {
	ID       string `json:"id"`             // whole, or an unambiguous beginning
	Decision string `json:"decision"`       // Approve or Deny
	Note     string `json:"note,omitempty"` // told to the turn and recorded
	// Answer goes with Approve only. It may be left out where no field has to be filled in.
	Answer json.RawMessage `json:"answer,omitempty"` // what is filled in: an object of the fields of the form
	// Standing makes the answer hold for later calls that need the same scopes:
	// "conversation" there, "always" everywhere. Empty: for this call alone.
	Standing string `json:"standing,omitempty"`
}

// The values of ApprovalsResolveRequest.Standing.
const (
	StandingConversation = "conversation"
	StandingAlways       = "always"
)

// ApprovalsResolveResult is the approval as decided.
type ApprovalsResolveResult struct {
	Approval Approval `json:"approval"`
	RunID    string   `json:"run_id,omitempty"` // the run that now goes on, to be watched
	Grants   []Grant  `json:"grants"`           // the standing approvals it left
}

// Conversation is one chat with its own order and history.
type Conversation struct {
	ID        string `json:"id"`
	Name      string `json:"name"`               // what the operator calls it: main, …
	Channel   string `json:"channel"`            // local, …
	Messages  int64  `json:"messages"`           // since the last reset
	Queued    int64  `json:"queued"`             // messages not yet begun
	RunID     string `json:"run_id,omitempty"`   // the turn in progress
	CreatedAt int64  `json:"created_at"`         // Unix µs
	LastAt    int64  `json:"last_at"`            // of the last message either way, Unix µs
	ResetAt   int64  `json:"reset_at,omitempty"` // Unix µs
}

// ConversationsListRequest selects conversations, last used first.
type ConversationsListRequest struct {
	Limit int `json:"limit,omitempty"` // 0: 100, at most 1,000
}

// ConversationsListResult answers conversations.list.
type ConversationsListResult struct {
	Conversations []Conversation `json:"conversations"`
}

// ConversationsResetRequest starts a conversation afresh (/new): history and
// labels no longer reach a turn; nothing is deleted.
type ConversationsResetRequest struct {
	Conversation string `json:"conversation,omitempty"` // id or name; empty: "main"
}

// ConversationsResetResult answers conversations.reset.
type ConversationsResetResult struct {
	Conversation Conversation `json:"conversation"`
}
