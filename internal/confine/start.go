package confine

import (
	"os/exec"
	"sync"
)

// children are the processes this process started and waits for itself. The
// reaper must leave their exit status to whoever waits.
type children struct {
	mu  sync.RWMutex // held for reading across a fork, so the reaper sees none unlisted
	set sync.Map     // pid → struct{}
}

var own children

// Start starts a command and lists it as ours until [Wait] has returned. Every
// process ombud starts is started here.
func Start(cmd *exec.Cmd) error {
	own.mu.RLock()
	defer own.mu.RUnlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	own.set.Store(cmd.Process.Pid, struct{}{})
	return nil
}

// Wait waits for a command that Start started.
func Wait(cmd *exec.Cmd) error {
	defer own.set.Delete(cmd.Process.Pid)
	return cmd.Wait()
}
