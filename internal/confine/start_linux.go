package confine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ombud-run/ombud/internal/fault"
)

const (
	defaultExe = "/proc/self/exe"
	// startWithin bounds a start: longer, and something it stands on hangs.
	startWithin = 30 * time.Second
	// buryWithin is how long a launcher has to end a job after SIGKILL before it is
	// ended itself, and with it the job.
	buryWithin = 10 * time.Second
)

// running is a job and what holds it.
type running struct {
	*Job
	l       *Launcher
	spec    Spec
	cmd     *exec.Cmd
	ch      *channel
	group   Group
	streams *streams
	// confined: the launcher was pid 1 of a namespace, and nothing outlives that.
	confined bool
	stop     func()        // ends the proxy
	tmp      string        // removed by the launcher, and by us if it was killed
	gone     chan struct{} // closed when the launcher is reaped
}

func (l *Launcher) start(ctx context.Context, s Spec, j *Job) error {
	p, err := l.plan(s)
	if err != nil {
		return err
	}
	r := &running{Job: j, l: l, spec: s, gone: make(chan struct{}), stop: func() {}, confined: p.Namespaces}
	if r.streams, err = s.open(); err != nil {
		return fault.New(fault.Unavailable, "run %s: %w; nothing ran", s.Path, err)
	}
	if p.Landlock > 0 && !p.Namespaces {
		if p.Temp, err = os.MkdirTemp("", "ombud-job-"); err != nil {
			r.streams.abandon()
			return fault.New(fault.Unavailable, "run %s: %w; nothing ran", s.Path, err)
		}
		r.tmp = p.Temp
	}
	if err := r.launch(ctx, p); err != nil {
		r.streams.abandon()
		r.clear()
		return err
	}
	r.streams.started()
	go r.follow()
	return nil
}

// plan is what the launcher is to do, or why it cannot be done.
func (l *Launcher) plan(s Spec) (*plan, error) {
	bytes := func(in []string) [][]byte {
		out := make([][]byte, len(in))
		for i, t := range in {
			out[i] = []byte(t)
		}
		return out
	}
	p := &plan{
		Path: []byte(s.Path), Args: bytes(s.Args), Env: bytes(s.Env), Dir: []byte(s.Dir),
		Read: s.Profile.Read, Write: s.Profile.Write, Hide: s.Profile.Hide, Sockets: s.Profile.UnixSockets,
		Network: s.Profile.Network, Limits: s.Profile.Limits, Grace: s.Grace,
	}
	if l.o.Enforce == EnforceOff {
		return p, nil
	}
	can := l.probe.abilities()
	if lacking := can.lacking(); len(lacking) > 0 && l.o.Enforce == EnforceStrict {
		return nil, fault.New(fault.Unavailable, "run %s: it cannot be confined here: %s; nothing ran", s.Path, strings.Join(lacking, "; ")).
			WithHint("`ombud doctor` says what is in force; to run with what there is, set the enforcement to best")
	}
	p.Settings = l.settings.readable("/etc")
	p.Landlock, p.Seccomp = min(can.landlock, maxABI), can.seccomp
	p.Namespaces, p.Unwatched = can.namespaces == nil, s.Profile.Unwatched
	p.CountPIDs = p.Namespaces && os.Geteuid() == 0 && ownPIDMax()
	if s.Profile.Network == NetProxy {
		switch {
		case l.o.Proxy == nil:
			return nil, fault.New(fault.Unavailable, "run %s: its network goes through the proxy, and there is none; nothing ran", s.Path)
		case !p.Namespaces:
			return nil, fault.New(fault.Unavailable, "run %s: its network goes through the proxy, which needs a network namespace: %w; nothing ran", s.Path, can.namespaces)
		}
	}
	return p, nil
}

// lacking are the abilities without which a job is not confined.
func (a abilities) lacking() []string {
	var out []string
	if a.landlock == 0 {
		out = append(out, "the kernel has no Landlock")
	}
	if !a.seccomp {
		out = append(out, "the kernel has no seccomp filters")
	}
	if a.namespaces != nil && a.landlock < scopesABI {
		out = append(out, fmt.Sprintf("no namespaces (%v), and a Landlock that does not keep signals in", a.namespaces))
	}
	return out
}

// scopesABI is the first Landlock that keeps signals and abstract sockets in.
const scopesABI = 6

// launch starts a launcher and waits until it has started the program.
func (r *running) launch(ctx context.Context, p *plan) error {
	fail := func(err error) error {
		return fault.New(fault.Unavailable, "run %s: %w; nothing ran", r.spec.Path, err)
	}
	if r.l.o.Groups != nil && r.l.o.Enforce != EnforceOff {
		r.openGroup(p)
	}
	ch, cmd, err := startLauncher(r.l.o.Exe, p.Namespaces, r.group)
	if err != nil {
		r.closeGroup()
		return fail(err)
	}
	r.ch, r.cmd = ch, cmd
	go func() {
		_ = Wait(cmd) // how it ended says nothing about the program
		close(r.gone)
	}()
	if err := r.begin(ctx, p); err != nil {
		r.end()
		return err
	}
	return nil
}

