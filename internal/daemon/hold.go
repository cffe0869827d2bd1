package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/wire"
)

func (d *Daemon) held() *wire.Held {
	r, held := d.hold.Record()
	if !held {
		return nil
	}
	return &wire.Held{Restore: r.Restore, Backup: r.Backup, RestoredAt: r.At, BackupAt: r.Made}
}

func (d *Daemon) checkHeld() (wire.Check, bool) {
	r, held := d.hold.Record()
	if !held {
		return wire.Check{}, false
	}
	return wire.Check{
		ID: "restore.held", Status: "warn", Detail: fmt.Sprintf("restored from a backup of %s: nothing is sent, fired or done", time.UnixMicro(r.Made).Format("2006-01-02 15:04")),
		Hint: "ombud restore release shows what would happen, and lets go",
	}, true
}

// shown is how much of a text is told.
const shown = 120

func beginning(s string) string {
	r := []rune(s)
	if len(r) <= shown {
		return s
	}
	return string(r[:shown-1]) + "…"
}

// most is how many of each are listed.
const most = 1000

// restorePending lists what letting go would do.
func (d *Daemon) restorePending(ctx context.Context, _ wire.Empty) (out wire.PendingWork, err error) {
	if out.Held = d.held(); out.Held == nil {
		return out, nil
	}
	for _, state := range []outbox.State{outbox.Queued, outbox.Sending} {
		items, err := d.outbox.List(ctx, outbox.Filter{State: state, Limit: most})
		if err != nil {
			return out, err
		}
		for _, it := range slices.Backward(items) { // the oldest first
			out.Replies = append(out.Replies, wire.PendingReply{
				ID: it.ID, Conversation: d.title(ctx, it.Conversation), Channel: it.Channel, QueuedAt: it.Queued,
				InDoubt: state == outbox.Sending, Text: beginning(it.Text),
			})
		}
	}
	timers, err := d.runs.Timers(ctx, "")
	if err != nil {
		return out, err
	}
	for _, t := range timers {
		if t.At > d.db.Time() {
			out.Later++
			continue
		}
		var says struct {
			Text string `json:"text"`
		}
		_ = json.Unmarshal(t.Payload, &says) // what says nothing is shown by its kind
		out.Timers = append(out.Timers, wire.PendingTimer{ID: t.ID, Kind: t.Kind, At: t.At, Text: beginning(says.Text)})
	}
	due, err := d.overdueSchedules(ctx)
	if err != nil {
		return out, err
	}
	out.Timers = append(out.Timers, due...)
	list, err := d.goingOn(ctx)
	if err != nil {
		return out, err
	}
	for _, live := range slices.Backward(list) {
		rec, steps, err := d.runs.Get(ctx, live.ID)
		if err != nil {
			return out, err
		}
		shown := wire.PendingRun{ID: rec.ID, Kind: rec.Kind, Name: rec.Name, State: string(rec.State), Created: rec.Created}
		for _, s := range steps {
			if s.State == run.Open && (s.Policy == run.AtMostOnce || s.Policy == run.Probed) || s.State == run.Unknown {
				shown.InDoubt++
			}
		}
		out.Runs = append(out.Runs, shown)
	}
	open, err := d.approvals.List(ctx, approval.Filter{State: approval.Pending, Limit: most})
	out.Asked = len(open)
	return out, err
}

// goingOn are the runs that would go on by themselves, the newest first. Uncertain
// ones wait for a person anyway, and some are being ended.
func (d *Daemon) goingOn(ctx context.Context) (out []run.Record, err error) {
	live, err := d.runs.List(ctx, run.Filter{Live: true, Limit: most})
	for _, rec := range live {
		if rec.State != run.Uncertain && rec.State != run.Cancelling {
			out = append(out, rec)
		}
	}
	return out, err
}

// restoreRelease lets go. What is left out is settled first, page by page, while
// everything is still held: cut off, it can be asked for again.
func (d *Daemon) restoreRelease(ctx context.Context, req wire.RestoreReleaseRequest) (out wire.RestoreReleaseResult, err error) {
	r, held := d.hold.Record()
	switch {
	case !held:
		return out, fault.New(fault.Conflict, "this instance is not held")
	case r.Restore != req.Restore:
		return out, fault.New(fault.Conflict, "it is held by restore %s, not by %s", r.Restore, req.Restore)
	}
	if req.SkipOverdue {
		if out.Skipped, err = d.skipOverdue(ctx); err != nil {
			return out, err
		}
	}
	if req.CancelRuns {
		if out.Cancelled, err = d.cancelAll(ctx); err != nil {
			return out, err
		}
	}
	if req.DropReplies { // last: a run that is ended says so
		if out.Dropped, err = d.outbox.DropAll(ctx, byOperator, "released without what was in the outbox"); err != nil {
			return out, err
		}
	}
	var reason strings.Builder
	for _, left := range []struct {
		set  bool
		name string
	}{{req.DropReplies, "drop_replies"}, {req.SkipOverdue, "skip_overdue"}, {req.CancelRuns, "cancel_runs"}} {
		if left.set {
			reason.WriteString(left.name + " ")
		}
	}
	return out, d.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := d.hold.ReleaseTx(ctx, tx, req.Restore); err != nil {
			return err
		}
		tx.AfterCommit(d.schedules.Wake)
		_, err := d.audit.AppendTx(ctx, tx, audit.Entry{Kind: "release", Actor: byOperator, Subject: byOperator, Outcome: "ok", Reason: reason.String() + r.Restore})
		return err
	})
}

// cancelAll ends the work that was under way, the newest first, so that ending one
// does not begin the next.
func (d *Daemon) cancelAll(ctx context.Context) (n int, err error) {
	for {
		list, err := d.goingOn(ctx)
		if err != nil || len(list) == 0 {
			return n, err
		}
		moved := 0
		for _, rec := range list {
			err := d.runs.Cancel(ctx, rec.ID, byOperator, "not gone on with after a restore")
			if err != nil && !fault.Is(err, fault.Conflict) {
				return n, err
			}
			if err == nil {
				moved++
			}
		}
		n += moved
		if moved == 0 {
			return n, nil // what is left is being ended already
		}
	}
}
