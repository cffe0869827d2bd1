//go:build wasip1

// Command scripted is a guest of ABI v1 that does what its trigger's payload tells it:
// host calls with any name, request and size of buffer, or something a guest should not.
// It speaks the ABI by itself, without a kit.
package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
	"unsafe"
)

//go:wasmimport karmax call
func karmaxCall(name *byte, nameLen uint32, req *byte, reqLen uint32, out *byte, outCap uint32) int32

func call(name, req string, size int) (int32, string) {
	buf := make([]byte, size)
	code := karmaxCall(unsafe.StringData(name), uint32(len(name)), unsafe.StringData(req), uint32(len(req)), unsafe.SliceData(buf), uint32(size))
	if code < 0 {
		return code, ""
	}
	return code, string(buf[:code])
}

func main() {}

var runs int // 0 in a fresh instance

type step struct {
	Do   string `json:"do"`
	Name string `json:"name"`
	Req  string `json:"req"`
	Cap  int    `json:"cap"`
	N    int    `json:"n"`
}

//go:wasmexport run
func run() {
	runs++
	_, raw := call("trigger", "", 1<<20)
	var t struct {
		Payload struct {
			Steps []step `json:"steps"`
		} `json:"payload"`
	}
	if err := json.Unmarshal([]byte(raw), &t); err != nil {
		panic(err)
	}
	for _, s := range t.Payload.Steps {
		do(s)
	}
	for _, line := range said { // at the end: a call between two others would change what they mean
		call("log", line, 0)
	}
}

var said []string

func say(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }

var held [][]byte

func do(s step) {
	switch s.Do {
	case "call":
		for range max(s.N, 1) {
			code, answer := call(s.Name, s.Req, s.Cap)
			if s.N == 0 {
				say("%s %d %s", s.Name, code, answer[:min(len(answer), 200)])
			}
		}
	case "runs":
		say("runs %d", runs)
	case "random":
		b := make([]byte, 16)
		rand.Read(b)
		say("random %s", hex.EncodeToString(b))
	case "clock":
		say("clock %d", time.Now().Unix())
	case "print":
		fmt.Fprint(os.Stdout, strings.Repeat("p", s.N))
	case "spin":
		for i := 0; ; i++ {
			held = held[:0]
		}
	case "allocate":
		for {
			held = append(held, make([]byte, 1<<20))
		}
	case "recurse":
		recurse(1)
	case "panic":
		panic("a guest panics")
	case "exit":
		os.Exit(s.N)
	}
}

func recurse(n int) int { return recurse(n+1) + 1 }

var pinned = map[*byte][]byte{}

//go:wasmexport karmax_alloc
func alloc(n uint32) *byte {
	b := make([]byte, max(n, 1))
	p := unsafe.SliceData(b)
	pinned[p] = b
	return p
}

//go:wasmexport tool
func tool(ptr *byte, n uint32) uint64 {
	var req struct {
		Name  string
		Input struct{ X int }
	}
	if err := json.Unmarshal(unsafe.Slice(ptr, n), &req); err != nil {
		panic(err)
	}
	code, answer := call("config", "k", 1000)
	out := fmt.Sprintf("%s %d %d %s", req.Name, req.Input.X, code, answer)
	if req.Name == "json" {
		out = `{"error":"no"}`
	} else {
		q, _ := json.Marshal(out)
		out = string(q)
	}
	b := []byte(out)
	p := unsafe.SliceData(b)
	pinned[p] = b
	return uint64(uintptr(unsafe.Pointer(p)))<<32 | uint64(len(b))
}
