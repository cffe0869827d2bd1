package confine

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	// otherABI is the first number of the x32 calls, which the same kernel may answer.
	otherABI = 0x40000000
)

// special are the calls that only this architecture has.
var special = []call{
	deny(unix.SYS_IOPL, "iopl", "system"),
	deny(unix.SYS_IOPERM, "ioperm", "system"),
	deny(unix.SYS_USELIB, "uselib", "open"),
	{nr: unix.SYS_OPEN, name: "open", what: "open", kind: opens, dir: -1, path: 0, flag: 1},
	{nr: unix.SYS_CREAT, name: "creat", what: "write", kind: creates, dir: -1, path: 0},
	{nr: unix.SYS_UNLINK, name: "unlink", what: "write", kind: changes, dir: -1, path: 0},
	{nr: unix.SYS_RMDIR, name: "rmdir", what: "write", kind: changes, dir: -1, path: 0},
	{nr: unix.SYS_MKDIR, name: "mkdir", what: "write", kind: changes, dir: -1, path: 0},
	{nr: unix.SYS_MKNOD, name: "mknod", what: "write", kind: changes, dir: -1, path: 0},
	{nr: unix.SYS_SYMLINK, name: "symlink", what: "write", kind: changes, dir: -1, path: 1},
	{nr: unix.SYS_LINK, name: "link", what: "write", kind: changes, dir: -1, path: 1},
	{nr: unix.SYS_RENAME, name: "rename", what: "write", kind: changes, dir: -1, path: 1},
	{nr: unix.SYS_CHMOD, name: "chmod", what: "write", kind: modes, dir: -1, path: 0, flag: 1},
	{nr: unix.SYS_CHOWN, name: "chown", what: "write", kind: owners, dir: -1, path: 0},
	{nr: unix.SYS_LCHOWN, name: "lchown", what: "write", kind: owners, dir: -1, path: 0},
}
