package wire

import "encoding/json"

// Event is one entry of the event log.
type Event struct {
	Position int64           `json:"position"`        // place in the log, from 1, in commit order
	ID       string          `json:"id"`              // evt_…
	Stream   string          `json:"stream"`          // what it is about, e.g. run:run_…
	Version  int64           `json:"version"`         // place in its stream, from 1
	Kind     string          `json:"kind"`            // e.g. comms.message
	At       int64           `json:"at"`              // Unix µs
	Actor    string          `json:"actor"`           // who did it
	Cause    string          `json:"cause,omitempty"` // id of the event that led to it
	Trace    string          `json:"trace,omitempty"` // groups all that one message led to
	Data     json.RawMessage `json:"data"`            // the kind's payload
}

// NoteName implements Note.
func (Event) NoteName() string { return "event" }

// EventsTailRequest follows the log.
type EventsTailRequest struct {
	After  *int64   `json:"after,omitempty"`  // begin behind this position; absent: at the end
	Kinds  []string `json:"kinds,omitempty"`  // exact kinds or "prefix.*"; empty: all
	Stream string   `json:"stream,omitempty"` // one stream; empty: all
	IdleS  int64    `json:"idle_s,omitempty"` // end after so many seconds without an event; 0: never
}

// EventsTailResult answers events.tail when its idle_s ran out.
type EventsTailResult struct {
	Position int64 `json:"position"` // of the last event sent, to go on from
}

// EventsListRequest reads a piece of the log.
type EventsListRequest struct {
	After  int64    `json:"after,omitempty"`  // begin behind this position
	Kinds  []string `json:"kinds,omitempty"`  // as in events.tail
	Stream string   `json:"stream,omitempty"` // as in events.tail
	Limit  int      `json:"limit,omitempty"`  // 0: 100, at most 1,000
}

// EventsListResult is in the order of positions.
type EventsListResult struct {
	Events []Event `json:"events"`
	Next   int64   `json:"next"` // value of after that reads on
	Head   int64   `json:"head"` // last position in the log
}

// AuditRef points at one entry of the audit chain.
type AuditRef struct {
	Chain string `json:"chain"` // which writer's chain
	Seq   int64  `json:"seq"`   // place in it, from 1
	Hash  string `json:"hash"`  // SHA-256 in hex
}

// AuditVerifyRequest asks for a check of the record.
type AuditVerifyRequest struct {
	Anchors string `json:"anchors,omitempty"` // absolute path of a file of anchors to hold it against, besides the configured one
}

// AuditVerifyResult is sent when everything holds; what does not is an error of
// class verification that names chain and seq.
type AuditVerifyResult struct {
	Entries     int64    `json:"entries"`        // entries checked, over all chains
	Chains      int64    `json:"chains"`         // chains checked
	Checkpoints int64    `json:"checkpoints"`    // signatures checked
	Anchors     int64    `json:"anchors"`        // places kept outside of the store that were found in it
	Head        AuditRef `json:"head"`           // last entry of the open chain
	DurationUS  int64    `json:"duration_us"`    // how long it took, µs
	Note        string   `json:"note,omitempty"` // what this check cannot see

	Restores int64 `json:"restores,omitempty"` // how often the store came out of a backup
	GivenUp  int64 `json:"given_up,omitempty"` // anchors from behind a backup that was restored: they are rightly missing
}

// AuditEntry is one entry of the record, read and not verified.
type AuditEntry struct {
	Ref          AuditRef `json:"ref"`              // where it is
	At           int64    `json:"at"`               // Unix µs
	Kind         string   `json:"kind"`             // what sort of act
	Actor        string   `json:"actor"`            // who did it
	Subject      string   `json:"subject"`          // by whose authority
	Tool         string   `json:"tool,omitempty"`   // if one was used
	Scopes       []string `json:"scopes"`           // what it needed; what a scope is about is hidden
	Outcome      string   `json:"outcome"`          // ok, denied, an error class
	Reason       string   `json:"reason,omitempty"` // short code of why
	Run          string   `json:"run,omitempty"`    // of which run
	Step         string   `json:"step,omitempty"`   // and step
	DurationUS   int64    `json:"duration_us"`      // how long it took, µs
	CostMicroUSD int64    `json:"cost_micro_usd"`   // millionths of a dollar
	Count        int64    `json:"count,omitempty"`  // how many equal acts it stands for, if several
	SignedBy     int64    `json:"signed_by"`        // seq of the checkpoint that covers it, 0: none yet
	Text         string   `json:"text,omitempty"`   // with audit.show: the canonical JSON that is hashed
}

// AuditTailRequest asks for the last entries.
type AuditTailRequest struct {
	Limit int `json:"limit,omitempty"` // 0: 20, at most 1000
}

// AuditTailResult is the last entries of all chains, oldest first.
type AuditTailResult struct {
	Entries []AuditEntry `json:"entries"`
}

