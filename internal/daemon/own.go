package daemon

import (
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/tools/memory"
)

// ownTools are the tools that work on ombud's own store.
func (d *Daemon) ownTools() []registrar {
	return []registrar{memory.New(d.memory, nil)}
}

// subscriptions are the readers of the log.
func (d *Daemon) subscriptions() []eventlog.Subscription { return nil }
