package daemon

import (
	"github.com/ombud-run/ombud/internal/trigger"
)

// openTriggers constructs what can be started and what starts it.
func (d *Daemon) openTriggers() {
	d.triggers = trigger.New(d.db, d.vault, d.events, d.runs, d.schedules, trigger.Options{
		Held: d.hold.Refuse, Secrets: d.secrets, Tell: d.agents.NoticeTx, Logger: d.log,
	})
}
