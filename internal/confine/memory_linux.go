package confine

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"
)

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
		text, _, ended := bytes.Cut(part, []byte{0})
		buf = append(buf, text...)
		if ended {
			return string(buf), nil
		}
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
