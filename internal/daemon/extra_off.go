//go:build !failpoint

package daemon

// extraTools is empty in what we ship.
func (d *Daemon) extraTools() []registrar { return nil }
