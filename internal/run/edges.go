package run

import (
	"fmt"
	"slices"
	"strings"
)

// State is where a run stands.
type State string

// The states. Queued, Running, Waiting, Cancelling and Uncertain are live.
const (
	None       State = ""           // before it was created
	Queued     State = "queued"     // will be started when its turn comes
	Running    State = "running"    // a node works on it
	Waiting    State = "waiting"    // parked for a timer, signal, approval or retry
	Cancelling State = "cancelling" // asked to stop; what is under way comes to its end
	Uncertain  State = "uncertain"  // a step may or may not have happened; a person decides
	Completed  State = "completed"
	Failed     State = "failed"
	Cancelled  State = "cancelled"
)

// Ended reports whether nothing more happens to a run in this state by itself.
func (s State) Ended() bool { return s == Completed || s == Failed || s == Cancelled }

// holdsKey reports whether a run in this state keeps others with its key out.
func (s State) holdsKey() bool {
	return s == Queued || s == Running || s == Waiting || s == Cancelling
}

// The kinds of event a run's stream is made of.
const (
	evCreated      = "run.created"
	evStarted      = "run.started"
	evWaiting      = "run.waiting"
	evRequeued     = "run.requeued"
	evCompleted    = "run.completed"
	evFailed       = "run.failed"
	evCancelling   = "run.cancelling"
	evCancelled    = "run.cancelled"
	evUncertain    = "run.uncertain"
	evResolved     = "run.resolved"
	evReplayed     = "run.replayed"
	evStepOpened   = "run.step.opened"
	evStepReopened = "run.step.reopened"
	evStepClosed   = "run.step.closed"
)

// who may cause an edge.
type who string

const (
	starter    who = "starter"    // whoever has the authority to begin this work
	dispatcher who = "dispatcher" // the engine's claim loop, any node
	owner      who = "owner"      // the node whose fence the run carries
	recovery   who = "recovery"   // any node, after the owner's lease ended
	person     who = "person"     // an operator's decision
)

// edge is one allowed move. The table below is the only place where moves are
// said: the fold, the guard of every write, the diagram in doc.go and the tests
// are made from it.
type edge struct {
	from  State
	event string
	to    State
	who   who
}

var edges = []edge{
	{None, evCreated, Queued, starter},

	{Queued, evStarted, Running, dispatcher},
	{Waiting, evStarted, Running, dispatcher},

	{Running, evStepOpened, Running, owner},
	{Running, evStepReopened, Running, owner},
	{Running, evStepClosed, Running, owner},
	{Cancelling, evStepClosed, Cancelling, owner},

	{Running, evWaiting, Waiting, owner},
	{Running, evCompleted, Completed, owner},
	{Running, evFailed, Failed, owner},
	{Running, evUncertain, Uncertain, owner},
	{Running, evRequeued, Queued, recovery},
	{Running, evFailed, Failed, recovery},

	{Queued, evCancelling, Cancelling, person},
	{Running, evCancelling, Cancelling, person},
	{Waiting, evCancelling, Cancelling, person},
	{Uncertain, evCancelling, Cancelling, person},
	{Cancelling, evCancelled, Cancelled, owner},
	{Cancelling, evFailed, Failed, owner},
	{Cancelling, evUncertain, Uncertain, owner},

	{Uncertain, evResolved, Queued, person},
	{Uncertain, evFailed, Failed, person},

	{Failed, evReplayed, Queued, person},
}

// next returns the state after an event, or false if the table does not allow it.
func next(from State, event string) (State, bool) {
	for _, e := range edges {
		if e.from == from && e.event == event {
			return e.to, true
		}
	}
	return None, false
}

// Diagram draws the table for doc.go, one line an edge; steps stay where they are
// and are left out.
func Diagram() string {
	var b strings.Builder
	for _, e := range edges {
		if e.from == e.to {
			continue
		}
		from := string(e.from)
		if e.from == None {
			from = "(none)"
		}
		fmt.Fprintf(&b, "%-10s -- %-14s --> %-10s  %s\n", from, e.event, e.to, e.who)
	}
	return b.String()
}

// liveStates are the states of runs that have not ended.
func liveStates() []State {
	var out []State
	for _, e := range edges {
		if e.from != None && !e.from.Ended() && !slices.Contains(out, e.from) {
			out = append(out, e.from)
		}
	}
	return out
}
