package daemon

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/wire"
)

// lookEvery is how often a watch looks at the store when nothing wakes it.
const lookEvery = time.Second

// turnWatch follows a turn to its end. The notes are hints; the result is read
// from the store.
func (d *Daemon) turnWatch(ctx context.Context, req wire.TurnWatchRequest, send func(wire.TurnNote) error) (wire.TurnResult, error) {
	notes, stopNotes := d.agents.Live().Watch(req.RunID)
	defer stopNotes()
	woken, stopWake := d.runs.Watch()
	defer stopWake()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	w := turnWatcher{d: d, run: req.RunID, send: send, told: map[string]bool{}}
	for {
		rec, done, err := w.look(ctx)
		if err != nil {
			return wire.TurnResult{}, err
		}
		if done {
			w.drain(notes)
			return d.turnResult(ctx, rec)
		}
		for waiting := true; waiting; {
			select {
			case n := <-notes:
				if err := w.note(n); err != nil {
					return wire.TurnResult{}, err
				}
			case <-woken:
				waiting = false
			case <-tick.C:
				waiting = false
			case <-ctx.Done():
				return wire.TurnResult{}, ctx.Err()
			}
		}
	}
}

// turnWatcher remembers what one watch has told.
type turnWatcher struct {
	d     *Daemon
	run   string
	send  func(wire.TurnNote) error
	state run.State
	full  bool            // whether the disk was full at the last look
	told  map[string]bool // approvals
}

func (w *turnWatcher) look(ctx context.Context) (run.Record, bool, error) {
	rec, _, err := w.d.runs.Get(ctx, w.run)
	if err != nil || rec.State.Ended() {
		return rec, err == nil, err
	}
	if full := w.d.db.Full(); full != w.full {
		w.full = full
		note := "there is room on the disk again"
		if full {
			note = "the disk is full: what was taken waits, and goes on when there is room"
		}
		if err := w.send(wire.TurnStatus{State: string(rec.State), Note: note, Trouble: true}); err != nil {
			return rec, false, err
		}
	}
	if rec.State != w.state {
		w.state = rec.State
		if err := w.send(wire.TurnStatus{State: string(rec.State)}); err != nil {
			return rec, false, err
		}
	}
	if rec.State == run.Queued && rec.Key != "" {
		return rec, false, w.tellQuestionAhead(ctx, rec.Key)
	}
	if rec.Wait != run.ForApproval {
		return rec, false, w.tellQuestionsWithin(ctx, rec)
	}
	open, err := w.d.approvals.List(ctx, approval.Filter{Run: w.run, State: approval.Pending})
	for _, a := range open {
		if w.told[a.ID] || err != nil {
			continue
		}
		if err := w.ask(a); err != nil {
			return rec, false, err
		}
	}
	return rec, false, err
}

func (w *turnWatcher) ask(a approval.Approval) error {
	w.told[a.ID] = true
	return w.send(wire.TurnApproval{ID: a.ID, Summary: a.Summary, ExpiresAt: a.Expires, Form: wireForm(a.Form)})
}

// maxWithin is how deep a question is looked for below a turn.
const maxWithin = 6

// tellQuestionsWithin tells of what is asked by work that the turn waits for, or that its
// present call does: by a coding agent, or a server whose tool is called.
func (w *turnWatcher) tellQuestionsWithin(ctx context.Context, rec run.Record) error {
	if rec.Key == "" {
		return nil
	}
	open, err := w.d.approvals.List(ctx, approval.Filter{State: approval.Pending, Conversation: rec.Key})
	if err != nil {
		return err
	}
	for _, a := range open {
		if w.told[a.ID] || a.Detached {
			continue
		}
		ours := false
		err := w.d.db.Read(ctx, func(ctx context.Context, q db.Q) error {
			for id, depth := a.Run, 0; id != "" && depth < maxWithin && !ours; depth++ {
				up, err := w.d.runs.RecordIn(ctx, q, id)
				if err != nil {
					return err
				}
				id, ours = up.Parent, up.Parent == w.run
			}
			return nil
		})
		if err != nil {
			return err
		}
		if ours {
			if err := w.ask(a); err != nil {
				return err
			}
		}
	}
	return nil
}

