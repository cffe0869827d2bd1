//go:build wasip1

package loop

import (
	"encoding/json"
	"fmt"
	"os"
	"unsafe"

	"github.com/ombud-run/ombud/wasmloop/abi"
)

//go:wasmimport ombud call
func hostCall(name *byte, nameLen uint32, req *byte, reqLen uint32, out *byte, outCap uint32) uint64

//go:wasmimport ombud take
func hostTake(out *byte, outCap uint32) int32

// buffer takes answers. What is longer gets room of its own.
var buffer = make([]byte, 8<<10)

func host(name string, req []byte) (status int32, answer []byte) {
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

func kit() *Kit {
	k := &Kit{}
	if err := callRaw("trigger", nil, &k.t); err != nil {
		fail(err)
	}
	return k
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

//go:wasmexport run
func run() {
	if body == nil {
		fail(fmt.Errorf("the loop did not call loop.Main in init"))
	}
	if err := body(kit()); err != nil {
		fail(err)
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
	out, err := json.Marshal(serve(unsafe.Slice(ptr, n)))
	if err != nil {
		fail(err)
	}
	return uint64(uintptr(unsafe.Pointer(lend(out))))<<32 | uint64(len(out))
}

func serve(raw []byte) any {
	var req abi.ToolCall
	if err := json.Unmarshal(raw, &req); err != nil {
		return abi.Failed{Error: err.Error()}
	}
	do, there := tools[req.Name]
	if !there {
		return abi.Failed{Error: "the loop does not implement the tool " + req.Name}
	}
	out, err := do(kit(), req.Input)
	if err != nil {
		return abi.Failed{Error: err.Error()}
	}
	return out
}
