//go:build !linux

package confine

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// defaultExe is not used: there is no launcher.
const defaultExe = ""

// settings are of Linux.
type settings struct{}

// elsewhere is a system whose walls we do not know.
type elsewhere struct{}

func ownSystem(*Launcher) System { return elsewhere{} }

func (elsewhere) Landlock() int     { return 0 }
func (elsewhere) Seccomp() bool     { return false }
func (elsewhere) Namespaces() error { return errors.New("for Linux only") }

// start starts the program as it is, in a group of its own where there are groups.
func (l *Launcher) start(_ context.Context, s Spec, j *Job) error {
	if l.o.Enforce == EnforceStrict {
		return fault.New(fault.Unavailable, "run %s: not confined on %s; nothing ran", s.Path, runtime.GOOS).
			WithHint("set the enforcement to best to run programs without walls, or use Linux")
	}
	if s.Profile.Network == NetProxy && l.o.Enforce != EnforceOff {
		return fault.New(fault.Unavailable, "run %s: its network cannot be kept to the proxy on %s; nothing ran", s.Path, runtime.GOOS)
	}
	st, err := s.open()
	if err != nil {
		return fault.New(fault.Unavailable, "run %s: %w; nothing ran", s.Path, err)
	}
	cmd := &exec.Cmd{
		Path: s.Path, Args: s.Args, Env: s.Env, Dir: s.Dir,
		Stdin: st.child[0], Stdout: st.child[1], Stderr: st.child[2], SysProcAttr: groupAttributes(),
	}
	if cmd.Env == nil {
		cmd.Env = []string{} // nil would be ours
	}
	if err := Start(cmd); err != nil {
		st.abandon()
		return fault.New(startClass(err), "run %s: %w; nothing ran", s.Path, reason(err))
	}
	j.pid = cmd.Process.Pid
	if st.stdin != nil {
		j.stdin = st.stdin
	}
	st.started()
	go l.follow(j, s, cmd, st)
	return nil
}

func (l *Launcher) follow(j *Job, s Spec, cmd *exec.Cmd, st *streams) {
	finished := make(chan struct{})
	go order(j, s.Grace, cmd.Process, finished)
	_ = Wait(cmd) // how it ended is in ProcessState
	close(finished)
	endGroup(cmd.Process)
	j.exit = exitOf(cmd.ProcessState)
	st.ended()
	l.leave(j)
}

func order(j *Job, grace time.Duration, p *os.Process, finished <-chan struct{}) {
	stop := j.asked.stop
	var late <-chan time.Time
	for {
		select {
		case <-finished:
			return
		case <-stop:
			stop = nil
			askGroup(p)
			t := time.NewTimer(grace)
			defer t.Stop()
			late = t.C
		case <-late:
			late = nil
			endGroup(p)
		case <-j.asked.kill:
			endGroup(p)
			return
		}
	}
}

// Report says what is in force.
func (l *Launcher) Report() Report {
	return Report{
		System: runtime.GOOS, Enforce: l.o.Enforce, Holding: holding,
		Missing: []string{"jobs are not confined on " + runtime.GOOS},
	}
}
