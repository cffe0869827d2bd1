package deadletter

import (
	"context"
	"log/slog"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
)

// The kinds of events that a dead letter leaves, on the stream deadletter:<id>. That it
// came to be is told by system.critical.
const (
	KindReplayed = "deadletter.replayed"
	KindDropped  = "deadletter.dropped"
	KindRefused  = "deadletter.replay_failed"
)

// Told is the payload of all of them.
type Told struct {
	Letter string          `json:"dead_letter"`
	Source eventlog.Source `json:"source"`
	Name   string          `json:"name"`
	Ref    string          `json:"ref"` // id of the event, run or delivery
	By     string          `json:"by"`
	Note   string          `json:"note,omitempty"`
	Run    string          `json:"run,omitempty"` // what a replay works as
	Fresh  bool            `json:"fresh,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// Runs lets failed runs go on.
type Runs interface {
	ReplayTx(ctx context.Context, tx *db.Tx, id, by, letter string) error
	AgainTx(ctx context.Context, tx *db.Tx, id, newID, by, cause string) error
}

// Deliveries sends messages again, or leaves them.
type Deliveries interface {
	ResendTx(ctx context.Context, tx *db.Tx, id, by, note string) error
	SkipTx(ctx context.Context, tx *db.Tx, id, by, note string) error
}

// Deps is what Letters works with.
type Deps struct {
	DB         *db.DB
	Log        *eventlog.Log
	Audit      *audit.Audit
	Runs       Runs
	Deliveries Deliveries
	// Tell tells the operator, once for each cause.
	Tell func(ctx context.Context, tx *db.Tx, cause, text string) error
	// Held refuses, with the reason, while nothing may be done.
	Held   func() error
	Logger *slog.Logger
}

// Options tune Letters; zero fields have defaults.
type Options struct {
	Pause    time.Duration // after the first notice of a burst; default 10 min
	MaxPause time.Duration // to which it grows; default 24 h
	Keep     time.Duration // how long what waits is kept; default for ever
	Settled  time.Duration // how long what was replayed or dropped is; default 30 days
}

func (o Options) withDefaults() Options {
	if o.Pause <= 0 {
		o.Pause = 10 * time.Minute
	}
	if o.MaxPause <= 0 {
		o.MaxPause = 24 * time.Hour
	}
	if o.Settled <= 0 {
		o.Settled = 30 * 24 * time.Hour
	}
	return o
}

// Letters is the dead letters of one store. It is safe for concurrent use.
type Letters struct {
	Deps
	opt Options
}

// New returns the dead letters of d.DB. Its OnDead belongs into the log's options.
func New(d Deps, o Options) *Letters {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Held == nil {
		d.Held = func() error { return nil }
	}
	return &Letters{Deps: d, opt: o.withDefaults()}
}

// Get returns the one letter whose id begins with prefix.
func (l *Letters) Get(ctx context.Context, prefix string) (d eventlog.DeadLetter, err error) {
	err = l.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		d, err = l.Log.DeadLetterIn(ctx, q, prefix)
		return err
	})
	return d, err
}

// Unhandled is what waits, by source and name.
func (l *Letters) Unhandled(ctx context.Context) ([]eventlog.Pile, error) { return l.Log.Piles(ctx) }

// Request is a person's wish about a letter.
type Request struct {
	ID    string // or the beginning of it
	By    string
	Note  string
	Fresh bool // of a run: start a new one, without the recorded steps
}

// Replay has what was given up done again and returns the letter after it. Errors:
// NotFound; Conflict if the letter does not wait; Waiting while held; Unavailable if
// who gave it up does not run here; of an event, its handler's.
func (l *Letters) Replay(ctx context.Context, req Request) (d eventlog.DeadLetter, err error) {
	if err := l.Held(); err != nil {
		return d, err
	}
	err = l.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		d, err = l.replayTx(ctx, tx, req)
		return err
	})
	if eventlog.HandedAgain(err) {
		if noted := l.refused(ctx, d, req, err); noted != nil {
			l.Logger.Error("note a replay that failed", "dead_letter", d.ID, "error", noted)
		}
		return d, err
	}
	if err != nil {
		return d, err
	}
	return l.Get(ctx, d.ID)
}

func (l *Letters) replayTx(ctx context.Context, tx *db.Tx, req Request) (eventlog.DeadLetter, error) {
	d, err := l.waiting(ctx, tx, req, "replay")
	if err != nil {
		return d, err
	}
	told := l.told(d, req)
	switch {
	case d.Source != eventlog.FromRun && req.Fresh:
		return d, fault.New(fault.Invalid, "dead letter %s is no run: only a run can begin anew", d.ID)
	case req.Fresh:
		told.Run = id.New("run")
	case d.Source == eventlog.FromRun:
		told.Run = d.Ref
	}
	if err := l.Log.SettleLetterTx(ctx, tx, d.ID, eventlog.LetterReplayed, req.By, told.Run); err != nil {
		return d, err
	}
	event, err := l.record(ctx, tx, KindReplayed, "replayed", told)
	if err != nil {
		return d, err
	}
	return d, l.again(ctx, tx, d, told, event)
}

// again sets the work going.
func (l *Letters) again(ctx context.Context, tx *db.Tx, d eventlog.DeadLetter, told Told, event string) error {
	switch d.Source {
	case eventlog.FromSubscription:
		return l.Log.HandAgainTx(ctx, tx, d)
	case eventlog.FromDelivery:
		return l.Deliveries.ResendTx(ctx, tx, d.Ref, told.By, told.Note)
	case eventlog.FromRun:
		if told.Fresh {
			return l.Runs.AgainTx(ctx, tx, d.Ref, told.Run, told.By, event)
		}
		return l.Runs.ReplayTx(ctx, tx, d.Ref, told.By, d.ID)
	}
	return fault.New(fault.Verification, "dead letter %s is of the unknown source %q", d.ID, d.Source)
}

// Drop lays a letter to rest: nothing more is done about it. It only moves rows, so a
// held instance does it too. Errors: NotFound; Conflict if the letter does not wait.
func (l *Letters) Drop(ctx context.Context, req Request) (d eventlog.DeadLetter, err error) {
	err = l.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		d, err = l.dropTx(ctx, tx, req)
		return err
	})
	if err != nil {
		return d, err
	}
	return l.Get(ctx, d.ID)
}

func (l *Letters) dropTx(ctx context.Context, tx *db.Tx, req Request) (eventlog.DeadLetter, error) {
	d, err := l.waiting(ctx, tx, req, "drop")
	if err != nil {
		return d, err
	}
	if err := l.Log.SettleLetterTx(ctx, tx, d.ID, eventlog.LetterDropped, req.By, ""); err != nil {
		return d, err
	}
	if _, err := l.record(ctx, tx, KindDropped, "dropped", l.told(d, req)); err != nil || d.Source != eventlog.FromDelivery {
		return d, err
	}
	return d, l.Deliveries.SkipTx(ctx, tx, d.Ref, req.By, req.Note)
}

// waiting returns a letter that can be decided, else says why it cannot.
func (l *Letters) waiting(ctx context.Context, tx *db.Tx, req Request, what string) (eventlog.DeadLetter, error) {
	d, err := l.Log.DeadLetterIn(ctx, tx, req.ID)
	if err != nil || d.State == eventlog.LetterWaiting {
		return d, err
	}
	at := time.UnixMicro(d.Settled).Format("2006-01-02 15:04")
	if d.State == eventlog.LetterDropped {
		return d, fault.New(fault.Conflict, "dead letter %s was dropped by %s on %s: there is nothing to %s", d.ID, d.By, at, what)
	}
	refused := fault.New(fault.Conflict, "dead letter %s was replayed by %s on %s: there is nothing to %s", d.ID, d.By, at, what)
	if d.Run != "" {
		return d, refused.WithHint("ombud runs show %s tells what came of it; if it fails again the letter waits again", d.Run)
	}
	return d, refused
}

func (l *Letters) told(d eventlog.DeadLetter, req Request) Told {
	return Told{Letter: d.ID, Source: d.Source, Name: d.Name, Ref: d.Ref, By: req.By, Note: req.Note, Fresh: req.Fresh}
}

// record leaves the event and the entry of the audit log, and returns the event's id.
func (l *Letters) record(ctx context.Context, tx *db.Tx, kind, outcome string, told Told) (string, error) {
	evs, err := l.Log.AppendTx(ctx, tx, eventlog.New{
		Stream: "deadletter:" + told.Letter, Kind: kind, Actor: told.By, Cause: told.Ref, Data: told, Expect: eventlog.Any,
	})
	if err != nil {
		return "", err
	}
	_, err = l.Audit.AppendTx(ctx, tx, audit.Entry{
		Kind: "dead_letter", Actor: told.By, Subject: told.By, Outcome: outcome, Reason: told.Letter, Run: told.Run,
	})
	return evs[0].ID, err
}

// refused records that the handler of an event failed once more.
func (l *Letters) refused(ctx context.Context, d eventlog.DeadLetter, req Request, failure error) error {
	return l.DB.InTx(context.WithoutCancel(ctx), func(ctx context.Context, tx *db.Tx) error {
		if err := l.Log.FailedAgainTx(ctx, tx, d.ID, failure); err != nil {
			return err
		}
		told := l.told(d, req)
		told.Error = failure.Error()
		_, err := l.record(ctx, tx, KindRefused, string(fault.ClassOf(failure)), told)
		return err
	})
}

// Forget removes what is older than it is kept.
func (l *Letters) Forget(ctx context.Context) error {
	now := l.DB.Time()
	var waiting int64
	if l.opt.Keep > 0 {
		waiting = now - l.opt.Keep.Microseconds()
	}
	for {
		n, err := l.Log.ForgetLetters(ctx, now-l.opt.Settled.Microseconds(), waiting)
		if n == 0 || err != nil {
			return err
		}
	}
}
