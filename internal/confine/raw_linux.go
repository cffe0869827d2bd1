package confine

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls that x/sys does not have. Nothing else in ombud uses unsafe: each
// passes the address of a value that outlives the call, and its true size.

// Landlock: x/sys has the types and not the calls.

func landlockCreate(attr *unix.LandlockRulesetAttr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(attr)), unsafe.Sizeof(*attr), 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

func landlockAdd(set int, attr *unix.LandlockPathBeneathAttr) error {
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(attr)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func landlockRestrict(set int) error {
	_, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(set), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// landlockABI is the version the kernel has, 0 if none.
func landlockABI() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// Seccomp.

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

// recvNotice waits for the next call that a filter handed over.
func recvNotice(listener int, n *notice) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(n)))
	return errno
}

// sendAnswer answers one. An error says that the caller was killed meanwhile.
func sendAnswer(listener int, a *answer) {
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(a))) //nolint:dogsled // the call has three results
}

// stillWaits reports whether a call waits for its answer, so that its process is
// the one it was.
func stillWaits(listener int, id uint64) bool {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), notifIDValid, uintptr(unsafe.Pointer(&id)))
	return errno == 0
}

// answerWhereAsked: the caller waits for us, so we run where it ran. Since Linux 6.6.
func answerWhereAsked(listener int) {
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), notifSetFlags, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP) //nolint:dogsled // the call has three results
}

// linger waits a moment for the next call without telling the scheduler, whose
// hand-over costs several times what a call takes. Programs open files in bursts.
func linger(listener int) {
	fds := unix.PollFd{Fd: int32(listener), Events: unix.POLLIN}
	moment := unix.NsecToTimespec(int64(lingerFor))
	_, _, _ = unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), 1, uintptr(unsafe.Pointer(&moment)), 0, 0, 0) //nolint:dogsled // the call has three results
}

// lingerFor is how long the scheduler may have to wait for us.
const lingerFor = 200 * time.Microsecond

// connectTo connects a socket to an address as it came. It is for programs of jobs,
// whose network is decided by their profile, and not for ombud's own connections.
func connectTo(fd int, addr []byte) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&addr[0])), uintptr(len(addr)))
	return errno
}
