//go:build unix

package whatsapp

import (
	"os/exec"
	"syscall"
)

// group gives a command a process group of its own, which is ended as a whole.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		endGroup(cmd)
		return nil
	}
}

// endGroup errs only when nobody is left in the group.
func endGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
