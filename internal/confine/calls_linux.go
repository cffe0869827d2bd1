//go:build linux && (amd64 || arm64)

package confine

import "golang.org/x/sys/unix"

// filtered: there is a filter for this architecture.
const filtered = true

// kind is what the filter does with a system call and what the watcher makes of it.
type kind int

const (
	refused   kind = iota // never, whatever its arguments
	missing               // as on a kernel that does not have it
	opens                 // watched: the path is opened, Landlock decides
	opens2                // the same, flags in memory
	creates               // the same, always for writing
	executes              // the same, for execution
	changes               // the same, an entry of a directory is made, removed or changed
	modes                 // Landlock does not decide, read-only mounts do; without them done for the program
	owners                // the same, but refused without them
	signals               // watched: the kernel decides
	connects              // done for the program, if the address is allowed
	namespace             // refused if its flags ask for a namespace
	ioctls                // refused if it types into a terminal
	sockets               // refused if the family is not the job's
	pairs                 // the same for a pair
	persona               // refused if it changes how programs run
)

// call is a system call that does not simply pass.
type call struct {
	nr   int
	name string
	what string // of the Denial
	kind kind
	dir  int // argument with the directory, -1: the working directory
	path int // argument with the path
	flag int // argument with the flags
}

func deny(nr int, name, what string) call { return call{nr: nr, name: name, what: what, kind: refused} }

