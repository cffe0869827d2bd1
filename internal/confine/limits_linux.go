package confine

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

type limit struct {
	name     string
	resource int
	max      uint64
}

// limitsOf are the resource limits of a job's processes.
func limitsOf(p *plan) []limit {
	l := p.Limits
	out := []limit{
		{"core", unix.RLIMIT_CORE, 0},
		{"open files", unix.RLIMIT_NOFILE, uint64(l.OpenFiles)},
		{"file size", unix.RLIMIT_FSIZE, uint64(l.FileSize)},
	}
	if l.Memory > 0 {
		out = append(out, limit{"memory", unix.RLIMIT_AS, uint64(l.Memory)})
	}
	if l.CPU > 0 {
		out = append(out, limit{"cpu", unix.RLIMIT_CPU, uint64((l.CPU + time.Second - 1) / time.Second)})
	}
	// Counted for the user in its namespace, so the launcher is in it, and without a
	// namespace everything else of the user. It does not hold root.
	n := l.Processes + ownThreads
	if !p.Namespaces && os.Getuid() != 0 {
		n += threadsOfUser()
	}
	return append(out, limit{"processes", unix.RLIMIT_NPROC, uint64(n)})
}

// setLimits gives a process its limits. One that is lower already stays.
func setLimits(pid int, limits []limit) error {
	for _, l := range limits {
		var old unix.Rlimit
		if err := unix.Prlimit(pid, l.resource, nil, &old); err != nil {
			return fmt.Errorf("read the limit of %s: %w", l.name, err)
		}
		n := min(l.max, old.Max)
		if err := unix.Prlimit(pid, l.resource, &unix.Rlimit{Cur: n, Max: n}, nil); err != nil {
			return fmt.Errorf("limit %s: %w", l.name, err)
		}
	}
	return nil
}

// threadsOfUser counts the threads that run as this user.
func threadsOfUser() int {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return 0
	}
	uid, n := uint32(os.Getuid()), 0
	for _, d := range dirs {
		if _, err := strconv.Atoi(d.Name()); err != nil {
			continue
		}
		info, err := d.Info()
		if err != nil {
			continue // it has ended
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != uid {
			continue
		}
		// A directory has a link for itself, one in its parent and one for each below.
		var task unix.Stat_t
		if err := unix.Stat("/proc/"+d.Name()+"/task", &task); err == nil && task.Nlink > 2 {
			n += int(task.Nlink) - 2
		}
	}
	return n
}
