package trigger

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/schedule"
	"github.com/ombud-run/ombud/internal/secret"
	"github.com/ombud-run/ombud/internal/vault"
)

// The kinds of trigger.
const (
	BySchedule = "schedule"
	ByEvent    = "event"
	ByWebhook  = "webhook"
	ByTimer    = "timer"
	ByHand     = "manual"
	ByRun      = "run" // another run started it and waits for it
)

// Trigger is what started a run: the run's input, kept by every retry.
type Trigger struct {
	Kind      string          `json:"kind"`            // schedule | event | webhook | timer | manual | run
	Name      string          `json:"name,omitempty"`  // of the schedule, the route or the timer
	At        int64           `json:"at"`              // Unix µs: the nominal instant
	Event     string          `json:"event,omitempty"` // id of the causing event
	EventKind string          `json:"event_kind,omitempty"`
	Payload   json.RawMessage `json:"payload,omitempty"` // an object
	Label     label.Label     `json:"label"`             // whose words Payload has, and who may read them

	By     string `json:"by,omitempty"`     // who started it by hand
	Parent string `json:"parent,omitempty"` // the run that started it
	Hurry  int    `json:"hurry,omitempty"`  // of a timer: how many runs in a row were to be started at once, each by the one before

	// Set by the start.
	Target string `json:"target"`
	Depth  int    `json:"depth,omitempty"` // runs between it and its first cause
	Root   string `json:"root,omitempty"`  // that cause
}

// On is what starts a target: exactly one of its fields is set.
type On struct {
	Schedule *Schedule    `json:"schedule,omitempty"`
	Event    *EventFilter `json:"event,omitempty"`
	Webhook  *Webhook     `json:"webhook,omitempty"`
	Timer    bool         `json:"timer,omitempty"`  // those its own runs arm (ArmTx)
	Manual   bool         `json:"manual,omitempty"` // every target can be started by hand; this says only that it is meant to be
}

// Schedule starts a target at times. It is a row of package schedule owned by the target.
type Schedule struct {
	Name    string           `json:"name,omitempty"` // default its place among them, from 1
	When    string           `json:"when"`
	Zone    string           `json:"zone,omitempty"` // default the system's
	Missed  schedule.Missed  `json:"missed,omitempty"`
	Grace   time.Duration    `json:"grace,omitempty"`
	Overlap schedule.Overlap `json:"overlap,omitempty"`
	Jitter  time.Duration    `json:"jitter,omitempty"`
}

// Target is a thing that can be started.
type Target struct { //nolint:recvcheck // normal changes a copy
	Name       string   `json:"-"` // "recipe:daily-briefing": also the subject it acts as, and the key that orders its runs
	RunKind    string   `json:"run_kind"`
	Definition string   `json:"definition,omitempty"` // pinned for a run's life
	On         []On     `json:"on,omitempty"`
	Busy       run.Busy `json:"busy,omitempty"`
	Paused     bool     `json:"paused,omitempty"` // its definition says so
}

// Limits.
const (
	MaxDepth  = 8   // runs between a start and its first cause
	MaxFamily = 256 // runs started, one by another, from one cause
)

// Runs is the part of the engine that starts runs and tells of them.
type Runs interface {
	StartTx(ctx context.Context, tx *db.Tx, s run.Spec) (string, error)
	RecordIn(ctx context.Context, q db.Q, id string) (run.Record, error)
	CausedIn(ctx context.Context, q db.Q, name, cause string) (bool, error)
	ArmTx(ctx context.Context, tx *db.Tx, t run.Timer) error
	FreeTx(ctx context.Context, tx *db.Tx, owner, id string, at, apart int64) (int64, error)
	DisarmTx(ctx context.Context, tx *db.Tx, id string) (bool, error)
}

var _ Runs = (*run.Engine)(nil)

// Secrets are values by their names.
type Secrets interface {
	Resolve(ctx context.Context, name string) (secret.Value, error)
	Check(ctx context.Context, name string) error
}

var _ Secrets = (*secret.Secrets)(nil)

// none are no secrets.
type none struct{}

func (none) Resolve(_ context.Context, name string) (secret.Value, error) {
	return secret.Value{}, fault.New(fault.NotFound, "no secret %s", name)
}

func (n none) Check(ctx context.Context, name string) error {
	_, err := n.Resolve(ctx, name)
	return err
}

// Options of Triggers; zero fields have defaults.
type Options struct {
	// Held is asked before a person or a webhook starts anything: while it is an error
	// nothing is. Events go on to queue runs, which nothing claims. Default never.
	Held func() error
	// Secrets are what webhooks are proved with. Default none.
	Secrets Secrets
	// PerMinute is how many calls of one webhook are taken. Default 600.
	PerMinute int
	Now       func() time.Time // default time.Now
	// Tell tells the operator, in a transaction. Default nobody.
	Tell   func(ctx context.Context, tx *db.Tx, cause, text string) error
	Logger *slog.Logger
}

// Triggers are the targets of one store. It is safe for concurrent use.
type Triggers struct {
	db    *db.DB
	vault *vault.Vault
	log   *eventlog.Log
	runs  Runs
	times *schedule.Schedules
	opt   Options
	slog  *slog.Logger

	refusals refusals
	rates    rates
	room     room

	mu      sync.Mutex
	wanted  *eventlog.Filter // the events somebody listens to; nil: not known
	changes int64            // of what is listened to
}

// New returns the targets of d.
func New(d *db.DB, v *vault.Vault, l *eventlog.Log, runs Runs, times *schedule.Schedules, o Options) *Triggers {
	if o.Held == nil {
		o.Held = func() error { return nil }
	}
	if o.Tell == nil {
		o.Tell = func(context.Context, *db.Tx, string, string) error { return nil }
	}
	if o.Secrets == nil {
		o.Secrets = none{}
	}
	if o.PerMinute == 0 {
		o.PerMinute = perMinute
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Triggers{db: d, vault: v, log: l, runs: runs, times: times, opt: o, slog: o.Logger}
}
