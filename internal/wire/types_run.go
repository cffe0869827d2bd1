package wire

import "encoding/json"

// Run is any piece of work that takes steps.
type Run struct {
	ID           string   `json:"id"`                     // run_…
	Kind         string   `json:"kind"`                   // turn, call, …
	Name         string   `json:"name"`                   // of its definition, or for people
	Definition   string   `json:"definition,omitempty"`   // what it was started from, pinned for its life
	State        string   `json:"state"`                  // queued, running, waiting, uncertain, cancelling, completed, failed, cancelled
	Wait         string   `json:"wait,omitempty"`         // in waiting: timer, signal, approval, retry, run, several
	WaitsFor     string   `json:"waits_for,omitempty"`    // for a person: what keeps it
	KeptBack     bool     `json:"kept_back,omitempty"`    // its kind or its definition is missing here; it goes on when that is back
	Key          string   `json:"key,omitempty"`          // runs of one key are in order
	Conversation string   `json:"conversation,omitempty"` // of a turn
	Parent       string   `json:"parent,omitempty"`       // run it is part of
	Cause        string   `json:"cause,omitempty"`        // event that started it
	Attempt      int      `json:"attempt"`                // from 1
	Steps        int      `json:"steps"`                  // recorded so far
	Unknown      int      `json:"unknown"`                // steps whose outcome is unknown
	CostMicroUSD int64    `json:"cost_microusd"`          // of its steps, as far as known
	CostKnown    bool     `json:"cost_known"`             // false: cost is a lower bound
	CreatedAt    int64    `json:"created_at"`             // Unix µs
	StartedAt    int64    `json:"started_at,omitempty"`   // Unix µs, of the first attempt
	EndedAt      int64    `json:"ended_at,omitempty"`     // Unix µs
	NextAt       int64    `json:"next_at,omitempty"`      // Unix µs, when a timer or retry is due
	Owner        string   `json:"owner,omitempty"`        // node that has it
	Error        *Problem `json:"error,omitempty"`

	Progress *RunProgress `json:"progress,omitempty"` // what it last told of itself
}

// RunProgress is how far a run says it has come.
type RunProgress struct {
	Text  string `json:"text"`
	Done  int    `json:"done"`  // of total, in a unit of its own
	Total int    `json:"total"` // 0: not known
	At    int64  `json:"at"`    // Unix µs
}

// RunStep is one recorded step of a run.
type RunStep struct {
	Name      string          `json:"name"`               // stable within the run: model/1, tool/1.2, reply
	Seq       int64           `json:"seq"`                // order of recording, from 1
	Kind      string          `json:"kind"`               // model, tool, reply, timer, …
	Policy    string          `json:"policy"`             // repeatable, noted, probe, at_most_once
	State     string          `json:"state"`              // open, done, failed, unknown, refused
	Attempts  int             `json:"attempts"`           // how often it was begun
	StartedAt int64           `json:"started_at"`         // Unix µs
	EndedAt   int64           `json:"ended_at,omitempty"` // Unix µs
	Result    json.RawMessage `json:"result,omitempty"`   // recorded outcome, cut to 64 KiB in a list
	Error     *Problem        `json:"error,omitempty"`
	Call      *Call           `json:"call,omitempty"`  // a tool step
	Model     *ModelCall      `json:"model,omitempty"` // a model step
	Audit     []AuditRef      `json:"audit"`           // what the audit chain has on it
	Label     *LabelStep      `json:"label,omitempty"` // the way of the label through it
	Kept      []Checkpoint    `json:"kept,omitempty"`  // what was kept of the work trees it may have changed
}

// LabelStep is what a step did with the label of its run: who wrote what the run
// holds, and who may read it.
type LabelStep struct {
	In       string   `json:"in,omitempty"`       // before it
	Out      string   `json:"out"`                // behind it
	From     []string `json:"from,omitempty"`     // the parts that brought something new
	Told     string   `json:"told,omitempty"`     // whom it told something
	Rule     string   `json:"rule,omitempty"`     // the rule of the labels that held it back
	Warnings []string `json:"warnings,omitempty"` // phrases in others' words that read like orders; nothing is decided by them
}

