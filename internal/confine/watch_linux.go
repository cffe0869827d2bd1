//go:build linux && (amd64 || arm64)

package confine

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// watcher answers the system calls that a job's filter sends to it. It says what
// was refused; it refuses nothing that the filter or Landlock would not: what it
// lets go on, the kernel still decides.
type watcher struct {
	fd        int
	observing bool
	calls     map[int32]call
	plan      *plan
	reach     *reach
	book      *book
	judged    map[string]struct{} // what was found to be allowed, of answerAll alone
	busy      sync.Mutex          // held while a call is answered and judged
	// connecting bounds the connections being made at a time.
	connecting chan struct{}

	mu       sync.Mutex
	limits   []limit // for the first program, set before it starts
	limited  bool
	limitErr error
}

// sighting is an access to a path, seen before it was decided.
type sighting struct {
	call   call
	path   string // empty: it could not be read
	write  bool
	create bool
}

// newWatcher puts this thread behind the filter. With an error and a watcher, the
// filter stands and nothing is seen; with an error alone there is no filter.
func newWatcher(p *plan, r *reach, b *book) (*watcher, error) {
	w := &watcher{fd: -1, plan: p, reach: r, book: b, calls: map[int32]call{}, judged: map[string]struct{}{}, connecting: make(chan struct{}, connections)}
	prog := filter(rules{network: p.Network, sockets: true, mounts: p.Namespaces, observe: true, files: !p.Unwatched})
	fd, blind := install(prog, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
	if errors.Is(blind, unix.EINVAL) { // before Linux 5.19
		fd, blind = install(prog, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
	}
	if blind == nil {
		w.fd, w.observing = fd, true
		w.listen()
		return w, nil
	}
	// Somebody watches us already, for example.
	// Without a watcher no connection can be made for the job, so it has no unix sockets.
	if _, err := install(filter(rules{network: p.Network, mounts: p.Namespaces}), 0); err != nil {
		return nil, err
	}
	return w, blind
}

func (w *watcher) listen() {
	for _, c := range slices.Concat(common, special) {
		w.calls[int32(c.nr)] = c
	}
	answerWhereAsked(w.fd)
	go w.answerAll()
}

// answerAll ends with the process, or when the kernel has nobody left to ask for.
func (w *watcher) answerAll() {
	for {
		linger(w.fd)
		var n notice
		switch recvNotice(w.fd, &n) {
		case 0:
			w.busy.Lock()
			w.answer(&n)
			w.busy.Unlock()
		case unix.EINTR, unix.ENOENT: // ENOENT: the caller was killed meanwhile
		default:
			return
		}
	}
}

func (w *watcher) reply(a answer) {
	sendAnswer(w.fd, &a)
}

func (w *watcher) goOn(n *notice) {
	w.reply(answer{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE})
}

func (w *watcher) refuse(n *notice, errno unix.Errno) {
	w.reply(answer{id: n.id, errno: -int32(errno)})
}

func (w *watcher) answer(n *notice) {
	c, ok := w.calls[n.nr]
	if !ok {
		w.refuse(n, unix.EPERM)
		return
	}
	switch c.kind {
	case opens, opens2, creates, changes:
		s := w.see(n, c)
		w.goOn(n)
		w.judge(s)
	case executes:
		if err := w.limit(int(n.pid)); err != nil {
			w.refuse(n, unix.EPERM)
			return
		}
		s := w.see(n, c)
		w.goOn(n)
		w.judge(s)
	case modes, owners:
		switch {
		case w.plan.Namespaces:
			s := w.see(n, c)
			w.goOn(n)
			w.judge(s)
		case c.kind == modes:
			w.changeMode(n, c)
		default:
			w.refuse(n, unix.EPERM)
			w.book.note(c.what, c.name)
		}
	case signals:
		w.seeSignal(n, c)
		w.goOn(n)
	case connects:
		go func() {
			w.connecting <- struct{}{}
			defer func() { <-w.connecting }()
			w.connect(*n)
		}()
	default:
		w.refuse(n, unix.EPERM)
		w.book.note(c.what, describe(n, c))
	}
}

// limit gives the first program its limits, between its fork and its first
// instruction.
func (w *watcher) limit(pid int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.limited {
		w.limited = true
		w.limitErr = setLimits(pid, w.limits)
	}
	return w.limitErr
}

func (w *watcher) setLimits(l []limit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limits = l
}

func (w *watcher) limitFailed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.limitErr
}

// describe says what a refused call was for.
func describe(n *notice, c call) string {
	switch c.kind {
	case namespace:
		return c.name + " " + strings.Join(namespaceNames(n.args[0]), " ")
	case sockets, pairs:
		return c.name + " " + familyName(uint32(n.args[0]))
	case ioctls:
		switch uint32(n.args[1]) {
		case unix.TIOCSTI:
			return "TIOCSTI"
		case unix.TIOCLINUX:
			return "TIOCLINUX"
		}
		return "TIOCSETD"
	}
	return c.name
}

func namespaceNames(flags uint64) []string {
	var out []string
	for _, f := range []struct {
		bit  uint64
		name string
	}{
		{unix.CLONE_NEWUSER, "user"}, {unix.CLONE_NEWNS, "mount"}, {unix.CLONE_NEWPID, "pid"}, {unix.CLONE_NEWNET, "net"},
		{unix.CLONE_NEWIPC, "ipc"}, {unix.CLONE_NEWUTS, "uts"}, {unix.CLONE_NEWCGROUP, "cgroup"}, {unix.CLONE_NEWTIME, "time"},
	} {
		if flags&f.bit != 0 {
			out = append(out, f.name)
		}
	}
	return out
}

func familyName(f uint32) string {
	switch f {
	case unix.AF_UNIX:
		return "unix"
	case unix.AF_INET:
		return "inet"
	case unix.AF_INET6:
		return "inet6"
	case unix.AF_NETLINK:
		return "netlink"
	case unix.AF_PACKET:
		return "packet"
	case unix.AF_VSOCK:
		return "vsock"
	case unix.AF_ALG:
		return "alg"
	}
	return "family " + strconv.Itoa(int(f))
}

// see returns an access to a path. The caller waits, so its memory and directories
// are what they were; what it changes afterwards only fools us, not the kernel.
func (w *watcher) see(n *notice, c call) sighting {
	path, err := readString(int(n.pid), n.args[c.path])
	if err != nil || path == "" {
		return sighting{}
	}
	s := sighting{call: c, path: path}
	switch c.kind {
	case opens:
		s.write, s.create = openFor(n.args[c.flag])
	case opens2:
		var flags [8]byte
		if readMemory(int(n.pid), n.args[c.flag], flags[:]) == nil {
			s.write, s.create = openFor(binary.NativeEndian.Uint64(flags[:]))
		}
	case creates, changes, modes, owners:
		s.write, s.create = true, true
	}
	if filepath.IsAbs(path) {
		return s
	}
	base := "/proc/" + strconv.Itoa(int(n.pid))
	if dir := int32(unix.AT_FDCWD); c.dir >= 0 && int32(n.args[c.dir]) != dir {
		base += "/fd/" + strconv.Itoa(int(int32(n.args[c.dir])))
	} else {
		base += "/cwd"
	}
	var dir [unix.PathMax]byte
	size, err := unix.Readlink(base, dir[:])
	if err != nil {
		return sighting{}
	}
	s.path = string(dir[:size]) + "/" + path
	return s
}

// maxJudged bounds what is remembered.
const maxJudged = 4096

// judge notes an access that the walls refuse. The caller does not wait for it.
func (w *watcher) judge(s sighting) {
	if s.path == "" {
		return
	}
	// A program opens the same files again and again. A link that is put in the place
	// of one it was allowed is refused all the same, and not told.
	plain := s.call.kind == opens && !s.write
	if _, known := w.judged[s.path]; plain && known {
		return
	}
	if target := w.reach.refuses(s); target != "" {
		w.book.note(s.what(), target)
		return
	}
	if plain {
		if len(w.judged) >= maxJudged {
			clear(w.judged)
		}
		w.judged[s.path] = struct{}{}
	}
}

func openFor(flags uint64) (write, create bool) {
	mode := flags & unix.O_ACCMODE
	create = flags&unix.O_CREAT != 0 || flags&unix.O_TMPFILE == unix.O_TMPFILE
	return mode == unix.O_WRONLY || mode == unix.O_RDWR || create || flags&unix.O_TRUNC != 0, create
}

func (s sighting) what() string {
	if s.write {
		return "write"
	}
	return s.call.what
}

// drain waits until what has been seen is judged. The job has ended, so nothing is
// added.
func (w *watcher) drain() {
	if !w.observing {
		return
	}
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		w.busy.Lock()
		defer w.busy.Unlock()
	}()
	limit := time.NewTimer(5 * time.Second) // a file system that hangs
	defer limit.Stop()
	select {
	case <-idle:
	case <-limit.C:
	}
}

// seeSignal notes a signal to a process outside.
func (w *watcher) seeSignal(n *notice, c call) {
	pid := int(int32(n.args[0]))
	if pid < -1 {
		pid = -pid // a group has the number of the process that made it
	}
	if pid <= 0 || !outside(pid, w.plan.Namespaces) {
		return
	}
	w.book.note(c.what, c.name+" "+strconv.Itoa(pid))
}

// outside reports whether a process is none of the job's. In a namespace of its own
// the job's numbers are those that have been given out there.
func outside(pid int, namespaces bool) bool {
	if pid == os.Getpid() {
		return true
	}
	_, err := os.Lstat("/proc/" + strconv.Itoa(pid))
	if namespaces {
		return err != nil && pid > lastPID()
	}
	if err != nil {
		return false
	}
	for p, self := pid, os.Getpid(); p > 1; {
		st, err := statOf(p)
		if err != nil {
			return false
		}
		if p = st.parent; p == self {
			return false
		}
	}
	return true
}

// lastPID is the number given out last in our namespace.
func lastPID() int {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	n, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		return 0
	}
	return n
}
