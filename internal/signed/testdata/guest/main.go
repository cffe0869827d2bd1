//go:build wasip1

// Command guest is a loop that does what its trigger's payload tells it, by both ABIs and
// without a kit. Its provided tool does so with its input.
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

//go:wasmimport ombud call
func ombudCall(name *byte, nameLen uint32, req *byte, reqLen uint32, out *byte, outCap uint32) uint64

//go:wasmimport ombud take
func ombudTake(out *byte, outCap uint32) int32

func call(name, req string, size int) (int32, string) {
	buf := make([]byte, size)
	code := karmaxCall(unsafe.StringData(name), uint32(len(name)), unsafe.StringData(req), uint32(len(req)), unsafe.SliceData(buf), uint32(size))
	if code < 0 {
		return code, ""
	}
	return code, string(buf[:code])
}

func own(name, req string) (int32, string) {
	buf := make([]byte, 1024)
	got := ombudCall(unsafe.StringData(name), uint32(len(name)), unsafe.StringData(req), uint32(len(req)), unsafe.SliceData(buf), uint32(len(buf)))
	n := uint32(got)
	if int(n) > len(buf) {
		buf = make([]byte, n)
		ombudTake(unsafe.SliceData(buf), n)
	}
	return int32(got >> 32), string(buf[:n])
}

func main() {}

type step struct {
	Do    string `json:"do"`
	Name  string `json:"name"`
	Req   string `json:"req"`
	Cap   int    `json:"cap"`
	N     int    `json:"n"`
	Must  string `json:"must"` // in the answer, or the run fails
	Once  bool   `json:"once"`
	Steps []step `json:"steps"`
}

var said []string

func say(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }

//go:wasmexport run
func run() {
	_, raw := call("trigger", "", 1<<20)
	var t struct {
		Kind    string `json:"kind"`
		Payload struct {
			Steps []step `json:"steps"`
		} `json:"payload"`
	}
	if err := json.Unmarshal([]byte(raw), &t); err != nil {
		panic(err)
	}
	do(t.Payload.Steps)
}

func do(steps []step) {
	for _, s := range steps {
		one(s)
	}
}

func random() string {
	b := make([]byte, 8)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func one(s step) {
	req := strings.ReplaceAll(s.Req, "%RANDOM%", random())
	answer := ""
	switch s.Do {
	case "call":
		size := s.Cap
		if size == 0 {
			size = 32 << 10
		}
		var code int32
		for range max(s.N, 1) {
			code, answer = call(s.Name, req, size)
		}
		say("%s %d %s", s.Name, code, answer[:min(len(answer), 200)])
	case "own":
		var status int32
		status, answer = own(s.Name, req)
		say("%s %d %s", s.Name, status, answer[:min(len(answer), 300)])
	case "step":
		begin, _ := json.Marshal(map[string]any{"name": s.Name, "once": s.Once})
		status, text := own("step_begin", string(begin))
		var begun struct {
			Done   bool
			Result json.RawMessage
		}
		if status == 0 {
			if err := json.Unmarshal([]byte(text), &begun); err != nil {
				panic(err)
			}
		}
		switch {
		case status != 0:
			answer = text
			say("step %s %d %s", s.Name, status, text)
		case begun.Done:
			answer = string(begun.Result)
			say("step %s had %s", s.Name, begun.Result)
		default:
			do(s.Steps)
			answer = `"` + random() + `"`
			end, _ := json.Marshal(map[string]any{"name": s.Name, "result": json.RawMessage(answer)})
			status, text := own("step_end", string(end))
			say("step %s came to %s %d %s", s.Name, answer, status, text)
		}
	case "clock":
		say("clock %s", time.Now().UTC().Format(time.RFC3339))
	case "log":
		call("log", s.Req, 0)
	case "says":
		for _, line := range said {
			call("log", line, 0)
		}
		said = nil
	case "print":
		fmt.Fprintln(os.Stderr, s.Req)
	case "spin":
		for i := 0; ; i++ {
			answer = ""
		}
	case "exit":
		os.Exit(s.N)
	case "recurse":
		one(s)
	}
	if s.Must != "" && !strings.Contains(answer, s.Must) {
		fmt.Fprintf(os.Stderr, "%s %s: no %q in %q\n", s.Do, s.Name, s.Must, answer)
		os.Exit(1)
	}
}

var pinned = map[*byte][]byte{}

func pin(b []byte) *byte {
	p := unsafe.SliceData(b)
	pinned[p] = b
	return p
}

//go:wasmexport karmax_alloc
func alloc(n uint32) *byte { return pin(make([]byte, max(n, 1))) }

//go:wasmexport tool
func tool(ptr *byte, n uint32) uint64 {
	var req struct {
		Name  string
		Input struct{ Steps []step }
	}
	if err := json.Unmarshal(unsafe.Slice(ptr, n), &req); err != nil {
		panic(err)
	}
	do(req.Input.Steps)
	out, _ := json.Marshal(req.Name + ": " + strings.Join(said, "; "))
	return uint64(uintptr(unsafe.Pointer(pin(out))))<<32 | uint64(len(out))
}
