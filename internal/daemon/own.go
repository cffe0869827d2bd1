package daemon

import (
	"context"
	"time"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/loops"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/tools/memory"
	"github.com/ombud-run/ombud/internal/tools/notify"
	"github.com/ombud-run/ombud/internal/tools/remind"
	"github.com/ombud-run/ombud/internal/tools/result"
	"github.com/ombud-run/ombud/internal/tools/schedule"
	"github.com/ombud-run/ombud/internal/tools/send"
)

// ownTools are the tools that work on ombud's own store.
func (d *Daemon) ownTools() []registrar {
	return []registrar{
		memory.New(d.memory, memoryOf),
		remind.New(d.runs, time.Local),
		schedule.New(func() schedule.Schedules { return d.schedules }),
		result.New(d.blobs, d.kept),
		d.checkpoints,
		loops.NewTools(&d.kit),
		d.delegations,
		send.New(func(ctx context.Context, tx *db.Tx, s agent.Sending) (outbox.Item, error) {
			return d.agents.SendTx(ctx, tx, s)
		}),
		notify.New(func(ctx context.Context, tx *db.Tx, cause, text string) error {
			return d.agents.NoticeTx(ctx, tx, cause, text)
		}),
	}
}

// subscriptions are the readers of the log.
func (d *Daemon) subscriptions() []eventlog.Subscription {
	return []eventlog.Subscription{remind.OnFired(d.agents.SayTx), d.triggers.Subscription()}
}