// Call is what a tool step did and who allowed it.
type Call struct {
	Tool         string   `json:"tool"`                  // canonical name
	Definition   string   `json:"definition"`            // digest of the definition it ran on
	Subject      string   `json:"subject"`               // who acted
	Summary      string   `json:"summary"`               // one line, for a person
	Scopes       []string `json:"scopes"`                // what it needed
	Decision     string   `json:"decision"`              // allow, ask, deny
	Reasons      []Reason `json:"reasons"`               // why
	ApprovalID   string   `json:"approval_id,omitempty"` // the question it led to
	Resolver     string   `json:"resolver,omitempty"`    // who answered it
	Outcome      string   `json:"outcome"`               // ok, error, refused, timeout, unknown
	ResultBytes  int64    `json:"result_bytes"`          // of the whole result
	BlobID       string   `json:"blob_id,omitempty"`     // where the whole result is
	CostMicroUSD int64    `json:"cost_microusd"`         //
	CostKnown    bool     `json:"cost_known"`            //
	Label        string   `json:"label,omitempty"`       // who wrote the result and who may read it
}

// Reason is one ground of a decision.
type Reason struct {
	Code  string `json:"code"`            // stable: grant, role, tier, label, …
	Text  string `json:"text"`            // for a person
	Scope string `json:"scope,omitempty"` // which scope it is about
}

// ModelCall is what a model step cost.
type ModelCall struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
	Stop     string `json:"stop"`            // why the model stopped
	Cost     Cost   `json:"cost"`            //
	Asks     int    `json:"asks"`            // how often it was asked; over 1 after a crash or a retry
	Calls    int    `json:"calls,omitempty"` // tool calls it wanted
}

// RunsListRequest selects runs, newest first.
type RunsListRequest struct {
	State  string `json:"state,omitempty"`  // empty: all; "live": every unfinished state
	Kind   string `json:"kind,omitempty"`   // empty: all
	Limit  int    `json:"limit,omitempty"`  // 0: 50, at most 1,000
	Before string `json:"before,omitempty"` // id of a run to go on behind
}

// RunsListResult answers runs.list.
type RunsListResult struct {
	Runs []Run `json:"runs"`
}

// RunsGetRequest names a run.
type RunsGetRequest struct {
	ID string `json:"id"` // whole, or an unambiguous beginning
}

// RunsGetResult is one run with its steps in order.
type RunsGetResult struct {
	Run   Run       `json:"run"`
	Steps []RunStep `json:"steps"`
}

// RunsWatchRequest follows a run from now on; one that has ended answers at once.
type RunsWatchRequest struct {
	ID string `json:"id"` // whole, or an unambiguous beginning
}

// RunNote is what runs.watch sends: RunMoved or RunStepped.
type RunNote interface {
	Note
	runNote()
}

// RunMoved is the run as it stands now: its state, what it waits for or its progress
// has changed.
type RunMoved struct {
	Run Run `json:"run"`
}

// RunStepped is a step that was begun or has ended.
type RunStepped struct {
	Step RunStep `json:"step"`
}

// NoteName implements Note.
func (RunMoved) NoteName() string { return "runs.moved" }

// NoteName implements Note.
func (RunStepped) NoteName() string { return "runs.stepped" }

func (RunMoved) runNote()   {}
func (RunStepped) runNote() {}

// RunsSignalRequest sends a run a signal. It is kept until the run waits for it.
type RunsSignalRequest struct {
	ID      string          `json:"id"`                // whole, or an unambiguous beginning
	Name    string          `json:"name"`              // what the run waits for by this name
	Payload json.RawMessage `json:"payload,omitempty"` // at most 256 KiB; empty: null
}

// RunsSignalResult is the run after the signal was stored.
type RunsSignalResult struct {
	Run Run `json:"run"`
}

