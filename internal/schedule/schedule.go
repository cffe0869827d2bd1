package schedule

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
)

// Never is the next instant of a schedule that has none.
const Never int64 = math.MaxInt64

// Operator owns what a person added. Other owners are "recipe:NAME", "loop:NAME" and
// "agent:NAME".
const Operator = "operator"

// State says whether a schedule fires.
type State string

// The states.
const (
	Active State = "active"
	Paused State = "paused"
	Done   State = "done" // no instant is left
)

// Missed says what becomes of instants that passed while nothing could fire.
type Missed string

// What can become of them.
const (
	Once Missed = "once" // one firing stands for all of them, unless even the newest is older than the grace
	Skip Missed = "skip" // they are recorded and nothing else
	All  Missed = "all"  // each is made up for, the newest MaxMakeUp of them
)

// Overlap says what becomes of an instant while what the last one started is at work.
type Overlap string

// What can become of it.
const (
	OverlapSkip  Overlap = "skip"  // recorded as skipped
	OverlapQueue Overlap = "queue" // started all the same; its target orders it
)

// Outcome is how an instant ended.
type Outcome string

// The outcomes.
const (
	Fired      Outcome = "fired"
	FiredLate  Outcome = "late"
	ByHand     Outcome = "manual"
	WasMissed  Outcome = "missed"
	WasSkipped Outcome = "skipped"
	WasFailed  Outcome = "failed"
)

// Kinds of firing.
const (
	Due    = "due"
	Late   = "late"
	Manual = "manual"
)

// Starts is what a firing starts: a message to an agent, or a target of package trigger.
type Starts struct {
	Target       string `json:"target,omitempty"` // its owner; Say is empty then
	Say          string `json:"say"`
	Agent        string `json:"agent,omitempty"`        // who is told; "" for the default
	Conversation string `json:"conversation,omitempty"` // where, by id or local name

	// Label is whose words Say is. The zero Label is the operator's.
	Label label.Label `json:"label,omitzero"`
}

// Spec is what a schedule is to be.
type Spec struct {
	Owner   string
	Name    string // unique for its owner; "" is its id
	When    string // as package cron reads it
	Zone    string // IANA name; "" is the system's
	Starts  Starts
	Missed  Missed        // default Once
	Grace   time.Duration // for Once; default DefaultGrace, negative for none
	Overlap Overlap       // default OverlapSkip; OverlapQueue where Missed is All
	Jitter  time.Duration // each instant is delayed by less than this, always by the same; default none
}

// Limits and defaults.
const (
	DefaultGrace = time.Hour
	MaxMakeUp    = 100 // firings that make up for missed instants, in one look
	maxJitter    = 24 * time.Hour
	maxGrace     = 366 * 24 * time.Hour
	maxSay       = 16 << 10
)

// Last is how the newest settled instant ended.
type Last struct {
	Outcome Outcome // "" if there was none
	Instant int64   // nominal; for ByHand when it was
	At      int64   // when it was settled
	Run     string  // what the last firing started; stays while later instants start nothing
	Error   string  // with WasFailed
}

// Schedule is a schedule as it stands. Times are Unix microseconds.
type Schedule struct {
	ID string
	Spec
	State       State
	Created     int64
	Anchor      int64 // when the rule began to count
	Settled     int64 // instants up to this one are settled
	Next        int64 // the next nominal instant, or Never
	FireAt      int64 // Next with its jitter
	Last        Last
	FiredCount  int64 // instants of this rule that fired
	MissedCount int64 // instants of this rule that were missed, skipped or failed

	// Problem says why the schedule cannot be read; it then fires nothing and is
	// looked at again now and then.
	Problem error

	seq     int64
	rule    string
	version int64
}

// Firing is what is handed to Fire.
type Firing struct {
	Schedule Schedule
	At       time.Time // the nominal instant, in the schedule's zone
	Kind     string    // Due, Late or Manual
	Event    string    // the scheduler.job that is its cause, in the same transaction
}

// Fire starts what a schedule starts, in the transaction that moves the schedule on. It
// keeps to the rules of db.InTx. The run may be "" if none was needed. An error is
// recorded as a failed instant, and the schedule goes on.
type Fire func(ctx context.Context, tx *db.Tx, f Firing) (run string, err error)

// Runs tells how the run of an earlier firing stands.
type Runs interface {
	RecordIn(ctx context.Context, q db.Q, id string) (run.Record, error)
}

var _ Runs = (*run.Engine)(nil)

// Clock is both clocks of the machine.
type Clock interface {
	Read() eventlog.Reading
	// After returns a channel that receives when the machine has run for d, and a
	// function that gives it up.
	After(d time.Duration) (<-chan time.Time, func())
}

// system is the Clock outside of tests.
type system struct{ read func() eventlog.Reading }

func (s system) Read() eventlog.Reading { return s.read() }

func (system) After(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// Options of Schedules; zero fields have defaults.
type Options struct {
	Clock Clock
	// Held is asked before anything fires: while it is true nothing does. Default never.
	Held func() error
	// Tell tells the operator, in a transaction, what went wrong. Default nobody.
	Tell   func(ctx context.Context, tx *db.Tx, cause, text string) error
	Logger *slog.Logger
}

// Schedules are the schedules of one store. It is safe for concurrent use.
type Schedules struct {
	db    *db.DB
	vault *vault.Vault
	log   *eventlog.Log
	runs  Runs
	fire  Fire
	opt   Options
	slog  *slog.Logger
	rules rules

	mu   sync.Mutex
	quit context.CancelFunc // nil: not started
	loop sync.WaitGroup
}

// New returns the schedules of d, which start things by fire. Nothing fires before
// Start.
func New(d *db.DB, v *vault.Vault, l *eventlog.Log, runs Runs, fire Fire, o Options) *Schedules {
	if o.Clock == nil {
		o.Clock = system{eventlog.Clocks()}
	}
	if o.Held == nil {
		o.Held = func() error { return nil }
	}
	if o.Tell == nil {
		o.Tell = func(context.Context, *db.Tx, string, string) error { return nil }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Schedules{db: d, vault: v, log: l, runs: runs, fire: fire, opt: o, slog: o.Logger}
}

// now is the wall clock in Unix microseconds.
func (s *Schedules) now() int64 { return s.opt.Clock.Read().Wall.UnixMicro() }
