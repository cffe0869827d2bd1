//go:build linux && (amd64 || arm64)

package confine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These are in the kernel's headers and not in x/sys.
const (
	notifIDValid  = 0x40082102 // SECCOMP_IOCTL_NOTIF_ID_VALID
	notifSetFlags = 0x40082104 // SECCOMP_IOCTL_NOTIF_SET_FLAGS
)

// notice is struct seccomp_notif, answer struct seccomp_notif_resp.
type notice struct {
	id    uint64
	pid   uint32
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

type answer struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

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
	w := &watcher{fd: -1, plan: p, reach: r, book: b, calls: map[int32]call{}, judged: map[string]struct{}{}, connecting: make(chan struct{}, 64)}
	var blind error
	if p.Observe {
		fd, err := install(filter(rules{network: p.Network, sockets: true, mounts: p.Namespaces, observe: true, files: !p.Unwatched}), unix.SECCOMP_FILTER_FLAG_NEW_LISTENER|unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
		if errors.Is(err, unix.EINVAL) { // before Linux 5.19
			fd, err = install(filter(rules{network: p.Network, sockets: true, mounts: p.Namespaces, observe: true, files: !p.Unwatched}), unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
		}
		if err == nil {
			w.fd, w.observing = fd, true
			w.listen()
			return w, nil
		}
		blind = err // somebody watches us already, for example
	}
	// Without a watcher no connection can be made for the job, so it has no unix sockets.
	if _, err := install(filter(rules{network: p.Network, mounts: p.Namespaces}), 0); err != nil {
		return nil, err
	}
	return w, blind
}

// install puts this thread, and what it forks, behind a filter.
func install(prog []unix.SockFilter, flags uint) (int, error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, err
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, uintptr(flags), uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// seccompCan reports whether the kernel knows what a filter can answer with.
func seccompCan(action uint32) bool {
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	return errno == 0
}

func (w *watcher) listen() {
	for _, c := range slices.Concat(common, special) {
		w.calls[int32(c.nr)] = c
	}
	// The caller waits for our answer: run us where it ran. Since Linux 6.6.
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(w.fd), notifSetFlags, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	go w.answerAll()
}

// answerAll ends with the process, or when the kernel has nobody left to ask for.
func (w *watcher) answerAll() {
	for {
		w.linger()
		var n notice
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(w.fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n)))
		switch errno {
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

// linger waits a moment for the next call without telling the scheduler, whose
// hand-over costs several times what a call takes. Programs open files in bursts.
func (w *watcher) linger() {
	fds := unix.PollFd{Fd: int32(w.fd), Events: unix.POLLIN}
	moment := unix.Timespec{Nsec: int64(lingerFor)}
	_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), 1, uintptr(unsafe.Pointer(&moment)), 0, 0, 0)
}

// lingerFor is how long the scheduler may have to wait for us.
const lingerFor = 200 * time.Microsecond

func (w *watcher) reply(a answer) {
	// ENOENT says that the caller was killed meanwhile.
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(w.fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&a)))
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
		w.connecting <- struct{}{}
		go func() {
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

// changeMode changes the mode of a file for the program, if it may change the file:
// Landlock does not look at that. The file is looked up once, and what was looked at
// is what is changed.
func (w *watcher) changeMode(n *notice, c call) {
	fd, errno := w.lookUp(n, c)
	if errno == 0 {
		defer unix.Close(fd)
		errno = w.setMode(fd, uint32(n.args[c.flag]), c)
	}
	if errno != 0 {
		w.refuse(n, errno)
		return
	}
	w.reply(answer{id: n.id})
}

// lookUp opens the file of a call as the caller sees it.
func (w *watcher) lookUp(n *notice, c call) (int, unix.Errno) {
	if c.path < 0 {
		return w.borrow(n)
	}
	path, err := readString(int(n.pid), n.args[c.path])
	if err != nil {
		return -1, errnoOf(err)
	}
	at := unix.AT_FDCWD
	if !filepath.IsAbs(path) {
		base := fmt.Sprintf("/proc/%d/cwd", n.pid)
		if c.dir >= 0 && int32(n.args[c.dir]) != unix.AT_FDCWD {
			base = fmt.Sprintf("/proc/%d/fd/%d", n.pid, int32(n.args[c.dir]))
		}
		if at, err = unix.Open(base, unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0); err != nil {
			return -1, errnoOf(err)
		}
		defer unix.Close(at)
	}
	fd, err := unix.Openat(at, path, unix.O_PATH|unix.O_CLOEXEC, 0)
	return fd, errnoOf(err)
}

func (w *watcher) setMode(fd int, mode uint32, c call) unix.Errno {
	link := "/proc/self/fd/" + strconv.Itoa(fd)
	path, err := os.Readlink(link)
	if err != nil {
		return unix.EACCES
	}
	if !anyWithin(path, w.reach.write) {
		w.book.note(c.what, path)
		return unix.EPERM
	}
	return errnoOf(unix.Chmod(link, mode))
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

// connect makes a connection for the program, to an address read once: the program
// cannot change it between the look and the deed.
func (w *watcher) connect(n notice) {
	errno, target := w.connectFor(&n)
	if errno == 0 {
		w.reply(answer{id: n.id})
	} else {
		w.refuse(&n, errno)
	}
	if target != "" {
		w.book.note("connect", target)
	}
}

// connectFor returns 0 or why not, and the address if it is not allowed.
func (w *watcher) connectFor(n *notice) (unix.Errno, string) {
	size := min(n.args[2], unix.SizeofSockaddrAny)
	if size < 2 {
		return unix.EINVAL, ""
	}
	addr := make([]byte, size)
	if err := readMemory(int(n.pid), n.args[1], addr); err != nil {
		return unix.EFAULT, ""
	}
	fd, errno := w.borrow(n)
	if errno != 0 {
		return errno, ""
	}
	defer unix.Close(fd)
	family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return errnoOf(err), ""
	}
	if family == unix.AF_UNIX {
		name := addr[2:]
		if len(name) == 0 || name[0] == 0 {
			return unix.EPERM, "abstract " + string(bytes.Trim(name, "\x00"))
		}
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		path := string(name)
		if !filepath.IsAbs(path) {
			cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", n.pid))
			if err != nil {
				return unix.EACCES, path
			}
			path = filepath.Join(cwd, path)
		}
		resolved, err := filepath.EvalSymlinks(path)
		if err != nil {
			if path = filepath.Clean(path); w.reach.hidden(path) {
				return unix.ENOENT, path // covered, so not there for the job
			}
			return unix.ENOENT, ""
		}
		if !w.reach.speaksTo(resolved) {
			return unix.EPERM, resolved
		}
		// The name that was looked up, not the one that was given: links may change.
		addr = append(append(addr[:2:2], resolved...), 0)
	}
	_, _, errno = unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&addr[0])), uintptr(len(addr)))
	if w.plan.Network == NetProxy && (errno == unix.ENETUNREACH || errno == unix.ECONNREFUSED) {
		return errno, host(addr) // past the proxy there is nothing
	}
	return errno, ""
}