// The decisions of runs.resolve.
const (
	ResolveRetry  = "retry"  // do the unknown step again
	ResolveDone   = "done"   // it happened
	ResolveFailed = "failed" // it did not
	ResolveCancel = "cancel" // end the run
)

// RunsResolveRequest settles an uncertain run.
type RunsResolveRequest struct {
	ID       string `json:"id"`
	Decision string `json:"decision"`       // ResolveRetry, ResolveDone, ResolveFailed or ResolveCancel
	Note     string `json:"note,omitempty"` // recorded
}

// RunsResolveResult is the run after the decision.
type RunsResolveResult struct {
	Run Run `json:"run"`
}

// RunsVerifyResult compares the event log, folded, with the rows.
type RunsVerifyResult struct {
	Runs       int64         `json:"runs"`        // compared
	Steps      int64         `json:"steps"`       // compared
	Mismatches []RunMismatch `json:"mismatches"`  // first 100
	DurationUS int64         `json:"duration_us"` // µs
}

// RunMismatch is a row that its events do not lead to.
type RunMismatch struct {
	RunID string `json:"run_id"`
	What  string `json:"what"`  // which row and column
	Rows  string `json:"rows"`  // what the row says
	Event string `json:"event"` // what the events say
}

// RunsReceiptRequest names a run that has ended.
type RunsReceiptRequest struct {
	ID string `json:"id"` // whole, or an unambiguous beginning
}

// RunsReceiptResult is the receipt, as package run wrote it.
type RunsReceiptResult struct {
	Receipt json.RawMessage `json:"receipt"`
}

// ExplainRequest asks for the life of anything that has an id.
type ExplainRequest struct {
	ID string `json:"id"` // an event, run, approval, outbox or conversation id, or "last": the last message that somebody sent
}

// Explanation is the life of one message, from its arrival to the delivery of
// its reply. What does not apply, or is not there yet, is absent.
type Explanation struct {
	Asked            string        `json:"asked"`                       // the id explained, "last" resolved
	Event            *Event        `json:"event,omitempty"`             // the message as it came
	Conversation     *Conversation `json:"conversation,omitempty"`      //
	Run              *Run          `json:"run,omitempty"`               // the turn
	Steps            []RunStep     `json:"steps"`                       // with calls, scopes, decisions, audit numbers, cost
	Approvals        []Approval    `json:"approvals"`                   // asked by it
	Reply            string        `json:"reply,omitempty"`             // final text
	Withheld         string        `json:"withheld,omitempty"`          // the answer that was kept from the conversation
	Outcome          string        `json:"outcome,omitempty"`           // as in TurnResult
	Deliveries       []Delivery    `json:"deliveries"`                  // of the reply
	Related          []Event       `json:"related"`                     // other events of the same trace, in order, at most 200
	CostMicroUSD     int64         `json:"cost_microusd"`               // all together, as far as known
	CostKnown        bool          `json:"cost_known"`                  //
	PossibleMicroUSD int64         `json:"possible_microusd,omitempty"` // it may have cost beside that, of a coding agent that was ended
	DurationUS       int64         `json:"duration_us"`                 // arrival to end of the turn, or to now, µs
	Left             []string      `json:"left"`                        // what is still to be done, for a person
}

// Delivery is one message in the outbox.
type Delivery struct {
	ID        string   `json:"id"`
	Channel   string   `json:"channel"`
	Recipient string   `json:"recipient"`         // for a person
	State     string   `json:"state"`             // queued, sending, sent, retrying, failed, uncertain
	Attempts  int      `json:"attempts"`          //
	QueuedAt  int64    `json:"queued_at"`         // Unix µs
	SentAt    int64    `json:"sent_at,omitempty"` // Unix µs
	NextAt    int64    `json:"next_at,omitempty"` // Unix µs, of the next attempt
	Receipt   string   `json:"receipt,omitempty"` // the channel's own id of the message
	Error     *Problem `json:"error,omitempty"`
}
