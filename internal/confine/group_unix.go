//go:build unix && !linux

package confine

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const holding = "a process group, which a program can leave"

func groupAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// These err only when nobody is left in the group.

func askGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGTERM) }
func endGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }

func exitOf(s *os.ProcessState) Exit {
	status, ok := s.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return Exit{Code: -1, Signal: unix.SignalName(status.Signal())}
	}
	return Exit{Code: s.ExitCode()}
}
