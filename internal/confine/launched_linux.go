package confine

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// launcherName is argv[0] of a launcher, and controlFD its end of the socket pair.
const (
	launcherName = "ombud-job"
	controlFD    = 3
)

// Launched reports whether this process was started as the launcher of a job and,
// if so, does that work and returns its exit code. Package first asks before main;
// a test that starts jobs asks in TestMain.
func Launched(args []string) (code int, ok bool) {
	if len(args) == 0 || args[0] != launcherName {
		return 0, false
	}
	if err := launch(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", launcherName, err)
		return 1, true
	}
	return 0, true
}

// keeper is the launcher of one job: it starts the program behind its walls, stays
// outside them, buries what dies and ends what is left.
type keeper struct {
	plan  *plan
	ch    *channel
	files []*os.File // stdin, stdout, stderr of the program
	book  *book
	first bool // pid 1 of its namespace: its end is everybody's end

	orders chan order // closed at the end of the lifeline
	main   chan syscall.WaitStatus
	empty  chan struct{} // closed when no child is left
	pid    int
}

// launch is a launcher's whole life. Its error goes nowhere but to its stderr: what
// the daemon has to know it is told over the channel.
func launch() error {
	// Nothing inherited goes on to the program, were it inherited by accident.
	if err := unix.CloseRange(controlFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		closeOnExec()
	}
	// Caught, so that the job cannot end its launcher; not ignored, for that the
	// program would inherit.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	// While the program is forked this thread stands still inside the runtime, and a
	// collection would wait for it: none until it has started.
	debug.SetGCPercent(-1)
	ch, err := newChannel(os.NewFile(controlFD, "control"))
	if err != nil {
		return err
	}
	k := &keeper{
		plan: new(plan), ch: ch, first: os.Getpid() == 1,
		orders: make(chan order), main: make(chan syscall.WaitStatus, 1), empty: make(chan struct{}),
	}
	if k.files, err = ch.receive(k.plan); err != nil {
		return fmt.Errorf("no plan came: %w", err)
	}
	if !k.first {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return k.refuse("reaper", err)
		}
	}
	// Where memory runs out it is to be the job that pays, not the daemon. A system
	// that does not allow it leaves the choice to the kernel.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(oomScore), 0)
	k.book = newBook(ch)
	warm(ownThreads - atStart)
	defer k.book.clear()
	return k.run()
}

const (
	// oomScore is half of the machine's memory on top of what a job has.
	oomScore = "500"
	// ownThreads is what a launcher itself takes of a limit that counts threads.
	ownThreads = 32
	// atStart is about how many of them there are by themselves.
	atStart = 8
	// connections is how many are made for a job at a time, each on a thread.
	connections = 16
)

// warm makes threads before there is a job that could leave no room for any: a
// program of Go does not live on when it cannot have one.
func warm(n int) {
	var there, gone sync.WaitGroup
	release := make(chan struct{})
	there.Add(n)
	for range n {
		gone.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread() // back to the others, where it waits for work
			there.Done()
			<-release
		})
	}
	there.Wait()
	close(release)
	gone.Wait()
}

func closeOnExec() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		var fd int
		if _, err := fmt.Sscan(e.Name(), &fd); err == nil && fd >= controlFD {
			unix.CloseOnExec(fd)
		}
	}
}

func (k *keeper) refuse(stage string, err error) error {
	f := failed{Stage: stage, Text: err.Error()}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		f.Errno = int(errno)
	}
	return k.ch.send(report{Failed: &f})
}

// listen reads orders until the lifeline ends.
func (k *keeper) listen() {
	defer close(k.orders)
	for {
		var o order
		fds, err := k.ch.receive(&o)
		closeAll(fds)
		if err != nil {
			return
		}
		k.orders <- o
	}
}

