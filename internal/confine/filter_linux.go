//go:build linux && (amd64 || arm64)

package confine

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data. Arguments are 64 bits wide, little-endian here.
const (
	dataNr   = 0
	dataArch = 4
	dataArgs = 16
)

const (
	retAllow  = unix.SECCOMP_RET_ALLOW
	retNotify = unix.SECCOMP_RET_USER_NOTIF
	retKill   = unix.SECCOMP_RET_KILL_PROCESS
	retEPERM  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	retENOSYS = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// code is a filter being written.
type code []unix.SockFilter

func (c *code) add(op uint16, jt, jf uint8, k uint32) {
	*c = append(*c, unix.SockFilter{Code: op, Jt: jt, Jf: jf, K: k})
}

func (c *code) load(offset uint32) { c.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, 0, offset) }
func (c *code) ret(action uint32)  { c.add(unix.BPF_RET|unix.BPF_K, 0, 0, action) }

// arg loads the low half of an argument. The kernel takes int arguments from there
// too, so a caller gains nothing by setting bits in the other half.
func (c *code) arg(n int) { c.load(uint32(dataArgs + 8*n)) }

// if1 returns action if what was loaded is k.
func (c *code) if1(k, action uint32) {
	c.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, 1, k)
	c.ret(action)
}

// ifAny returns action if a bit of mask is set.
func (c *code) ifAny(mask, action uint32) {
	c.add(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, 0, 1, mask)
	c.ret(action)
}

func (c *code) mask(bits uint32) { c.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0, 0, bits) }

// on writes what happens with one system call. The body returns on every way.
func (c *code) on(nr int, body func(*code)) {
	at := len(*c)
	c.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, 0, uint32(nr))
	body(c)
	(*c)[at].Jf = uint8(len(*c) - at - 1)
}

// families are the socket families a job may use.
func families(n Network, unixSockets bool) []uint32 {
	var out []uint32
	if n != NetNone {
		out = append(out, unix.AF_INET, unix.AF_INET6)
	}
	if unixSockets {
		out = append(out, unix.AF_UNIX)
	}
	return out
}

// rules are what differs between the filters of jobs.
type rules struct {
	network Network
	sockets bool // unix sockets, to which the watcher connects
	mounts  bool // what may not be changed is read-only
	observe bool // the watcher answers what is refused; else it is refused outright
	files   bool // and sees what Landlock decides on; else that passes
}

// filter writes the seccomp filter of a job.
func filter(r rules) []unix.SockFilter {
	deny := retEPERM
	if r.observe {
		deny = retNotify
	}
	c := &code{}
	c.load(dataArch)
	c.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 1, 0, auditArch)
	c.ret(retKill) // the numbers of another architecture mean something else
	c.load(dataNr)
	if otherABI != 0 {
		c.add(unix.BPF_JMP|unix.BPF_JGE|unix.BPF_K, 0, 1, otherABI)
		c.ret(retENOSYS)
	}
	for _, call := range slices.Concat(common, special) {
		switch call.kind {
		case refused:
			c.if1(uint32(call.nr), deny)
		case missing:
			c.if1(uint32(call.nr), retENOSYS)
		case executes, signals: // the first execution also sets the limits
			if r.observe {
				c.if1(uint32(call.nr), retNotify)
			}
		case opens, opens2, creates, changes:
			if r.observe && r.files {
				c.if1(uint32(call.nr), retNotify)
			}
		case modes, owners:
			switch {
			case !r.mounts:
				c.if1(uint32(call.nr), deny)
			case r.observe && r.files && call.path >= 0:
				c.if1(uint32(call.nr), retNotify)
			}
		case connects: // the address is in memory: the watcher reads it and connects
			if r.sockets {
				c.if1(uint32(call.nr), deny)
			}
		case namespace:
			c.on(call.nr, func(c *code) {
				flags := uint32(namespaceFlags)
				if call.nr == unix.SYS_UNSHARE {
					flags |= unix.CLONE_NEWTIME // in clone it is part of the signal
				}
				c.arg(0)
				c.ifAny(flags, deny)
				c.ret(retAllow)
			})
		case ioctls:
			c.on(call.nr, func(c *code) {
				c.arg(1)
				c.if1(unix.TIOCSTI, deny)
				c.if1(unix.TIOCLINUX, deny)
				c.if1(unix.TIOCSETD, deny)
				c.ret(retAllow)
			})
		case persona:
			c.on(call.nr, func(c *code) {
				c.arg(0)
				c.if1(0, retAllow)
				c.if1(0xffffffff, retAllow) // asks
				c.ret(deny)
			})
		case sockets:
			c.on(call.nr, func(c *code) { socketRules(c, r.network, r.sockets, deny) })
		case pairs:
			c.on(call.nr, func(c *code) {
				c.arg(0)
				c.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 1, 0, unix.AF_UNIX)
				c.ret(deny)
				connected(c, deny)
			})
		}
	}
	c.ret(retAllow)
	return *c
}

func socketRules(c *code, n Network, unixSockets bool, deny uint32) {
	c.arg(0)
	for _, family := range families(n, unixSockets) {
		if family != unix.AF_UNIX {
			c.if1(family, retAllow)
		}
	}
	if n != NetNone {
		// Netlink tells resolvers about addresses; only that protocol.
		c.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, 3, unix.AF_NETLINK)
		c.arg(2)
		c.if1(unix.NETLINK_ROUTE, retAllow)
		c.arg(0)
	}
	if unixSockets {
		c.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 1, 0, unix.AF_UNIX)
		c.ret(deny)
		connected(c, deny)
		return
	}
	c.ret(deny)
}

// connected lets pass only types of unix socket that have to connect: a datagram can
// be sent to any address.
func connected(c *code, deny uint32) {
	c.arg(1)
	c.mask(0xf) // the rest are flags
	c.if1(unix.SOCK_STREAM, retAllow)
	c.if1(unix.SOCK_SEQPACKET, retAllow)
	c.ret(deny)
}
