//go:build linux || darwin

package wasmloop

import (
	"math"

	"golang.org/x/sys/unix"
)

// reserve is room for n bytes, which take memory as they are written; nil if there is none.
// It is none of the garbage collector's.
func reserve(n uint64) []byte {
	if n == 0 || n > math.MaxInt {
		return nil
	}
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil
	}
	return b
}

// release gives back what reserve gave, at once. Nothing may look at it afterwards.
func release(b []byte) { _ = unix.Munmap(b) }
