package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/ombud-run/ombud/internal/delegate"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func wireWorktrees(list []delegate.Worktree) (out []wire.DelegateWorktree) {
	for _, t := range list {
		out = append(out, wire.DelegateWorktree{
			SessionID: t.Session, Path: t.Path, Dir: t.Dir, CreatedAt: t.Created, UsedAt: t.Used, Bytes: t.Bytes, Kept: t.Kept,
		})
	}
	return out
}

// delegateDrop forgets one session, or those nobody used for some time.
func (d *Daemon) delegateDrop(ctx context.Context, req wire.DelegateDropRequest) (out wire.DelegateDropResult, err error) {
	older := time.Duration(req.OlderS) * time.Second
	switch {
	case (req.SessionID == "") == (req.OlderS == 0):
		return out, fault.New(fault.Invalid, "either a session or an age is dropped").WithHint("ombud delegate list shows the worktrees")
	case req.SessionID != "" && (req.Force || req.DryRun):
		return out, fault.New(fault.Invalid, "force and a dry run are for those of an age")
	case req.SessionID != "":
		x, err := d.delegations.Drop(ctx, req.SessionID)
		return wire.DelegateDropResult{SessionID: x.ID, Worktree: x.Body.Tree.Path}, err
	case older <= 0 || older/time.Second != time.Duration(req.OlderS):
		return out, fault.New(fault.Invalid, "%d seconds are no age", req.OlderS)
	}
	list, err := d.delegations.DropOlder(ctx, d.db.Time()-older.Microseconds(), req.Force, req.DryRun)
	out.Older = wireWorktrees(list)
	return out, err
}

// muchOfWorktrees is how many bytes of worktrees doctor tells of.
const muchOfWorktrees = 4 << 30

// worktreeCheck looks at what the worktrees of coding agents take.
func (d *Daemon) worktreeCheck(ctx context.Context) wire.Check {
	c := wire.Check{ID: "delegate.worktrees", Status: "ok"}
	list, err := d.delegations.Worktrees(ctx)
	if err != nil {
		c.Status, c.Detail = "fail", err.Error()
		return c
	}
	var total int64
	for _, t := range list {
		total += t.Bytes
	}
	c.Detail = fmt.Sprintf("%d worktrees of coding agents have %d MiB", len(list), total>>20)
	if total > muchOfWorktrees {
		c.Status, c.Hint = "warn", "ombud delegate drop --older 30d --dry-run shows what can go"
	}
	return c
}
