//go:build !failpoint

package daemon

import "github.com/ombud-run/ombud/internal/loops"

// extraTools is empty in what we ship.
func (d *Daemon) extraTools() []registrar { return nil }

// extraLoops is empty in what we ship.
func (d *Daemon) extraLoops() []loops.Loop { return nil }