// tellQuestionAhead names the question that keeps a conversation from going on: a turn,
// whose key is its conversation, does not begin before it is decided or the wait for it
// is over.
func (w *turnWatcher) tellQuestionAhead(ctx context.Context, conversation string) error {
	open, err := w.d.approvals.List(ctx, approval.Filter{State: approval.Pending, Conversation: conversation})
	if err != nil {
		return err
	}
	for _, a := range open {
		if w.told[a.ID] {
			continue
		}
		var ahead run.Record
		err := w.d.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
			ahead, err = w.d.runs.RecordIn(ctx, q, a.Run)
			return err
		})
		if err != nil {
			return err
		}
		if ahead.Wait != run.ForApproval {
			continue // it went on without; the approved call will be a run of its own
		}
		w.told[a.ID] = true
		note := "waits for your decision before it: " + a.Summary + " (ombud approve " + a.ID + ", --deny for no)"
		if err := w.send(wire.TurnStatus{State: string(run.Queued), Note: note, Trouble: true}); err != nil {
			return err
		}
	}
	return nil
}

func (w *turnWatcher) note(n agent.Note) error {
	switch {
	case n.Restart:
		return w.send(wire.TurnStatus{State: string(run.Running), Note: "asking again"})
	case n.Text != "":
		return w.send(wire.TurnDelta{Text: n.Text})
	case n.Status != "":
		return w.send(wire.TurnStatus{State: string(run.Running), Note: n.Status})
	}
	return nil
}

// drain hands on what was streamed before the end was seen; a reader that has gone
// does not matter any more.
func (w *turnWatcher) drain(notes <-chan agent.Note) {
	for {
		select {
		case n := <-notes:
			if w.note(n) != nil {
				return
			}
		default:
			return
		}
	}
}

// turnResult is how a turn, or an approved call, ended.
func (d *Daemon) turnResult(ctx context.Context, rec run.Record) (wire.TurnResult, error) {
	answer, ok := agent.OutcomeOf(rec)
	if !ok {
		return wire.TurnResult{}, fault.New(fault.Conflict, "run %s has not ended", rec.ID)
	}
	out := wire.TurnResult{
		RunID: rec.ID, Outcome: string(answer.Outcome), Reply: answer.Reply, CostMicroUSD: rec.Cost, CostKnown: rec.CostKnown,
		ToolCalls: answer.Calls, Error: problem(rec.ErrorClass, rec.Error),
	}
	for _, id := range answer.Approvals {
		a, err := d.approvals.Get(ctx, id)
		if err != nil {
			return out, err
		}
		if a.State == approval.Pending {
			out.Approvals = append(out.Approvals, wire.TurnApproval{ID: a.ID, Summary: a.Summary, ExpiresAt: a.Expires, Form: wireForm(a.Form)})
		}
	}
	return out, nil
}

func problem(class fault.Class, text string) *wire.Problem {
	if class == "" {
		return nil
	}
	return &wire.Problem{Class: class, Message: text, Unknown: class == fault.Unknown}
}

// eventsTail follows the log from a position, or from its end.
func (d *Daemon) eventsTail(ctx context.Context, req wire.EventsTailRequest, send func(wire.Event) error) (wire.EventsTailResult, error) {
	out := wire.EventsTailResult{}
	if req.After != nil {
		out.Position = *req.After
	} else {
		head, err := d.events.Head(ctx)
		if err != nil {
			return out, err
		}
		out.Position = head
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	idle := time.Duration(req.IdleS) * time.Second
	ended := false
	var timer *time.Timer
	if idle > 0 {
		timer = time.AfterFunc(idle, func() { cancel() })
		defer timer.Stop()
		ended = true
	}
	exact, prefixes := splitKinds(req.Kinds)
	f := eventlog.Filter{Kinds: exact, StreamPrefix: req.Stream}
	if len(prefixes) > 0 {
		f.Kinds = nil
	}
	err := d.events.Tail(ctx, out.Position, f, func(e eventlog.Event) error {
		out.Position = e.Position
		if !matchKind(req.Kinds, e.Kind) || req.Stream != "" && e.Stream != req.Stream {
			return nil
		}
		if timer != nil {
			timer.Reset(idle)
		}
		return send(wireEvent(e))
	})
	if ended && fault.Is(err, fault.Cancelled) {
		err = nil
	}
	return out, err
}

func splitKinds(kinds []string) (exact, prefixes []string) {
	for _, k := range kinds {
		if p, ok := strings.CutSuffix(k, "*"); ok {
			prefixes = append(prefixes, p)
		} else {
			exact = append(exact, k)
		}
	}
	return exact, prefixes
}

func matchKind(kinds []string, kind string) bool {
	if len(kinds) == 0 {
		return true
	}
	exact, prefixes := splitKinds(kinds)
	if slices.Contains(exact, kind) {
		return true
	}
	for _, p := range prefixes {
		if strings.HasPrefix(kind, p) {
			return true
		}
	}
	return false
}
