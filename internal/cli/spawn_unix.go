//go:build unix

package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
)

// detach gives the child a session of its own, so that no terminal's end reaches it.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// keepDescriptors keeps what we inherited ourselves from going on to a child: a
// daemon that held a pipe of the caller would keep its reader waiting for ever.
func keepDescriptors() {
	dir := "/dev/fd"
	if runtime.GOOS == "linux" {
		dir = "/proc/self/fd"
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // Go's own descriptors are closed on exec anyway
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// alive reports whether a process runs. One that has ended and that nobody has
// waited for, as happens below a container's first process, does not.
func alive(pid int) bool {
	if err := syscall.Kill(pid, 0); err != nil && !errors.Is(err, syscall.EPERM) {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return runtime.GOOS != "linux" || !errors.Is(err, os.ErrNotExist)
	}
	_, rest, ok := bytes.Cut(stat, []byte(") ")) // behind the name, which may hold anything but is followed by the state
	return !ok || len(rest) == 0 || (rest[0] != 'Z' && rest[0] != 'X')
}

const canHandOver = true

// handOver gives the child what opens the vault through a pipe: neither its arguments
// nor its environment show it. It fits into the pipe, so nobody has to wait. done
// closes our end.
func handOver(cmd *exec.Cmd, h *handed) (done func(), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	text := h.bytes()
	defer clear(text)
	_, err = w.Write(text)
	if err = errors.Join(err, w.Close()); err != nil {
		_ = r.Close()
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{r} // becomes secretPipe
	cmd.Args = append(cmd.Args, "--"+flagPipe)
	return func() { _ = r.Close() }, nil
}
