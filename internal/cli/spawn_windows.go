package cli

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// detachedProcess is DETACHED_PROCESS of the Windows API: no console.
const detachedProcess = 0x00000008

func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP | detachedProcess}
}

func keepDescriptors() {} // handles are inherited only if asked for

func alive(pid int) bool {
	p, err := os.FindProcess(pid) // opens it, so it fails for one that is gone
	if err != nil {
		return false
	}
	_ = p.Release()
	return true
}

const canHandOver = false

// handOver says that a descriptor cannot be handed to a child here.
func handOver(*exec.Cmd, *handed) (func(), error) {
	return nil, errors.New("not possible on Windows")
}
