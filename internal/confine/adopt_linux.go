package confine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ombud-run/ombud/internal/fault"
)

// maxDepth bounds the walk from a process to its ancestors.
const maxDepth = 256

// Adopt makes this process the reaper of the orphans among its descendants and
// buries them when they die. stop ends the burying; being their reaper stays.
func Adopt(log *slog.Logger) (stop func(), err error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fault.New(fault.Unavailable, "become the reaper of orphans: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	var loop sync.WaitGroup
	loop.Go(func() {
		tick := time.NewTicker(10 * time.Second) // signals of the same kind merge
		defer tick.Stop()
		for {
			select {
			case <-died:
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if err := bury(); err != nil {
				log.Warn("bury orphans", "error", err)
			}
		}
	})
	return func() { signal.Stop(died); cancel(); loop.Wait() }, nil
}

// bury waits for dead children that nobody else waits for.
func bury() error {
	own.mu.Lock() // nobody is between fork and list
	defer own.mu.Unlock()
	pids, err := childrenOf(os.Getpid())
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if _, ours := own.set.Load(pid); ours {
			continue
		}
		st, err := statOf(pid)
		if err != nil || st.state != 'Z' {
			continue
		}
		var status unix.WaitStatus
		if _, err := unix.Wait4(pid, &status, unix.WNOHANG, nil); err != nil && !errors.Is(err, unix.ECHILD) {
			return fmt.Errorf("wait for orphan %d: %w", pid, err)
		}
	}
	return nil
}

// endOrphans ends what a job left whose launcher died: children of this process
// that it did not start, in a session that is not its own.
func endOrphans() {
	session, err := unix.Getsid(0)
	if err != nil {
		return
	}
	for range maxDepth { // what they started becomes ours as they die
		pids, err := orphans(session)
		if err != nil || len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // it has ended already
		}
		for _, pid := range pids {
			var status unix.WaitStatus
			_, _ = unix.Wait4(pid, &status, 0, nil) // or bury had it
		}
	}
}

func orphans(session int) ([]int, error) {
	own.mu.Lock() // nobody is between fork and list
	defer own.mu.Unlock()
	pids, err := childrenOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pids, func(pid int) bool {
		_, ours := own.set.Load(pid)
		sid, err := unix.Getsid(pid)
		return ours || err != nil || sid == session
	}), nil
}

// childrenOf lists the children of all threads of a process.
func childrenOf(pid int) ([]int, error) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, t := range threads {
		list, err := os.ReadFile(dir + "/" + t.Name() + "/children")
		if err != nil {
			continue // the thread has ended
		}
		for f := range strings.FieldsSeq(string(list)) {
			if pid, err := strconv.Atoi(f); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out, nil
}

type stat struct {
	state  byte
	parent int
}

// statOf reads a process's state and parent. The name, in parentheses, may contain
// anything, so the fields are counted from its end.
func statOf(pid int) (stat, error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	_, rest, ok := strings.Cut(string(line[bytes.LastIndexByte(line, ')')+1:]), " ")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 2 {
		return stat{}, fmt.Errorf("stat of process %d is not what proc(5) says", pid)
	}
	parent, err := strconv.Atoi(fields[1])
	return stat{state: fields[0][0], parent: parent}, err
}

// IsJob reports whether a process descends from this one. An error means that it
// could not be told, for example because the process is gone: refuse it then.
func IsJob(pid int) (bool, error) {
	self := os.Getpid()
	if pid == self {
		return false, nil
	}
	for range maxDepth {
		if pid == self {
			return true, nil
		}
		if pid <= 1 {
			return false, nil
		}
		st, err := statOf(pid)
		if err != nil {
			return false, fault.New(fault.Unavailable, "look up process %d: %w", pid, err)
		}
		pid = st.parent
	}
	return false, fault.New(fault.Unavailable, "process tree is over %d deep", maxDepth)
}
