//go:build wasip1

package loop

import (
	"fmt"
	"os"
	"time"
	"unsafe"
)

//go:wasmimport ombud call
func hostCall(name *byte, nameLen uint32, req *byte, reqLen uint32, out *byte, outCap uint32) uint64

//go:wasmimport ombud take
func hostTake(out *byte, outCap uint32) int32

// buffer takes answers. What is longer gets room of its own.
var buffer = make([]byte, 8<<10)

// outside is the host that runs this module.
type outside struct{}

func (outside) Call(name string, req []byte) (status int32, answer []byte) {
	got := hostCall(unsafe.StringData(name), uint32(len(name)), unsafe.SliceData(req), uint32(len(req)), unsafe.SliceData(buffer), uint32(len(buffer)))
	status, n := int32(got>>32), uint32(got)
	if int(n) <= len(buffer) {
		return status, buffer[:n]
	}
	answer = make([]byte, n)
	if hostTake(unsafe.SliceData(answer), n) != int32(n) {
		return 1, []byte("the answer was lost")
	}
	return status, answer
}

func (outside) Now() time.Time { return time.Now() }

//go:wasmexport run
func run() {
	if err := RunOn(outside{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// lent keeps what the host has a pointer to.
var lent = map[*byte][]byte{}

//go:wasmexport karmax_alloc
func alloc(n uint32) *byte { return lend(make([]byte, max(n, 1))) }

func lend(b []byte) *byte {
	p := unsafe.SliceData(b)
	lent[p] = b
	return p
}

//go:wasmexport tool
func tool(ptr *byte, n uint32) uint64 {
	out := ServeOn(outside{}, unsafe.Slice(ptr, n))
	return uint64(uintptr(unsafe.Pointer(lend(out))))<<32 | uint64(len(out))
}
