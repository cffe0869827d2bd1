// Package tool says what a tool is: its definition, its input schema, the
// registry that knows all of them and the Invoker, which alone reaches their
// handlers. It decides nothing about authority and records nothing; package act
// does both around one Invoker.Call.
//
// A tool that cannot be used as it is declared (a schema no provider would take,
// a missing probe, a name that is taken) is quarantined with a reason. It never
// takes the other tools with it.
package tool

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
)

// Kind says where a tool works.
type Kind string

// The kinds. Their text is part of a definition's digest: never rename one.
const (
	Local  Kind = "local"  // only rows of ombud's own store, inside the commit of the outcome
	Effect Kind = "effect" // anything outside the store: files, processes, networks
)

// Repeat says what may be done with a call whose outcome is unknown because the
// process died during it.
type Repeat string

// The repeat rules. Their text is part of a definition's digest: never rename one.
const (
	AtMostOnce Repeat = "at_most_once" // never again by itself; the step stays unknown
	Repeatable Repeat = "repeatable"   // calling twice is as good as calling once
	Probed     Repeat = "probed"       // the tool's Probe finds out
)

// Definition is everything ombud, a model and a person know about a tool. It is a
// value; the registry keeps its own copy.
type Definition struct {
	Name        string          // canonical, with dots: fs.read
	Description string          // for the model: what it does, its limits
	Input       json.RawMessage // JSON Schema of the input, an object

	Kind         Kind
	ReadOnly     bool          // changes nothing, anywhere; such calls may run in parallel
	Irreversible bool          // what it changes cannot be taken back
	Repeat       Repeat        // zero means AtMostOnce
	Timeout      time.Duration // hard limit of one call, over zero
	MaxOutput    int64         // bytes of output kept, over zero; the rest is cut and marked
	Source       label.Source  // who wrote its results, unless an Output says otherwise
	// Revision is whatever else an approval of a call is bound to, such as the program
	// behind the tool. It is a part of the digest.
	Revision string

	// Only is the one subject that can call the tool, whatever the others were granted;
	// empty: everybody policy lets. No other subject is told of the tool.
	Only string
	// Within says that the tool is for work ombud does by itself, such as a loop or a
	// recipe: no agent and no job is told of it or can call it, whatever it was granted.
	Within bool
	// Lent says that the tool is told to and called by the turns it was lent to only.
	Lent bool
	// Resumes says that a call that was interrupted goes on where it was when it is made
	// again with the same key. Nobody waits for it when the daemon stops. Such a call is
	// Repeatable and may be long: no other node waits for its Timeout either.
	Resumes bool
	// Grace is how long a cancelled call may take to stop before it is abandoned. Default 2 s.
	Grace time.Duration
	// Asks is how long in all a call may have people asked within it. Meanwhile neither its
	// Timeout nor the time of its run goes on. 0: its calls ask nobody.
	Asks time.Duration
	// Touches names the files and directories, absolute, that a call may change; a
	// directory stands for all below it. What keeps files for undo goes by it. Nil: no
	// files that anybody would want back.
	Touches func(input json.RawMessage) []string
	// Undoable says of one call of an Irreversible tool that it can be taken back
	// after all, such as the writing of a file that is not there yet. Nil: none can.
	Undoable func(input json.RawMessage) bool
	// Destination says to whom a call tells what it is given. Nil means nobody for a
	// call that is local or read-only and needs no scope of a network, and anybody
	// for every other: a tool whose author forgot it is held back, not trusted.
	Destination func(input json.RawMessage) Destination
	// Scopes derives from an input what the call needs. The input is canonical
	// and has passed the schema. An error refuses the call; no scope at all is a
	// defect of the tool, so Scopes returns at least one.
	Scopes func(input json.RawMessage) ([]scope.Scope, error)
	// Summary is one line for a person who has to decide, for example
	// "write notes.txt (12 bytes)".
	Summary func(input json.RawMessage) string
	// Form is the JSON Schema of what a person fills in to approve the call; a nil Form or
	// a nil result: nothing. A call with a form is never made without a person: where
	// policy allows it, it asks. Package form says which schemas there are; any other
	// refuses the call. It must come from the input alone: an approval is bound to that.
	Form func(input json.RawMessage) json.RawMessage
	// Probe finds out whether an interrupted call was done. Only for Probed. The
	// registry never hands it out: ask Invoker.Probe.
	Probe func(ctx context.Context, in Invocation) (ProbeResult, error)
}

