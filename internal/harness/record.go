package harness

// Outcome says how a run ended.
type Outcome string

// The outcomes. Their text is stored: never rename one.
const (
	Completed   Outcome = "completed"   // the closing record says success
	Refused     Outcome = "refused"     // the model declined to answer
	Denied      Outcome = "denied"      // a refused permission ended the run
	Limit       Outcome = "limit"       // turns, budget or context ran out
	Auth        Outcome = "auth"        // no key, or one the API does not take
	Rejected    Outcome = "rejected"    // the API says the request itself is wrong; again will not help
	Unavailable Outcome = "unavailable" // the API is unreachable, overloaded or over its rate; later may work
	Failed      Outcome = "failed"      // the closing record says error and nothing says which
	Interrupted Outcome = "interrupted" // it was asked to stop and closed its record
	Killed      Outcome = "killed"      // a signal or its owner ended it before a closing record
	NotStarted  Outcome = "not_started" // it gave up before the run began: arguments, unknown session, directory
	Cut         Outcome = "cut"         // it ended by itself without a closing record
	Protocol    Outcome = "protocol"    // what it printed was not what its CLI prints
)

// Bounds of a record. Longer texts are cut at a character, longer lists end
// early and count what they leave out. A record holds less than
// 8 MiB of text whatever comes.
const (
	maxText     = 256 << 10 // the answer, bytes
	maxInput    = 4 << 10   // of one tool call, bytes
	maxOutput   = 2 << 10   // of one tool call, bytes
	maxError    = 4 << 10   // bytes
	maxWord     = 512       // ids, names, reasons, bytes
	maxPath     = 1 << 10   // bytes
	maxTools    = 500       // and permissions
	maxFiles    = 500
	maxWarnings = 64
)

// Record is what one run of a coding CLI told. A field is empty if it was not
// told.
type Record struct {
	CLI     Name   `json:"cli"`
	Version string `json:"version,omitempty"`
	Session string `json:"session,omitempty"`
	Model   string `json:"model,omitempty"`

	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason,omitempty"` // the CLI's own word for it
	Status  int     `json:"status,omitempty"` // HTTP status of the API's error
	Error   string  `json:"error,omitempty"`

	Text    string `json:"text,omitempty"`    // what it said last; the answer if completed
	Turns   int    `json:"turns,omitempty"`   // as the CLI counts them
	Retries int    `json:"retries,omitempty"` // that it told; some retry silently

	Tools       []Tool       `json:"tools,omitempty"`
	Files       []File       `json:"files,omitempty"`
	Permissions []Permission `json:"permissions,omitempty"`
	Omitted     int          `json:"omitted,omitempty"` // tools, files and permissions beyond the bounds

	Usage    Usage     `json:"usage"`
	Cost     Cost      `json:"cost"`
	Warnings []Warning `json:"warnings,omitempty"`

	ExitCode int `json:"exit_code"`
	Signal   int `json:"signal,omitempty"`
}

// ToolOutcome says what became of a tool call.
type ToolOutcome string

// The outcomes of a tool call.
const (
	ToolOK         ToolOutcome = "ok"
	ToolError      ToolOutcome = "error"
	ToolDenied     ToolOutcome = "denied"
	ToolUnfinished ToolOutcome = "unfinished" // no result was seen
)

// Tool is one call of one of the CLI's tools. codex exec tells nothing of a
// sandboxed command that failed, so its list may be short.
type Tool struct {
	ID      string      `json:"id"`
	Name    string      `json:"name"`
	Input   string      `json:"input,omitempty"`  // JSON, or a command line from codex
	Output  string      `json:"output,omitempty"` // what was shown of it, or the error
	Outcome ToolOutcome `json:"outcome"`

	path string // the file a writing tool names
}

// File is a file the run says it changed, by the path it gave: relative to its
// directory, or absolute.
type File struct {
	Path string `json:"path"`
	Kind string `json:"kind,omitempty"` // the CLI's word: write, edit, add, …
}

// Decision says what became of a permission.
type Decision string

// The decisions.
const (
	Asked   Decision = "asked" // no answer was seen
	Allowed Decision = "allowed"
	Refusal Decision = "denied"
)

// Permission is a leave the run asked for, or was refused without asking.
type Permission struct {
	ToolID   string   `json:"tool_id,omitempty"`
	Tool     string   `json:"tool,omitempty"`
	Input    string   `json:"input,omitempty"`
	Decision Decision `json:"decision"`
}

// Usage counts tokens. The four counts do not overlap, except that Reasoning is
// part of Output where codex tells it.
type Usage struct {
	Known      bool  `json:"known"`
	Cumulative bool  `json:"cumulative,omitempty"` // over the session, not this run
	Partial    bool  `json:"partial,omitempty"`    // the run used more than was told
	Input      int64 `json:"input,omitempty"`      // not from a cache
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	Output     int64 `json:"output,omitempty"`
	Reasoning  int64 `json:"reasoning,omitempty"`
	Context    int64 `json:"context,omitempty"` // of Partial: tokens the last response that was seen was made from
}

// add adds the counts of another.
func (u *Usage) add(v Usage) {
	u.Input = clampAdd(u.Input, v.Input)
	u.CacheRead = clampAdd(u.CacheRead, v.CacheRead)
	u.CacheWrite = clampAdd(u.CacheWrite, v.CacheWrite)
	u.Output = clampAdd(u.Output, v.Output)
	u.Reasoning = clampAdd(u.Reasoning, v.Reasoning)
}

// Cost is money, in millionths of a US dollar, at the CLI's list prices.
type Cost struct {
	Known      bool  `json:"known"`
	Cumulative bool  `json:"cumulative,omitempty"` // over the session, not this run
	MicroUSD   int64 `json:"micro_usd,omitempty"`
}

// Warning counts one thing about the output that was not as known.
type Warning struct {
	Kind   WarningKind `json:"kind"`
	Detail string      `json:"detail,omitempty"`
	Count  int         `json:"count"`
}

// WarningKind says what a warning is about.
type WarningKind string

// The kinds of warning. Detail is given in brackets.
const (
	WarnUntested    WarningKind = "untested_version" // not tested with this version [text]
	WarnUnknown     WarningKind = "unknown_record"   // passed over [its type]
	WarnNotJSON     WarningKind = "not_json"         // a line that is no JSON object, passed over
	WarnHalfLine    WarningKind = "half_line"        // the last line has no end
	WarnLongLine    WarningKind = "long_line"        // beyond MaxLine, dropped
	WarnOddShape    WarningKind = "odd_shape"        // a known field of another type, taken as empty [field]
	WarnCut         WarningKind = "text_cut"         // beyond a bound, shortened [what]
	WarnNotice      WarningKind = "notice"           // an error the CLI told and went on after [text]
	WarnExit        WarningKind = "exit"             // the closing record says success, the process end does not
	WarnCachedInput WarningKind = "input_has_cache"  // input tokens include cached ones that are not told apart
)