// common are the calls of every architecture.
var common = []call{
	// Other processes.
	deny(unix.SYS_PTRACE, "ptrace", "ptrace"),
	deny(unix.SYS_PROCESS_VM_READV, "process_vm_readv", "ptrace"),
	deny(unix.SYS_PROCESS_VM_WRITEV, "process_vm_writev", "ptrace"),
	deny(unix.SYS_PIDFD_GETFD, "pidfd_getfd", "ptrace"),
	deny(unix.SYS_KCMP, "kcmp", "ptrace"),
	deny(unix.SYS_PROCESS_MADVISE, "process_madvise", "ptrace"),
	{nr: unix.SYS_KILL, name: "kill", what: "signal", kind: signals},
	{nr: unix.SYS_TKILL, name: "tkill", what: "signal", kind: signals},
	{nr: unix.SYS_TGKILL, name: "tgkill", what: "signal", kind: signals},
	{nr: unix.SYS_RT_SIGQUEUEINFO, name: "rt_sigqueueinfo", what: "signal", kind: signals},
	{nr: unix.SYS_PIDFD_OPEN, name: "pidfd_open", what: "signal", kind: signals},

	// Ways around the filter.
	deny(unix.SYS_IO_URING_SETUP, "io_uring_setup", "io_uring"),
	deny(unix.SYS_IO_URING_ENTER, "io_uring_enter", "io_uring"),
	deny(unix.SYS_IO_URING_REGISTER, "io_uring_register", "io_uring"),

	// What is mounted where.
	deny(unix.SYS_MOUNT, "mount", "mount"),
	deny(unix.SYS_UMOUNT2, "umount2", "mount"),
	deny(unix.SYS_MOVE_MOUNT, "move_mount", "mount"),
	deny(unix.SYS_OPEN_TREE, "open_tree", "mount"),
	deny(unix.SYS_OPEN_TREE_ATTR, "open_tree_attr", "mount"),
	deny(unix.SYS_FSOPEN, "fsopen", "mount"),
	deny(unix.SYS_FSCONFIG, "fsconfig", "mount"),
	deny(unix.SYS_FSMOUNT, "fsmount", "mount"),
	deny(unix.SYS_FSPICK, "fspick", "mount"),
	deny(unix.SYS_MOUNT_SETATTR, "mount_setattr", "mount"),
	deny(unix.SYS_PIVOT_ROOT, "pivot_root", "mount"),
	deny(unix.SYS_CHROOT, "chroot", "chroot"),
	deny(unix.SYS_SWAPON, "swapon", "system"),
	deny(unix.SYS_SWAPOFF, "swapoff", "system"),
	deny(unix.SYS_OPEN_BY_HANDLE_AT, "open_by_handle_at", "open"),
	deny(unix.SYS_FANOTIFY_INIT, "fanotify_init", "system"),

	// Namespaces. The flags of clone3 are in memory, so it does not exist; every
	// library then uses clone.
	deny(unix.SYS_SETNS, "setns", "setns"),
	{nr: unix.SYS_UNSHARE, name: "unshare", what: "unshare", kind: namespace},
	{nr: unix.SYS_CLONE, name: "clone", what: "unshare", kind: namespace},
	{nr: unix.SYS_CLONE3, name: "clone3", what: "unshare", kind: missing},

	// The kernel itself.
	deny(unix.SYS_BPF, "bpf", "bpf"),
	deny(unix.SYS_PERF_EVENT_OPEN, "perf_event_open", "system"),
	deny(unix.SYS_USERFAULTFD, "userfaultfd", "system"),
	deny(unix.SYS_KEYCTL, "keyctl", "keyctl"),
	deny(unix.SYS_ADD_KEY, "add_key", "keyctl"),
	deny(unix.SYS_REQUEST_KEY, "request_key", "keyctl"),
	deny(unix.SYS_KEXEC_LOAD, "kexec_load", "system"),
	deny(unix.SYS_KEXEC_FILE_LOAD, "kexec_file_load", "system"),
	deny(unix.SYS_INIT_MODULE, "init_module", "system"),
	deny(unix.SYS_FINIT_MODULE, "finit_module", "system"),
	deny(unix.SYS_DELETE_MODULE, "delete_module", "system"),
	deny(unix.SYS_REBOOT, "reboot", "system"),
	deny(unix.SYS_ACCT, "acct", "system"),
	deny(unix.SYS_QUOTACTL, "quotactl", "system"),
	deny(unix.SYS_QUOTACTL_FD, "quotactl_fd", "system"),
	deny(unix.SYS_SETTIMEOFDAY, "settimeofday", "system"),
	deny(unix.SYS_CLOCK_SETTIME, "clock_settime", "system"),
	deny(unix.SYS_SETHOSTNAME, "sethostname", "system"),
	deny(unix.SYS_SETDOMAINNAME, "setdomainname", "system"),
	deny(unix.SYS_SYSLOG, "syslog", "system"),
	deny(unix.SYS_VHANGUP, "vhangup", "system"),
	deny(unix.SYS_NFSSERVCTL, "nfsservctl", "system"),
	deny(unix.SYS_LOOKUP_DCOOKIE, "lookup_dcookie", "system"),
	{nr: unix.SYS_PERSONALITY, name: "personality", what: "system", kind: persona},
	{nr: unix.SYS_IOCTL, name: "ioctl", what: "ioctl", kind: ioctls},

	// The network.
	{nr: unix.SYS_SOCKET, name: "socket", what: "socket", kind: sockets},
	{nr: unix.SYS_SOCKETPAIR, name: "socketpair", what: "socket", kind: pairs},
	{nr: unix.SYS_CONNECT, name: "connect", what: "connect", kind: connects},

	// Files: Landlock decides, and what it refuses is told.
	{nr: unix.SYS_OPENAT, name: "openat", what: "open", kind: opens, dir: 0, path: 1, flag: 2},
	{nr: unix.SYS_OPENAT2, name: "openat2", what: "open", kind: opens2, dir: 0, path: 1, flag: 2},
	{nr: unix.SYS_EXECVE, name: "execve", what: "execute", kind: executes, dir: -1, path: 0},
	{nr: unix.SYS_EXECVEAT, name: "execveat", what: "execute", kind: executes, dir: 0, path: 1},
	{nr: unix.SYS_TRUNCATE, name: "truncate", what: "write", kind: creates, dir: -1, path: 0},
	{nr: unix.SYS_UNLINKAT, name: "unlinkat", what: "write", kind: changes, dir: 0, path: 1},
	{nr: unix.SYS_MKDIRAT, name: "mkdirat", what: "write", kind: changes, dir: 0, path: 1},
	{nr: unix.SYS_MKNODAT, name: "mknodat", what: "write", kind: changes, dir: 0, path: 1},
	{nr: unix.SYS_SYMLINKAT, name: "symlinkat", what: "write", kind: changes, dir: 1, path: 2},
	{nr: unix.SYS_LINKAT, name: "linkat", what: "write", kind: changes, dir: 2, path: 3},
	{nr: unix.SYS_RENAMEAT2, name: "renameat2", what: "write", kind: changes, dir: 2, path: 3},
	{nr: unix.SYS_RENAMEAT, name: "renameat", what: "write", kind: changes, dir: 2, path: 3},
	{nr: unix.SYS_FCHMOD, name: "fchmod", what: "write", kind: modes, path: -1, flag: 1},
	{nr: unix.SYS_FCHMODAT, name: "fchmodat", what: "write", kind: modes, dir: 0, path: 1, flag: 2},
	{nr: unix.SYS_FCHMODAT2, name: "fchmodat2", what: "write", kind: modes, dir: 0, path: 1, flag: 2},
	{nr: unix.SYS_FCHOWN, name: "fchown", what: "write", kind: owners, path: -1},
	{nr: unix.SYS_FCHOWNAT, name: "fchownat", what: "write", kind: owners, dir: 0, path: 1},
	{nr: unix.SYS_SETXATTR, name: "setxattr", what: "write", kind: owners, dir: -1, path: 0},
	{nr: unix.SYS_LSETXATTR, name: "lsetxattr", what: "write", kind: owners, dir: -1, path: 0},
	{nr: unix.SYS_FSETXATTR, name: "fsetxattr", what: "write", kind: owners, path: -1},
	{nr: unix.SYS_SETXATTRAT, name: "setxattrat", what: "write", kind: owners, dir: 0, path: 1},
	{nr: unix.SYS_REMOVEXATTR, name: "removexattr", what: "write", kind: owners, dir: -1, path: 0},
	{nr: unix.SYS_LREMOVEXATTR, name: "lremovexattr", what: "write", kind: owners, dir: -1, path: 0},
	{nr: unix.SYS_FREMOVEXATTR, name: "fremovexattr", what: "write", kind: owners, path: -1},
	{nr: unix.SYS_REMOVEXATTRAT, name: "removexattrat", what: "write", kind: owners, dir: 0, path: 1},
}