// host shows an internet address.
func host(addr []byte) string {
	var ip netip.Addr
	switch family := binary.NativeEndian.Uint16(addr); {
	case family == unix.AF_INET && len(addr) >= unix.SizeofSockaddrInet4:
		ip = netip.AddrFrom4([4]byte(addr[4:8]))
	case family == unix.AF_INET6 && len(addr) >= unix.SizeofSockaddrInet6:
		ip = netip.AddrFrom16([16]byte(addr[8:24]))
	default:
		return ""
	}
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(addr[2:4])).String()
}

// borrow takes a second descriptor for the socket of a waiting caller.
func (w *watcher) borrow(n *notice) (int, unix.Errno) {
	group, err := threadGroup(int(n.pid))
	if err != nil {
		return -1, unix.EPERM
	}
	process, err := unix.PidfdOpen(group, 0)
	if err != nil {
		return -1, unix.EPERM
	}
	defer unix.Close(process)
	fd, err := unix.PidfdGetfd(process, int(n.args[0]), 0)
	if err != nil {
		return -1, errnoOf(err)
	}
	// Was it still the caller all the while, or a process with its number?
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(w.fd), notifIDValid, uintptr(unsafe.Pointer(&n.id))); errno != 0 {
		_ = unix.Close(fd)
		return -1, unix.EINTR
	}
	return fd, 0
}

func threadGroup(tid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "Tgid:"); ok {
			return strconv.Atoi(strings.TrimSpace(v))
		}
	}
	return 0, fmt.Errorf("status of %d has no Tgid", tid)
}

func errnoOf(err error) unix.Errno {
	if err == nil {
		return 0
	}
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno
	}
	return unix.EIO
}

// readString reads a path from another process.
func readString(pid int, addr uint64) (string, error) {
	if addr == 0 {
		return "", unix.EFAULT
	}
	buf := make([]byte, 0, 256)
	for len(buf) < unix.PathMax {
		// Never across a page that may not be there.
		n := min(256, int(uint64(os.Getpagesize())-addr%uint64(os.Getpagesize())))
		part := make([]byte, n)
		if err := readMemory(pid, addr, part); err != nil {
			return "", err
		}
		if i := bytes.IndexByte(part, 0); i >= 0 {
			return string(append(buf, part[:i]...)), nil
		}
		buf = append(buf, part...)
		addr += uint64(n)
	}
	return "", unix.ENAMETOOLONG
}

func readMemory(pid int, addr uint64, into []byte) error {
	local := unix.Iovec{Base: &into[0]}
	local.SetLen(len(into))
	n, err := unix.ProcessVMReadv(pid, []unix.Iovec{local}, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(into)}}, 0)
	if err == nil && n != len(into) {
		err = unix.EFAULT
	}
	return err
}
