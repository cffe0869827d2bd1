//go:build unix && !linux

package shell

import (
	"os/exec"
	"syscall"

	"github.com/ombud-run/ombud/internal/confine"
)

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// reap waits for the program and kills what it left in its group.
func reap(cmd *exec.Cmd) {
	_ = confine.Wait(cmd) // how it ended is in ProcessState
	signalGroup(cmd, syscall.SIGKILL)
}