// Destination is to whom a call tells something.
type Destination struct {
	Readers label.Audience // who can read it; anybody when empty
	Name    string         // for people: a host, an address
	// Nobody says that the call tells nobody anything. Here says that it tells the
	// conversation it was made in, whoever reads that; Readers is then not used.
	Nobody, Here bool
	// Sends is all that the call tells, where that is short and known, such as a URL.
	// What the operator wrote word for word is no news from the rest of the context.
	Sends string
}

// Handler does the call. It returns soon after ctx ends. An error of class
// Unknown says the effect may have happened; any other class says it has not.
//
// A Handler that returns an Output with a Reader may go on working until the
// Reader is at its end or closed; ctx stays alive until then.
type Handler func(ctx context.Context, in Invocation) (Output, error)

// Invocation is one call as its handler sees it.
type Invocation struct {
	Run, Step    string
	Conversation string
	Readers      label.Audience // of that conversation; "" where the call is made in none
	Subject      string
	Key          string          // the same for every attempt of this call, and for no other
	Input        json.RawMessage // canonical, valid against the schema
	Label        label.Label     // of the context the call was made in
	Digest       string          // of the definition the call was decided by
	Unattended   bool            // nobody waits for the work it belongs to
	Tier         policy.Tier     // of who makes it, by how that is connected
	// Said is what a person filled in to approve the call: canonical, and it fits the
	// Form of the definition. Nil for a call without one.
	Said json.RawMessage

	// Tx is set only for Kind Local: the transaction of the call's outcome.
	Tx *db.Tx
	// Asking is set only where the definition Asks. It says that a person is asked until done
	// is called, and returns a context that ends when nobody is to be asked any longer: the
	// time for it is used up, or the daemon stops.
	Asking func(ctx context.Context) (_ context.Context, done func())
	// Judge is what policy says of a further scope, with the authority of the call and
	// without what the call tells anybody.
	Judge func(need scope.Scope) policy.Decision
	// Permit decides on a further scope that showed itself only during the call,
	// such as the target of a redirect. Nil permits nothing further.
	Permit func(ctx context.Context, need scope.Scope) error
}

// Allows reports whether the call may also use scope need. It errs with class
// Denied if not.
func (in Invocation) Allows(ctx context.Context, need scope.Scope) error {
	if in.Permit == nil {
		return errNotPermitted(need)
	}
	return in.Permit(ctx, need)
}

// Output is a result. At most one of Text, JSON and Reader is set. Text may be
// any bytes; whoever keeps it cleans it.
type Output struct {
	Text   string
	JSON   json.RawMessage
	Reader io.ReadCloser // the receiver closes it, which also stops its producer

	// Kept are blobs the handler has kept beside it and names in Text, such as pictures. The
	// conversation the call is made in can read them.
	Kept []string

	Label        *label.Label // also of an error; nil: the definition's Source, for the operator only
	CostMicroUSD int64
	Reserved     bool // whoever makes the call has reserved its cost and books it
	// Awaits is the id of a run that a local call has started and whose end, as
	// act.Awaited, is the result of the call: whoever makes the call is parked until then.
	Awaits string
}

// ProbeState is what a probe found.
type ProbeState string

// The states. A probe that cannot tell returns Unclear, not an error.
const (
	Done    ProbeState = "done"     // the effect is there; Output is the result it had
	NotDone ProbeState = "not_done" // the effect is not there; the call may be made again
	Unclear ProbeState = "unclear"  // cannot tell: the step stays unknown
)

// ProbeResult is what a probe found out about an interrupted call.
type ProbeResult struct {
	State  ProbeState
	Output Output // only with Done
}

// ModelName returns the name a model knows a tool by. Providers take letters,
// digits, "_" and "-" only, so dots become underscores.
func ModelName(name string) string { return strings.ReplaceAll(name, ".", "_") }