// openGroup makes the cgroup of a job. Where there is none, or none that bounds its
// processes, it is held without, and Report says so.
func (r *running) openGroup(p *plan) {
	g, err := r.l.o.Groups.New(r.id)
	if err != nil {
		r.l.log.Warn("no cgroup for a job", "job", r.id, "error", err)
		return
	}
	r.group = g
	if !r.l.o.Groups.Bounds() {
		return
	}
	if err := g.Limit(p.Limits.Processes); err != nil {
		r.l.log.Warn("the processes of a job are not bounded", "job", r.id, "error", err)
	}
}

// closeGroup ends what may be left in the cgroup and removes it.
func (r *running) closeGroup() {
	if r.group == nil {
		return
	}
	if err := r.group.Close(); err != nil {
		r.l.log.Warn("end the cgroup of a job", "job", r.id, "error", err)
	}
}

// startLauncher starts a launcher that waits for its plan.
func startLauncher(exe string, namespaces bool, g Group) (*channel, *exec.Cmd, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs := os.NewFile(uintptr(pair[1]), "control")
	defer theirs.Close()
	ch, err := newChannel(os.NewFile(uintptr(pair[0]), "control"))
	if err != nil {
		return nil, nil, err
	}
	cmd := &exec.Cmd{
		Path: exe, Args: []string{launcherName}, Dir: "/", ExtraFiles: []*os.File{theirs},
		// One thread stands still while the program is forked; another has to answer it.
		Env:         []string{"GOMAXPROCS=4"},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if namespaces {
		ownNamespaces(cmd.SysProcAttr)
	}
	if g != nil && g.Dir() != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(g.Dir().Fd())
	}
	err = Start(cmd)
	if err == nil && g != nil {
		if err = g.Add(cmd.Process.Pid); err != nil {
			_ = cmd.Process.Kill()
			_ = Wait(cmd)
		}
	}
	if err != nil {
		_ = ch.close()
		return nil, nil, fmt.Errorf("start the launcher: %w", err)
	}
	return ch, cmd, nil
}

// ownNamespaces: processes, mounts and System V IPC of its own. A user namespace is
// what lets an ordinary user have them; root needs none. The network comes later,
// for those who get one of their own.
func ownNamespaces(attr *syscall.SysProcAttr) {
	attr.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC
	if os.Geteuid() == 0 {
		return
	}
	attr.Cloneflags |= unix.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	// The launcher builds the walls with these; the program has none of them.
	attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP, unix.CAP_SYS_PTRACE, unix.CAP_SYS_RESOURCE}
}

// begin hands the plan over and waits for the answer.
func (r *running) begin(ctx context.Context, p *plan) error {
	stop := context.AfterFunc(ctx, func() { _ = r.ch.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := r.ch.conn.SetDeadline(time.Now().Add(startWithin)); err != nil {
		return err
	}
	var fds []int
	for _, f := range r.streams.child {
		fds = append(fds, int(f.Fd()))
	}
	if err := r.ch.send(p, fds...); err != nil {
		return r.notStarted(ctx, err)
	}
	for {
		var rep report
		files, err := r.ch.receive(&rep)
		if err != nil {
			closeAll(files)
			return r.notStarted(ctx, err)
		}
		switch {
		case rep.Denied != nil:
			r.denied(rep.Denied)
		case rep.Failed != nil:
			return r.refused(rep.Failed)
		case rep.Started != nil:
			return r.started(rep.Started, files)
		}
	}
}

func (r *running) notStarted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("run %s: %w while it started", r.spec.Path, ctx.Err())
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fault.New(fault.Timeout, "run %s: not started within %v; nothing is left of it", r.spec.Path, startWithin)
	}
	return fault.New(fault.Unavailable, "run %s: its launcher ended: %w; nothing ran", r.spec.Path, err)
}

// refused says why the launcher could not start the program.
func (r *running) refused(f *failed) error {
	errno := unix.Errno(f.Errno)
	if f.Stage != "exec" && f.Stage != "directory" {
		return fault.New(fault.Unavailable, "run %s: it cannot be confined: %s: %s; nothing ran", r.spec.Path, f.Stage, f.Text).
			WithHint("`ombud doctor` says what is in force")
	}
	what := r.spec.Path
	if f.Stage == "directory" {
		what += " in " + r.spec.Dir
	}
	switch errno {
	case unix.E2BIG:
		return tooLong(r.spec.Path)
	case unix.ENOENT, unix.ENOTDIR:
		return fault.New(fault.NotFound, "run %s: %w; nothing ran", what, errno).
			WithHint("a script's first line names the program that runs it, which has to exist and be within what the job may read")
	case unix.EACCES, unix.EPERM:
		return fault.New(fault.Permission, "run %s: %w; nothing ran", what, errno).
			WithHint("the program, and what its first line names, have to be executable and within what the job may read")
	case unix.ENOEXEC:
		return fault.New(fault.Invalid, "run %s: %w; nothing ran", what, errno).
			WithHint("it is not a program for this machine; a script needs a first line that names its interpreter")
	}
	return fault.New(fault.Unavailable, "run %s: %s; nothing ran", what, f.Text)
}

