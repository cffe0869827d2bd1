package wire

// DelegateRequest is a task for a coding agent. Empty fields leave the choice.
type DelegateRequest struct {
	Prompt     string   `json:"prompt"`
	Harness    string   `json:"harness,omitempty"`    // claude, codex, gemini, opencode, pi or another that is set up
	Model      string   `json:"model,omitempty"`      // of its vendor
	Dir        string   `json:"dir,omitempty"`        // absolute; default the workspace
	Write      bool     `json:"write,omitempty"`      // it may change files, in a git worktree of its own
	Session    string   `json:"session,omitempty"`    // ses_… of an earlier one, to go on with it
	Background bool     `json:"background,omitempty"` // its end is told in the conversation main
	Ephemeral  bool     `json:"ephemeral,omitempty"`  // what the program remembers is deleted afterwards
	TimeoutS   int      `json:"timeout_s,omitempty"`  // it may work, at most what is configured
	Tools      []string `json:"tools,omitempty"`      // of ombud, names or name.*
	Checks     []string `json:"checks,omitempty"`     // commands that are run where it wrote, afterwards
	Allow      string   `json:"allow,omitempty"`      // what it may do without asking: "edits" or "all"
	Key        string   `json:"key,omitempty"`        // the same key is the same task, however often it is sent; empty: each is new
}

// DelegateResult answers delegate.start.
type DelegateResult struct {
	RunID     string `json:"run_id"`
	SessionID string `json:"session_id"`
	Route     string `json:"route"`               // harness or harness/model
	Why       string `json:"why"`                 // that route
	Duplicate bool   `json:"duplicate,omitempty"` // the key was known: the ids are those of the first time
}

// DelegatePlanResult answers delegate.plan. Money is micro-USD.
type DelegatePlanResult struct {
	Route         string       `json:"route"`
	Why           string       `json:"why"`
	Program       string       `json:"program"`
	Dir           string       `json:"dir"`
	Write         bool         `json:"write,omitempty"`
	Asks          bool         `json:"asks"` // the program asks before it changes or runs something
	Scopes        []PlanScope  `json:"scopes"`
	LimitMicroUSD int64        `json:"limit_micro_usd"` // of this one; 0: only the budgets limit it
	Cost          CostEstimate `json:"cost"`
	Version       string       `json:"version,omitempty"`
	Login         string       `json:"login"` // yes, no or unknown
	Warnings      []string     `json:"warnings,omitempty"`
}

// PlanScope is a scope a task needs, and what the default agent would get for it.
type PlanScope struct {
	Scope string `json:"scope"`
	Agent string `json:"agent"` // allow, ask or deny
}

// CostEstimate is what the last delegations by a harness cost.
type CostEstimate struct {
	Known          int   `json:"known"` // how many; 0: nobody knows
	MedianMicroUSD int64 `json:"median_micro_usd,omitempty"`
	MostMicroUSD   int64 `json:"most_micro_usd,omitempty"`
}

// DelegateWaitRequest waits for something to happen to a delegation.
type DelegateWaitRequest struct {
	RunID string   `json:"run_id"`
	Seen  []string `json:"seen,omitempty"`   // questions that are known already
	WaitS int      `json:"wait_s,omitempty"` // at most 60
}

// DelegateWaitResult says what has happened.
type DelegateWaitResult struct {
	State     string             `json:"state"` // of the run
	Ended     bool               `json:"ended"`
	Questions []DelegateQuestion `json:"questions,omitempty"` // that are open and were not seen
}

// DelegateQuestion is something a coding agent wants leave for.
type DelegateQuestion struct {
	ApprovalID string `json:"approval_id"`
	Summary    string `json:"summary"`

	Form *ApprovalForm `json:"form,omitempty"` // what has to be filled in to approve it
}

// Delegation is a task that was given to a coding agent.
type Delegation struct {
	RunID            string `json:"run_id"`
	SessionID        string `json:"session_id"`
	Harness          string `json:"harness"`
	Model            string `json:"model,omitempty"`
	Why              string `json:"why"` // that route
	Subject          string `json:"subject"`
	Dir              string `json:"dir"`
	Write            bool   `json:"write,omitempty"`
	Background       bool   `json:"background,omitempty"`
	Tries            int    `json:"tries"`             // how often its program was started
	Outcome          string `json:"outcome,omitempty"` // absent while it works
	MicroUSD         int64  `json:"micro_usd"`
	Priced           bool   `json:"priced"`                       // the cost is known; else it is the least it may be
	PossibleMicroUSD int64  `json:"possible_micro_usd,omitempty"` // it may have cost beside that
	StartedAt        int64  `json:"started_at"`                   // Unix µs
	EndedAt          int64  `json:"ended_at,omitempty"`           // Unix µs
}

// DelegateListRequest selects delegations, newest first.
type DelegateListRequest struct {
	Limit     int  `json:"limit,omitempty"`     // 0: 20, at most 1,000
	Worktrees bool `json:"worktrees,omitempty"` // tell the worktrees too, which looks at all of their files
}

// DelegateListResult answers delegate.list.
type DelegateListResult struct {
	Delegations []Delegation       `json:"delegations"`
	Worktrees   []DelegateWorktree `json:"worktrees,omitempty"` // of all sessions here, the one that was used longest ago first
}

// DelegateShowRequest names a delegation.
type DelegateShowRequest struct {
	RunID string `json:"run_id"` // or an unambiguous beginning
}

