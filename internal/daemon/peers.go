package daemon

import (
	"context"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// adopt keeps whatever a job starts among this process's descendants, which is how
// the operator socket knows it.
func (d *Daemon) adopt(context.Context) (err error) {
	d.unadopt, err = confine.Adopt(d.log)
	return err
}

// admitOperator refuses the processes of jobs at the operator socket, though they
// have the operator's uid: a job that could connect would approve its own calls.
func admitOperator(p wire.Peer) error {
	if p.PID == 0 {
		return nil // the system does not tell; the threat model says so
	}
	job, err := confine.IsJob(p.PID)
	if err == nil && !job {
		// A job of a daemon that was killed, or of another instance, descends from others.
		job, err = confine.InJobGroup(p.PID)
	}
	if err != nil {
		return fault.New(fault.Permission, "who connects cannot be told: %w", err)
	}
	if job {
		return fault.New(fault.Denied, "process %d works for ombud and may not speak as its operator", p.PID)
	}
	return nil
}
