package daemon

import "github.com/ombud-run/ombud/internal/eventlog"

// ownTools are the tools that work on ombud's own store.
func (d *Daemon) ownTools() []registrar { return nil }

// subscriptions are the readers of the log.
func (d *Daemon) subscriptions() []eventlog.Subscription { return nil }