// started takes what came with the good news: the program's pidfd, and the listener
// of a job with a proxy.
func (r *running) started(s *started, files []*os.File) error {
	defer closeAll(files)
	if err := r.ch.conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	if s.Unseen != "" {
		r.l.log.Warn("what a job is refused is not seen", "job", r.id, "reason", s.Unseen)
	}
	if len(files) > 0 {
		r.pid = pidOf(files[0])
	}
	if r.streams.stdin != nil {
		r.stdin = r.streams.stdin
	}
	if r.spec.Profile.Network != NetProxy || len(files) < 2 {
		return nil
	}
	ln, err := net.FileListener(files[1])
	if err != nil {
		return fault.New(fault.Unavailable, "run %s: its proxy: %w", r.spec.Path, err)
	}
	stop := r.l.o.Proxy(ln, r.spec.Owner)
	r.stop = func() {
		stop()
		_ = ln.Close() // closed by the proxy already, as a rule
	}
	return nil
}

// pidOf reads a process's number, as it is here, from its pidfd.
func pidOf(f *os.File) int {
	text, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "Pid:"); ok {
			pid, _ := strconv.Atoi(strings.TrimSpace(v)) // -1: it is gone
			return max(pid, 0)
		}
	}
	return 0
}

// follow passes orders on and reports back until the job is over.
func (r *running) follow() {
	finished := make(chan struct{})
	go r.order(finished)
	r.exit, r.err = r.listen()
	close(finished)
	r.end()
	r.clear()
	r.streams.ended()
	r.l.leave(r.Job)
}

// order sends orders as they are asked for. The launcher that does not follow the
// last one in time is killed, and in a namespace the job with it.
func (r *running) order(finished <-chan struct{}) {
	stop, kill := r.asked.stop, r.asked.kill
	var late <-chan time.Time
	for {
		select {
		case <-finished:
			return
		case <-stop:
			stop = nil
			_ = r.ch.send(order{Stop: true}) // it has ended: finished says so
			t := time.NewTimer(r.spec.Grace + buryWithin)
			defer t.Stop()
			late = t.C
		case <-kill:
			kill = nil
			_ = r.ch.send(order{Kill: true})
			t := time.NewTimer(buryWithin)
			defer t.Stop()
			late = t.C
		case <-late:
			late = nil
			r.l.log.Warn("a job's launcher does not answer", "job", r.id)
			if r.group != nil {
				_ = r.group.Kill()
			}
			_ = r.cmd.Process.Kill()
		}
	}
}

// listen returns how the program ended.
func (r *running) listen() (Exit, error) {
	for {
		var rep report
		files, err := r.ch.receive(&rep)
		closeAll(files)
		if err != nil {
			return Exit{Code: -1}, fault.New(fault.Unknown, "run %s: its launcher was killed, and the program with it", r.spec.Path)
		}
		switch {
		case rep.Denied != nil:
			r.denied(rep.Denied)
		case rep.Ended != nil:
			return r.exitOf(rep.Ended), nil
		}
	}
}

func (r *running) denied(d *denied) {
	if r.l.o.OnDenied != nil {
		r.l.o.OnDenied(r.denial(*d))
	}
}

func (r *running) denial(d denied) Denial {
	return Denial{Owner: r.spec.Owner, Job: r.id, Profile: r.spec.Profile.Name, What: d.What, Target: d.Target, Count: d.Count}
}

func (r *running) exitOf(e *ended) Exit {
	status := syscall.WaitStatus(e.Status)
	x := Exit{Code: -1}
	if status.Signaled() {
		x.Signal = signalName(status.Signal())
	} else {
		x.Code = status.ExitStatus()
	}
	for _, d := range e.Denials {
		x.Denials = append(x.Denials, r.denial(d))
	}
	return x
}

func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return "signal " + strconv.Itoa(int(s))
}

func (r *running) clear() {
	if r.tmp == "" {
		return
	}
	if err := os.RemoveAll(r.tmp); err != nil {
		r.l.log.Warn("remove the temporary directory of a job", "job", r.id, "error", err)
	}
}

// end closes the lifeline, waits for the launcher and clears what it left.
func (r *running) end() {
	_ = r.ch.close()
	late := time.NewTimer(buryWithin)
	defer late.Stop()
	select {
	case <-r.gone:
	case <-late.C:
		_ = r.cmd.Process.Kill()
		<-r.gone
	}
	if !r.confined && !r.cmd.ProcessState.Success() {
		endOrphans() // it may not have come to bury its own
	}
	r.closeGroup()
	r.stop()
}
