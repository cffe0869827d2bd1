package run

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// Record is a run as its row says. Times are Unix microseconds, 0 for never;
// costs are micro-USD.
type Record struct {
	ID, Kind, Name, Definition string
	Key                        string // orders runs; "" for none
	Width                      int    // how many runs of Key at once
	State                      State
	Wait                       Wait   // why it waits, while State is Waiting
	WaitRef                    string // what it waits for: an approval's or a run's id, a signal's name
	Owner                      string // the node that works on it
	Fence                      int64  // grows with every claim; an old owner's writes are refused by it
	Attempt                    int    // how often it was retried after a failure
	Crashes                    int    // how often its node died with it
	Seq                        int64  // order of arrival
	Parent, Cause, Actor       string
	Created, Started, Ended    int64
	Resumed                    int64 // when it was last claimed
	Spent                      int64 // microseconds it was worked on, up to its last park
	Cost                       int64
	CostKnown                  bool // false if a part of the cost is not known
	Version                    int64
	Head                       [32]byte // fold over (position, kind, leaf) of its events
	ErrorClass                 fault.Class
	Error                      string
	Input                      json.RawMessage
	Result                     json.RawMessage
	NextAt                     int64
	Progress                   *Progress // what it last told of itself, if anything

	slot      *int64
	lastEvent string // the id of the event that moved it last, in a record from advance
}

// Wait says what a waiting run waits for.
type Wait string

// What a run can wait for.
const (
	ForTimer    Wait = "timer"
	ForSignal   Wait = "signal"
	ForApproval Wait = "approval"
	ForRetry    Wait = "retry"
	ForRun      Wait = "run"     // the end of another run
	ForSeveral  Wait = "several" // the first of what its branches wait for
)

// StepState is how far a step got.
type StepState string

// The states of a step.
const (
	Open    StepState = "open"    // the intent is recorded, the outcome is not
	Done    StepState = "done"    // it happened and its result is recorded
	Errored StepState = "failed"  // it certainly did not have its effect, and the error is recorded
	Unknown StepState = "unknown" // it may or may not have happened
)

// Step is a step as its row says.
type Step struct {
	Name, Kind string
	Seq        int64
	Policy     PolicyKind
	State      StepState
	Repeats    int // how often an interrupted step was begun again
	Timeout    time.Duration
	Opened     int64 // 0 for a step recorded only with its outcome
	Closed     int64
	Cost       int64
	CostKnown  bool
	ErrorClass fault.Class
	Error      string
	Audit      AuditRef
	InputMAC   []byte
	Result     json.RawMessage

	resultMAC []byte // as the event says; only in a replayed step
}

// AuditRef is where the audit chain tells of this step.
type AuditRef struct {
	Chain string `json:"chain,omitempty"`
	Seq   int64  `json:"seq,omitempty"`
	Hash  []byte `json:"hash,omitempty"`
}

// PolicyKind says what may happen to a step that was interrupted.
type PolicyKind string

// The policies.
const (
	// Repeatable steps have no effect outside, or one the receiver ignores twice.
	// They are recorded once, with their outcome.
	Repeatable PolicyKind = "repeatable"
	// Noted steps may be repeated too, but a repeat costs something: their intent is
	// recorded first and repeats are counted.
	Noted PolicyKind = "noted"
	// Probed steps can be asked whether they happened.
	Probed PolicyKind = "probed"
	// AtMostOnce steps are never begun twice.
	AtMostOnce PolicyKind = "at_most_once"
)

// Policy is a PolicyKind with its probe.
type Policy struct {
	Kind  PolicyKind
	Probe func(ctx context.Context) (Probe, Outcome) // required for Probed
}

// Probe is the answer of a probe.
type Probe int

// The answers.
const (
	CannotTell Probe = iota
	Happened
	DidNotHappen
)

// Outcome is how a step ended.
type Outcome struct {
	State     StepState // Done, Errored or Unknown
	Result    json.RawMessage
	Err       error
	Cost      int64
	CostKnown bool // set it for steps that cost nothing, too
	Audit     AuditRef
}

// Succeed is the outcome of a step that cost nothing.
func Succeed(result json.RawMessage) Outcome {
	return Outcome{State: Done, Result: result, CostKnown: true}
}

// Fail is the outcome of a step that did nothing and cost nothing.
func Fail(err error) Outcome { return Outcome{State: Errored, Err: err, CostKnown: true} }

// Abandon is the outcome of a Repeatable or Noted step that gives up because the
// daemon stops (see Run.Halted): nothing is recorded and it is begun again later.
func Abandon() Outcome { return Outcome{Err: errStopping} }

// outcome is what a recorded step returns when it is met again.
func (s *Step) outcome() Outcome {
	o := Outcome{State: s.State, Result: s.Result, Cost: s.Cost, CostKnown: s.CostKnown, Audit: s.Audit}
	if s.State != Done {
		o.Err = fault.New(s.ErrorClass, "%s", s.Error)
	}
	return o
}
