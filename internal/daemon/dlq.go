package daemon

import (
	"context"

	"github.com/ombud-run/ombud/internal/deadletter"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// openLetters constructs what tells of the work that was given up.
func (d *Daemon) openLetters() {
	d.letters = deadletter.New(deadletter.Deps{
		DB: d.db, Log: d.events, Audit: d.audit, Runs: d.runs, Deliveries: d.outbox, Tell: d.agents.NoticeTx, Held: d.hold.Refuse, Logger: d.log,
	}, deadletter.Options{Keep: d.o.Config.Config.DeadLetters.Keep})
}

// letterMethods are the operator's methods about dead letters.
func (d *Daemon) letterMethods(m *ipc.Mux) {
	ipc.Handle(m, wire.DLQList, d.dlqList)
	ipc.Handle(m, wire.DLQShow, func(ctx context.Context, req wire.DLQRequest) (wire.DLQResult, error) {
		return d.shownLetter(ctx)(d.letters.Get(ctx, req.ID))
	})
	ipc.Handle(m, wire.DLQReplay, func(ctx context.Context, req wire.DLQReplayRequest) (wire.DLQResult, error) {
		return d.shownLetter(ctx)(d.letters.Replay(ctx, deadletter.Request{ID: req.ID, By: byOperator, Note: req.Note, Fresh: req.Fresh}))
	})
	ipc.Handle(m, wire.DLQDrop, func(ctx context.Context, req wire.DLQDropRequest) (wire.DLQResult, error) {
		return d.shownLetter(ctx)(d.letters.Drop(ctx, deadletter.Request{ID: req.ID, By: byOperator, Note: req.Note}))
	})
}

func (d *Daemon) shownLetter(ctx context.Context) func(eventlog.DeadLetter, error) (wire.DLQResult, error) {
	return func(l eventlog.DeadLetter, err error) (wire.DLQResult, error) {
		if err != nil {
			return wire.DLQResult{}, err
		}
		return wire.DLQResult{Letter: d.wireLetter(ctx, l)}, nil
	}
}

func (d *Daemon) dlqList(ctx context.Context, req wire.DLQListRequest) (out wire.DLQListResult, err error) {
	f := eventlog.LetterFilter{
		Source: eventlog.Source(req.Source), Name: req.Name, Class: fault.Class(req.Class), Since: req.Since, After: req.After, Limit: req.Limit,
		State: eventlog.LetterWaiting,
	}
	if req.All {
		f.State = ""
	}
	if f.Limit <= 0 {
		f.Limit = 100
	}
	f.Limit = min(f.Limit, 1000)
	letters, err := d.events.DeadLetters(ctx, f)
	for _, l := range letters {
		out.Letters = append(out.Letters, d.wireLetter(ctx, l))
	}
	if len(letters) == f.Limit {
		out.Next = letters[f.Limit-1].ID
	}
	return out, err
}

func (d *Daemon) wireLetter(ctx context.Context, l eventlog.DeadLetter) wire.DeadLetter {
	out := wire.DeadLetter{
		ID: l.ID, Source: string(l.Source), Name: l.Name, Ref: l.Ref, Title: l.Title, State: string(l.State), Attempts: int(l.Attempts),
		Problem: wire.Problem{Class: l.Class, Message: l.Error}, FirstAt: l.First, At: l.Last, Cause: l.Cause, RunID: l.Run,
		Replays: int(l.Replays), SettledAt: l.Settled, SettledBy: l.By,
	}
	for _, w := range deadletter.Ways(l) {
		out.WaysToGoOn = append(out.WaysToGoOn, wire.DLQWay(w))
	}
	if l.Source != eventlog.FromSubscription {
		return out
	}
	if e, err := d.events.ByID(ctx, l.Ref); err == nil {
		shown := wireEvent(e)
		out.Event = &shown
	}
	return out
}
