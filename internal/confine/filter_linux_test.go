//go:build linux && (amd64 || arm64)

package confine

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// verdict runs a filter as the kernel would.
func verdict(t interface{ Fatal(...any) }, prog []unix.SockFilter, arch uint32, nr int, args [6]uint64) uint32 {
	raw := make([]bpf.RawInstruction, len(prog))
	for i, p := range prog {
		raw[i] = bpf.RawInstruction{Op: p.Code, Jt: p.Jt, Jf: p.Jf, K: p.K}
	}
	insns, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("an instruction is not known")
	}
	vm, err := bpf.NewVM(insns)
	if err != nil {
		t.Fatal(err)
	}
	// struct seccomp_data, each 32-bit word in the order this machine loads packets in.
	data := binary.BigEndian.AppendUint32(nil, uint32(nr))
	data = binary.BigEndian.AppendUint32(data, arch)
	data = binary.BigEndian.AppendUint64(data, 0)
	for _, a := range args {
		data = binary.BigEndian.AppendUint32(data, uint32(a)) // the low half is first
		data = binary.BigEndian.AppendUint32(data, uint32(a>>32))
	}
	out, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(out)
}

// TestTheFilterSaysWhatTheTableSays compares the filter with the table in words.
func TestTheFilterSaysWhatTheTableSays(t *testing.T) {
	t.Parallel()
	table := slices.Concat(common, special)
	rapid.Check(t, func(t *rapid.T) {
		r := rules{
			network: Network(rapid.IntRange(0, 2).Draw(t, "network")), sockets: rapid.Bool().Draw(t, "sockets"),
			mounts: rapid.Bool().Draw(t, "mounts"), observe: rapid.Bool().Draw(t, "observe"), files: rapid.Bool().Draw(t, "files"),
		}
		prog := filter(r)
		var args [6]uint64
		for i := range args {
			args[i] = rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 64), rapid.SampledFrom([]uint64{
				unix.TIOCSTI, unix.TIOCSTI | 1<<40, unix.CLONE_NEWUSER, unix.CLONE_VM, unix.CLONE_NEWTIME, 0xffffffff, unix.SOCK_STREAM | unix.SOCK_CLOEXEC,
			})).Draw(t, "argument")
		}
		i := rapid.IntRange(0, len(table)+20).Draw(t, "call")
		nr, want := unix.SYS_READ, uint32(retAllow)
		if i < len(table) {
			nr = table[i].nr
			want = expected(table[i], r, args)
		}
		if got := verdict(t, prog, auditArch, nr, args); got != want {
			t.Fatalf("call %d %v: %#x, want %#x", nr, args, got, want)
		}
		if got := verdict(t, prog, auditArch^1, nr, args); got != retKill {
			t.Fatalf("another architecture: %#x", got)
		}
		if otherABI != 0 {
			if got := verdict(t, prog, auditArch, nr|otherABI, args); got != retENOSYS {
				t.Fatalf("the other numbers: %#x", got)
			}
		}
	})
}

func expected(c call, r rules, args [6]uint64) uint32 {
	deny, watch, files := retEPERM, uint32(retAllow), uint32(retAllow)
	if r.observe {
		deny, watch = retNotify, retNotify
		if r.files {
			files = retNotify
		}
	}
	low := func(i int) uint32 { return uint32(args[i]) }
	is := func(refuse bool) uint32 {
		if refuse {
			return deny
		}
		return retAllow
	}
	connected := low(1)&0xf == unix.SOCK_STREAM || low(1)&0xf == unix.SOCK_SEQPACKET
	switch c.kind {
	case refused:
		return deny
	case missing:
		return retENOSYS
	case executes, signals:
		return watch
	case opens, opens2, creates, changes:
		return files
	case modes, owners:
		if !r.mounts {
			return deny
		}
		if c.path < 0 {
			return retAllow
		}
		return files
	case connects:
		return is(r.sockets)
	case namespace:
		flags := uint32(namespaceFlags)
		if c.nr == unix.SYS_UNSHARE {
			flags |= unix.CLONE_NEWTIME
		}
		return is(low(0)&flags != 0)
	case ioctls:
		return is(low(1) == unix.TIOCSTI || low(1) == unix.TIOCLINUX || low(1) == unix.TIOCSETD)
	case persona:
		return is(low(0) != 0 && low(0) != 0xffffffff)
	case pairs:
		return is(low(0) != unix.AF_UNIX || !connected)
	case sockets:
		switch low(0) {
		case unix.AF_INET, unix.AF_INET6:
			return is(r.network == NetNone)
		case unix.AF_NETLINK:
			return is(r.network == NetNone || low(2) != unix.NETLINK_ROUTE)
		case unix.AF_UNIX:
			return is(!r.sockets || !connected)
		}
		return deny
	}
	return 0
}

func TestEachCallIsInTheTableOnce(t *testing.T) {
	t.Parallel()
	seen := map[int]string{}
	for _, c := range slices.Concat(common, special) {
		if other, ok := seen[c.nr]; ok {
			t.Errorf("%s and %s are one call", c.name, other)
		}
		seen[c.nr] = c.name
	}
	if n := len(filter(rules{NetAll, true, false, true, true})); n > 4096 {
		t.Errorf("%d instructions are more than the kernel takes", n)
	}
}