// DelegateShowResult is all that is known of a delegation.
type DelegateShowResult struct {
	Delegation  Delegation           `json:"delegation"`
	Task        string               `json:"task"`
	Answer      string               `json:"answer,omitempty"` // what it said last
	Error       string               `json:"error,omitempty"`
	ErrorClass  string               `json:"error_class,omitempty"` // of an error that was not the program's
	Tools       []DelegateTool       `json:"tools,omitempty"`       // the program's own that it used
	Permissions []DelegatePermission `json:"permissions,omitempty"` // that it asked for
	Worktree    string               `json:"worktree,omitempty"`
	Repository  string               `json:"repository,omitempty"`
	Files       []DelegateFile       `json:"files,omitempty"`
	Checks      []DelegateCheck      `json:"checks,omitempty"`
	Notes       []string             `json:"notes,omitempty"`
	Tokens      DelegateTokens       `json:"tokens"`
	Patch       string               `json:"patch,omitempty"`        // as git diff --binary writes it
	PatchBase64 string               `json:"patch_base64,omitempty"` // the same, where it is no UTF-8: Patch is for the eye then
	PatchCut    bool                 `json:"patch_cut,omitempty"`
	Version     string               `json:"version,omitempty"` // of the program
}

// DelegateTool is a tool of the program that it used.
type DelegateTool struct {
	Name    string `json:"name"`
	Input   string `json:"input,omitempty"`
	Outcome string `json:"outcome"` // ok, error, denied or unfinished
}

// DelegatePermission is a leave the program asked for.
type DelegatePermission struct {
	Tool     string `json:"tool"`
	Input    string `json:"input,omitempty"`
	Decision string `json:"decision"` // asked, allowed or denied
}

// DelegateFile is a file that was changed; lines are -1 for a binary one.
type DelegateFile struct {
	Path    string `json:"path"`
	Added   int    `json:"added"`
	Removed int    `json:"removed"`
}

// DelegateCheck is a command that was run where a delegation wrote.
type DelegateCheck struct {
	Command string `json:"command"`
	OK      bool   `json:"ok"`
	How     string `json:"how"`              // it ended
	Output  string `json:"output,omitempty"` // its end
}

// DelegateTokens are those of one run, where the program told them.
type DelegateTokens struct {
	Input      int64 `json:"input"` // not from a cache
	CacheRead  int64 `json:"cache_read"`
	CacheWrite int64 `json:"cache_write"`
	Output     int64 `json:"output"`
}

// DelegateApplyResult answers delegate.apply.
type DelegateApplyResult struct {
	RunID      string `json:"run_id"`
	Repository string `json:"repository"`
	Files      int    `json:"files"`
}

// DelegateDropRequest forgets a session.
type DelegateDropRequest struct {
	SessionID string `json:"session_id,omitempty"`
	OlderS    int64  `json:"older_s,omitempty"` // in the place of a session: all whose worktree nobody used for so many seconds
	Force     bool   `json:"force,omitempty"`   // of OlderS: also what was never applied
	DryRun    bool   `json:"dry_run,omitempty"` // of OlderS: only tell
}

// DelegateDropResult says what was removed.
type DelegateDropResult struct {
	SessionID string             `json:"session_id,omitempty"`
	Worktree  string             `json:"worktree,omitempty"`
	Older     []DelegateWorktree `json:"older,omitempty"` // with what was kept of them
}

// DelegateWorktree is the worktree of a session.
type DelegateWorktree struct {
	SessionID string `json:"session_id"`
	Path      string `json:"path"`
	Dir       string `json:"dir"`            // where the session works
	CreatedAt int64  `json:"created_at"`     // Unix µs
	UsedAt    int64  `json:"used_at"`        // Unix µs, by its last task
	Bytes     int64  `json:"bytes"`          // with what its checks keep
	Kept      string `json:"kept,omitempty"` // why it is not dropped
}

// Harness is a coding agent that is set up.
type Harness struct {
	Name     string `json:"name"`
	Program  string `json:"program,omitempty"` // absent if it is not here
	Missing  string `json:"missing,omitempty"` // why
	Model    string `json:"model,omitempty"`   // absent: the program's own
	Default  bool   `json:"default,omitempty"`
	KeyFrom  string `json:"key_from,omitempty"` // the secret its key is kept as
	KeyHeld  bool   `json:"key_held,omitempty"` // ombud keeps the key from it; else it is in its environment
	Asks     bool   `json:"asks"`               // it asks before it changes or runs something
	StateDir string `json:"state_dir"`
}

// HarnessListResult answers harness.list.
type HarnessListResult struct {
	Harnesses []Harness `json:"harnesses"`
}

// HarnessRequest names a harness.
type HarnessRequest struct {
	Name string `json:"name"`
}

// HarnessProbeResult is what a program told about itself.
type HarnessProbeResult struct {
	Name     string   `json:"name"`
	Version  string   `json:"version,omitempty"`
	Login    string   `json:"login"`              // yes, no or unknown
	Detail   string   `json:"detail,omitempty"`   // its own words about that
	KeyFrom  string   `json:"key_from,omitempty"` // as of Harness
	KeyHeld  bool     `json:"key_held,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// HarnessLoginResult is how a person logs a program in, in a terminal.
type HarnessLoginResult struct {
	Program string   `json:"program"`
	Args    []string `json:"args,omitempty"`
	Env     []string `json:"env"` // NAME=value, beside the person's own
}

// HarnessRoutesResult says which routes may run, and which ran last and why.
type HarnessRoutesResult struct {
	Admitted []string     `json:"admitted"` // empty: every harness with its own model
	Now      []RouteNow   `json:"now"`
	Ran      []Delegation `json:"ran"`
}

// RouteNow is what a task that names a harness and nothing else would run by.
type RouteNow struct {
	Harness string `json:"harness"`
	Route   string `json:"route,omitempty"`
	Why     string `json:"why,omitempty"`
	Refused string `json:"refused,omitempty"`
}