// AuditShowRequest asks for one entry.
type AuditShowRequest struct {
	Chain string `json:"chain,omitempty"` // "": the newest chain that has it
	Seq   int64  `json:"seq"`
}

// AuditShowResult is the entry.
type AuditShowResult struct {
	Entry AuditEntry `json:"entry"`
}

// AuditAnchorResult is the signed end of the daemon's chain.
type AuditAnchorResult struct {
	Ref  AuditRef `json:"ref"`            // seq 0: the chain's opening
	Line string   `json:"line"`           // to be kept outside of the store, for audit verify --anchors
	File string   `json:"file,omitempty"` // the configured file, which has it now
}

// AuditLine is one line of an export, as package audit wrote it.
type AuditLine struct {
	Line json.RawMessage `json:"line"`
}

// NoteName implements Note.
func (AuditLine) NoteName() string { return "audit.line" }

// AuditExportResult ends an export.
type AuditExportResult struct {
	Lines     int64  `json:"lines"`      // notes sent before this
	PublicKey string `json:"public_key"` // Ed25519 in hex, for `audit verify FILE --pubkey`
}

// CostReportRequest asks what was spent.
type CostReportRequest struct {
	Days int `json:"days,omitempty"` // how many local days up to today; 0: 7, at most 366
}

// CostReportResult is what was spent, newest day first.
type CostReportResult struct {
	Days  []CostDay `json:"days"`
	Total Cost      `json:"total"`
}

// CostDay is one local date.
type CostDay struct {
	Date   string      `json:"date"` // YYYY-MM-DD
	Total  Cost        `json:"total"`
	Models []CostModel `json:"models"` // dearest first
}

// CostModel is one model on one day.
type CostModel struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
	Cost     Cost   `json:"cost"`
}

// Cost is an amount of use. Unpriced calls are counted, never priced at zero.
type Cost struct {
	MicroUSD         int64 `json:"microusd"`           // millionths of a US dollar, of what has a price
	Calls            int64 `json:"calls"`              // all calls
	Unpriced         int64 `json:"unpriced"`           // calls whose price is unknown
	InputTokens      int64 `json:"input_tokens"`       // without cached ones
	OutputTokens     int64 `json:"output_tokens"`      //
	CacheReadTokens  int64 `json:"cache_read_tokens"`  //
	CacheWriteTokens int64 `json:"cache_write_tokens"` //
}

// MemoryFact is one remembered thing.
type MemoryFact struct {
	ID         string  `json:"id"`
	Text       string  `json:"text"`
	Kind       string  `json:"kind"`                 // fact, episode, profile
	Source     string  `json:"source"`               // its label's source
	Cause      string  `json:"cause,omitempty"`      // event or run it came from
	Importance int     `json:"importance"`           // 0 to 10
	Pinned     bool    `json:"pinned,omitempty"`     // never expires
	Version    int64   `json:"version"`              // from 1; only the newest is live
	At         int64   `json:"at"`                   // of this version, Unix µs
	ExpiresAt  int64   `json:"expires_at,omitempty"` // Unix µs
	Score      float64 `json:"score,omitempty"`      // memory.search: rank value, higher is nearer
}

// MemoryListRequest lists live facts, newest first.
type MemoryListRequest struct {
	Kind   string `json:"kind,omitempty"`   // empty: all
	Before string `json:"before,omitempty"` // id to go on behind
	Limit  int    `json:"limit,omitempty"`  // 0: 100, at most 1,000
}

// MemorySearchRequest recalls.
type MemorySearchRequest struct {
	Query string `json:"query"`
	Limit int    `json:"limit,omitempty"` // 0: 10, at most 100
}

// MemoryResult answers memory.list and memory.search.
type MemoryResult struct {
	Facts []MemoryFact `json:"facts"`
	Index string       `json:"index,omitempty"` // "warming" while not all is indexed yet
}

// Tool is one tool of the registry.
type Tool struct {
	Name         string          `json:"name"` // canonical, with dots
	Description  string          `json:"description"`
	Kind         string          `json:"kind"`                  // "local" or "effect"
	ReadOnly     bool            `json:"read_only"`             //
	Irreversible bool            `json:"irreversible"`          //
	Repeat       string          `json:"repeat"`                // at_most_once, repeatable, probed
	TimeoutUS    int64           `json:"timeout_us"`            // µs
	Access       string          `json:"access"`                // for the default agent: allow, ask, deny; may depend on the input
	Quarantined  string          `json:"quarantined,omitempty"` // why it cannot be used
	Input        json.RawMessage `json:"input,omitempty"`       // JSON Schema of its input
}

// ToolsListResult answers tools.list, by name.
type ToolsListResult struct {
	Tools     []Tool        `json:"tools"`
	Processes []ToolProcess `json:"processes,omitempty"` // the programs of others that some of them are in
}
