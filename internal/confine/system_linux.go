package confine

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// linux is the system we run on.
type linux struct{ exe string }

func ownSystem(l *Launcher) System { return linux{l.o.Exe} }

func (linux) Landlock() int { return landlockABI() }
func (linux) Seccomp() bool {
	return filtered && seccompCan(unix.SECCOMP_RET_ERRNO) && seccompCan(unix.SECCOMP_RET_USER_NOTIF)
}

// Namespaces builds them once, for nothing. That they can be made says little: some
// systems let a user make them and then refuse every use.
func (s linux) Namespaces() error {
	ch, cmd, err := startLauncher(s.exe, true, nil)
	if err != nil {
		return err
	}
	defer func() {
		_ = ch.close()
		_ = Wait(cmd) // how it ended says nothing
	}()
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = ch.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := ch.send(plan{Probe: true, Namespaces: true, Limits: Limits{}.defaults()}); err != nil {
		return err
	}
	var rep report
	files, err := ch.receive(&rep)
	closeAll(files)
	switch {
	case err != nil:
		return fmt.Errorf("a launcher in namespaces ended: %w", err)
	case rep.Failed != nil:
		return fmt.Errorf("%s: %s", rep.Failed.Stage, rep.Failed.Text)
	}
	return nil
}

// ownPIDMax reports whether the highest process number is each namespace's own.
func ownPIDMax() bool {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return false
	}
	return atLeast(unix.ByteSliceToString(u.Release[:]), 6, 14)
}

// atLeast compares a kernel's release, which begins with its version.
func atLeast(release string, major, minor int) bool {
	a, rest, _ := strings.Cut(release, ".")
	b, _, _ := strings.Cut(strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return '.'
		}
		return r
	}, rest), ".")
	x, err1 := strconv.Atoi(a)
	y, err2 := strconv.Atoi(b)
	return err1 == nil && err2 == nil && (x > major || x == major && y >= minor)
}

// Report says what is in force.
func (l *Launcher) Report() Report {
	r := Report{System: runtime.GOOS, Enforce: l.o.Enforce, Groups: l.o.Groups != nil}
	can := l.probe.abilities()
	if l.o.Enforce != EnforceOff {
		r.Landlock, r.Seccomp, r.Observed = min(can.landlock, maxABI), can.seccomp, can.seccomp
		r.Namespaces = can.namespaces == nil
		r.Missing = can.missing(l.o.Groups != nil && l.o.Groups.Bounds())
		r.Confined = len(can.lacking()) == 0
	} else {
		r.Groups = false
		r.Missing = []string{"enforcement is off: jobs are not confined"}
	}
	var by []string
	if r.Namespaces {
		by = append(by, "a process namespace")
	} else {
		by = append(by, "a reaper and a walk over its children")
	}
	if r.Groups {
		by = append(by, "a cgroup")
	}
	r.Holding = strings.Join(by, " and ")
	return r
}

// missing says what a job here is not kept from.
func (a abilities) missing(bounded bool) []string {
	var out []string
	add := func(when bool, format string, args ...any) {
		if when {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	add(a.landlock == 0, "no Landlock: a job reads what its user can read")
	add(!a.seccomp, "no seccomp filter: a job has the network and every system call")
	add(a.namespaces != nil, "no namespaces (%v): no proxied network, no private /tmp, the modes of files outside can be changed, processes outside can be listed", a.namespaces)
	add(a.landlock > 0 && a.landlock < 2, "Landlock %d: files cannot be moved between directories", a.landlock)
	add(a.landlock > 0 && a.landlock < 3 && a.namespaces != nil, "Landlock %d: files outside can be truncated", a.landlock)
	add(a.landlock > 0 && a.landlock < scopesABI && a.namespaces != nil, "Landlock %d: processes outside can be signalled", a.landlock)
	add(os.Geteuid() == 0 && !bounded && !(a.namespaces == nil && ownPIDMax()), "no cgroup that bounds processes: their number is not bounded for root")
	return out
}
