package signed

import (
	"context"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/wasmloop"
)

// StartTargets lets the triggers know the loops. It is called once, before anything fires.
func (l *Library) StartTargets(ctx context.Context) error {
	return l.d.DB.InTx(ctx, l.targetsTx)
}

// targetsTx makes what starts the loops what their rows say.
func (l *Library) targetsTx(ctx context.Context, tx *db.Tx) error {
	list, err := l.listIn(ctx, tx)
	if err != nil {
		return err
	}
	revoked, err := l.revokedIn(ctx, tx)
	if err != nil {
		return err
	}
	if err := l.cancelTx(ctx, tx, list); err != nil {
		return err
	}
	var all []trigger.Target
	for _, x := range list {
		if !x.Shadowed {
			all = append(all, x.target())
		}
	}
	if err := l.d.Targets.ReplaceTx(ctx, tx, Owner, all); err != nil {
		return err
	}
	tx.AfterCommit(func() {
		l.remember(list, revoked)
		l.d.Changed()
	})
	return nil
}

// target is what starts a loop, in the words of package trigger. One that may not run
// keeps its triggers and is paused, so what they withhold is counted.
func (x *Installed) target() trigger.Target {
	t := trigger.Target{Name: x.Subject(), RunKind: Kind, Definition: x.Definition(), Busy: run.Queue, Paused: x.Stopped() != ""}
	if x.Problem != nil {
		return t
	}
	t.On = triggersOf(x.Manifest, x.Settings)
	return t
}

func triggersOf(m wasmloop.Manifest, set Settings) (on []trigger.On) {
	if m.Schedule != "" {
		on = append(on, trigger.On{Schedule: &trigger.Schedule{When: m.Schedule}})
	}
	if len(m.Events) > 0 {
		on = append(on, trigger.On{Event: &trigger.EventFilter{Kinds: m.Events}})
	}
	if m.Webhook != "" && set.Webhook != "" {
		w := trigger.Webhook{Path: hookPath(m.Webhook), Scheme: trigger.Open}
		if set.Webhook != "open" {
			w.Scheme, w.Secrets = trigger.Generic, []string{set.Webhook}
		}
		on = append(on, trigger.On{Webhook: &w})
	}
	if slices.Contains(m.Host, wasmloop.FnAfter) {
		on = append(on, trigger.On{Timer: true})
	}
	return on
}

// hookPath is what a manifest calls its webhook, as it is below /hooks/.
func hookPath(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, trigger.HooksPath), "/")
}
