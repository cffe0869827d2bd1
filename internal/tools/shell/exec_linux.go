package shell

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ombud-run/ombud/internal/confine"
)

// attributes: a group of its own, and no life after the daemon's. The kernel ties
// the latter to the thread that started the program; threads of the Go runtime
// end before the process only if a goroutine locked to one ends, and none is here.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for the program, kills what it left in its group and then reaps it.
// Until it is reaped its number cannot belong to another group.
func reap(cmd *exec.Cmd) {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	signalGroup(cmd, syscall.SIGKILL)
	_ = confine.Wait(cmd) // how it ended is in ProcessState
}
