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
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// What the launcher does for a program, from arguments it has read once, because an
// answer to the program's own call could be overtaken by a change of them.

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
		target, name, errno := w.socketOf(n, addr[2:])
		if errno != 0 {
			return errno, name
		}
		defer unix.Close(target)
		// What was looked at, not the name that led to it: links may change.
		addr = append(append(addr[:2:2], "/proc/self/fd/"+strconv.Itoa(target)...), 0)
	}
	errno = connectTo(fd, addr)
	if w.plan.Network == NetProxy && (errno == unix.ENETUNREACH || errno == unix.ECONNREFUSED) {
		return errno, host(addr) // past the proxy there is nothing
	}
	return errno, ""
}

// socketOf opens the unix socket an address names, if the job may speak to it. Else
// it returns why not, and the name if that is a refusal.
func (w *watcher) socketOf(n *notice, name []byte) (int, string, unix.Errno) {
	if len(name) == 0 || name[0] == 0 {
		return -1, "abstract " + string(bytes.Trim(name, "\x00")), unix.EPERM
	}
	name, _, _ = bytes.Cut(name, []byte{0})
	path := ownProc(string(name), int(n.pid))
	if !filepath.IsAbs(path) {
		cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", n.pid))
		if err != nil {
			return -1, "", unix.EACCES
		}
		path = filepath.Join(cwd, path)
	}
	if path = filepath.Clean(path); w.reach.hidden(path) {
		return -1, path, unix.EPERM
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		if path = filepath.Clean(path); w.reach.hidden(path) {
			return -1, path, unix.ENOENT // covered, so not there for the job
		}
		return -1, "", unix.ENOENT
	}
	if !w.reach.speaksTo(resolved) {
		return -1, resolved, unix.EPERM
	}
	fd, err := openPath(resolved)
	if err != nil {
		return -1, "", unix.ECONNREFUSED // it was something else a moment ago
	}
	return fd, "", 0
}

// ownProc makes what a program calls its own in /proc its own for us too.
func ownProc(path string, pid int) string {
	for _, name := range []string{"/proc/self/", "/proc/thread-self/"} {
		if rest, ok := strings.CutPrefix(path, name); ok {
			return fmt.Sprintf("/proc/%d/%s", pid, rest)
		}
	}
	return path
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
	if !stillWaits(w.fd, n.id) {
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
	path = ownProc(path, int(n.pid))
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
