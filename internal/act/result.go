package act

import (
	"encoding/json"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
)

// Authority is on whose behalf a call is made and what that may do. It is built
// once for a turn, before any model is asked, and does not change during it.
type Authority struct {
	Subject      string // "agent:main", "loop:…", …
	Agent        string // whose budget pays; "" for the instance's
	Conversation string
	Readers      label.Audience // who reads the conversation; anybody when empty
	Grants       *policy.Layer
	Role         *policy.Role
	Bounds       []*policy.Layer
	Tier         policy.Tier
	Standing     []scope.Scope
	Autonomy     *policy.Autonomy
	Unattended   bool
}

// Call is one call to be made as a step of a run.
type Call struct {
	Step      string // the step's name, stable within the run
	Tool      string // canonical or as a model writes it
	Input     json.RawMessage
	Authority *Authority
	Label     label.Label // of the context the call comes from
	Said      []string    // the operator's own words in that context
	Budget    policy.Budget

	// Within is set by work that ombud does by itself, which alone can call the tools
	// that are for it.
	Within bool
	// Lent says that the tool was lent to the work that makes the call.
	Lent bool
	// Patient lets the run wait for a person as long as the question is open, and not
	// only for the time that a conversation would.
	Patient bool
	// Review puts the call to a person, whatever policy allows, and lets the work go on
	// without it: its result is Parked, and once approved it is a run of its own.
	Review bool
}

// Status says how a call ended.
type Status string

// The ways a call can end.
const (
	OK      Status = "ok"
	Failed  Status = "failed"  // the tool says it did not have its effect
	Refused Status = "refused" // not made: unknown tool, bad input, policy, a person's no
	Parked  Status = "parked"  // not made: a person did not decide in time and still may
	Unclear Status = "unknown" // it may or may not have had its effect
)

// Result is what a call came to. It is the step's recorded result, whatever the
// status, so that a repeat of the run gets the same.
type Result struct {
	Status   Status          `json:"status"`
	Tool     string          `json:"tool"`
	Subject  string          `json:"subject,omitempty"`
	Summary  string          `json:"summary,omitempty"`
	Text     string          `json:"text"`            // for the model, at most MaxText bytes
	Blob     string          `json:"blob,omitempty"`  // handle of the whole output if Text is not all of it
	Parts    []string        `json:"parts,omitempty"` // handles of what is no text and was kept beside it
	Size     int64           `json:"size"`            // bytes of the whole output
	Cut      bool            `json:"cut,omitempty"`   // the output went over the tool's limit and was stopped
	Label    label.Label     `json:"label"`
	From     label.Label     `json:"from"`               // of the context the call was made in
	To       string          `json:"to,omitempty"`       // whom it told something, for people
	Warnings []string        `json:"warnings,omitempty"` // phrases in it that look like orders to a model
	Scopes   []string        `json:"scopes,omitempty"`
	Decision string          `json:"decision,omitempty"` // allow, ask, deny
	Reasons  []policy.Reason `json:"reasons,omitempty"`
	Approval string          `json:"approval,omitempty"`
	Class    fault.Class     `json:"class,omitempty"`  // of the failure
	Awaits   string          `json:"awaits,omitempty"` // the run whose end is the result
	TookUS   int64           `json:"took_us"`
}

// Err returns the failure a result stands for, nil if it is OK.
func (r Result) Err() error {
	if r.Status == OK {
		return nil
	}
	return fault.New(r.Class, "%s", r.Text)
}

// Bounds of a call.
const (
	MaxText      = 64 << 10        // bytes of a result a model is shown
	patienceTime = time.Hour       // how often a patient call looks whether it was decided
	heedTime     = 2 * time.Second // how long a cancelled tool may take to stop
	maxAbandoned = 16              // calls that ignored their cancellation, at a time
	refusalsEach = 20              // refusals audited singly per subject, tool and hour
)

// refusal is a result of a call that was not made.
func (a *Act) refusal(tool string, err error) Result {
	text := err.Error()
	if hint := fault.HintOf(err); hint != "" {
		text += " (" + hint + ")"
	}
	text, _ = a.clean(text)
	return Result{Status: Refused, Tool: tool, Text: text, Class: fault.ClassOf(err), Label: label.Of(label.Own, label.OperatorOnly)}
}