func (k *keeper) run() error {
	go k.listen()
	p := &program{plan: k.plan, files: k.files, book: k.book}
	done := make(chan struct{})
	go p.start(done)
	if !k.await(p, done) {
		return errors.New("given up while it started")
	}
	if p.err != nil {
		return k.refuse(p.stage, p.err)
	}
	closeAll(k.files)
	debug.SetGCPercent(100)
	if k.plan.Probe {
		return k.ch.send(report{Started: &started{}})
	}
	k.pid = p.pid
	go k.reap()
	fds := []int{p.pidfd}
	if p.listener >= 0 {
		fds = append(fds, p.listener)
	}
	if err := k.ch.send(report{Started: &started{Unseen: p.unseen}}, fds...); err != nil {
		k.killAll()
		return err
	}
	for _, fd := range fds {
		_ = unix.Close(fd) // the daemon has its own
	}
	status, ok := k.tend()
	k.killAll() // what the program left
	if !ok {
		return nil
	}
	return k.ch.send(report{Ended: &ended{Status: uint32(status), Denials: k.book.close()}})
}

// await waits for the start and reports whether the daemon still wants it. What
// was started for nobody is ended.
func (k *keeper) await(p *program, done <-chan struct{}) bool {
	orders, wanted := k.orders, true
	for {
		select {
		case <-done:
			if !wanted && p.err == nil && p.pid != 0 {
				k.pid = p.pid
				go k.reap()
				k.killAll()
			}
			return wanted
		case o, ok := <-orders:
			if ok && !o.Kill && !o.Stop {
				continue
			}
			if k.first {
				return false // our end is its end
			}
			orders, wanted = nil, false
		}
	}
}

// reap buries everything that dies here, until nothing is left.
func (k *keeper) reap() {
	defer close(k.empty)
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return // ECHILD
		case pid == k.pid && (status.Exited() || status.Signaled()):
			k.main <- syscall.WaitStatus(status)
		}
	}
}

// tend waits for the program to end and follows orders. It reports false when the
// daemon is gone.
func (k *keeper) tend() (syscall.WaitStatus, bool) {
	var grace <-chan time.Time
	for {
		select {
		case status := <-k.main:
			return status, true
		case o, ok := <-k.orders:
			switch {
			case !ok:
				return 0, false
			case o.Kill:
				signalAll(k.first, unix.SIGKILL)
			case o.Stop && grace == nil:
				signalAll(k.first, unix.SIGTERM)
				t := time.NewTimer(k.plan.Grace)
				defer t.Stop()
				grace = t.C
			}
		case <-grace:
			signalAll(k.first, unix.SIGKILL)
		}
	}
}

// killAll ends everything that is left and waits until it is buried.
func (k *keeper) killAll() {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		signalAll(k.first, unix.SIGKILL)
		select {
		case <-k.empty:
			return
		case <-tick.C:
		}
	}
}

// signalAll signals everything below this process. As pid 1 that is one call. Else
// it is a walk: all are stopped first, so that nothing forks ahead of it.
func signalAll(first bool, sig unix.Signal) {
	if first {
		_ = unix.Kill(-1, sig) // ESRCH: nobody is left
		return
	}
	self := os.Getpid()
	if sig != unix.SIGKILL {
		for _, pid := range descendants(self) {
			_ = unix.Kill(pid, sig)
		}
		return
	}
	seen := map[int]bool{}
	for range maxDepth {
		fresh := 0
		for _, pid := range descendants(self) {
			if !seen[pid] {
				seen[pid] = true
				fresh++
				_ = unix.Kill(pid, unix.SIGSTOP)
			}
		}
		if fresh == 0 {
			break
		}
	}
	for pid := range seen {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// descendants lists every process below one.
func descendants(pid int) []int {
	var out []int
	queue := []int{pid}
	for len(queue) > 0 {
		children, err := childrenOf(queue[0])
		queue = queue[1:]
		if err != nil {
			continue // it has ended; what it had is somebody's child now
		}
		out = append(out, children...)
		queue = append(queue, children...)
	}
	return out
}
