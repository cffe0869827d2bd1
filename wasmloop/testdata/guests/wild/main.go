//go:build wasip1

// Command wild is a guest of ABI v1 that leaves behind whatever it can: state in globals,
// maps and the heap, goroutines that never end, and waits longer than it may. It says what
// it found before it began, so that what an earlier run left would show.
package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/maphash"
	mathrand "math/rand/v2"
	"runtime"
	"strings"
	"time"
	"unsafe"
)

//go:wasmimport karmax call
func karmaxCall(name *byte, nameLen uint32, req *byte, reqLen uint32, out *byte, outCap uint32) int32

func call(name, req string, size int) string {
	buf := make([]byte, size)
	code := karmaxCall(unsafe.StringData(name), uint32(len(name)), unsafe.StringData(req), uint32(len(req)), unsafe.SliceData(buf), uint32(size))
	if code < 0 {
		panic(fmt.Sprint(name, code))
	}
	return string(buf[:code])
}

func main() {}

// What a run finds here is what its own instance was made with.
var (
	runs     int
	atStart  = mathrand.Uint64()
	seed     = maphash.MakeSeed()
	words    = map[string]int{"one": 1, "two": 2}
	kept     [][]byte
	channels []chan int
)

//go:wasmexport run
func run() {
	var t struct{ Payload struct{ Do string } }
	if err := json.Unmarshal([]byte(call("trigger", "", 4096)), &t); err != nil {
		panic(err)
	}
	secret := make([]byte, 16)
	rand.Read(secret)
	runs++
	words[hex.EncodeToString(secret)] = runs
	call("log", fmt.Sprintf("runs=%d words=%d kept=%d goroutines=%d", runs, len(words), len(kept), runtime.NumGoroutine()), 0)
	call("log", fmt.Sprintf("%x %x %x %x", secret, mathrand.Uint64(), atStart, maphash.String(seed, "x")), 0)
	for what := range strings.FieldsSeq(t.Payload.Do) {
		do(what)
	}
}

func do(what string) {
	switch what {
	case "goroutines": // blocked for ever, and asleep
		for range 100 {
			c := make(chan int)
			channels = append(channels, c)
			go func() { <-c; runs += 1000 }()
			go func() { time.Sleep(time.Hour); runs += 1000 }()
		}
		runtime.Gosched()
	case "spinning": // one that is never done, and the run waits for another
		go func() {
			for {
				runtime.Gosched()
			}
		}()
		select {}
	case "heap": // nearly all there is: each page is looked at, and written
		for range 44 {
			b := make([]byte, 1<<20)
			for i := 0; i < len(b); i += 512 {
				if b[i] != 0 {
					panic("memory that another run wrote")
				}
			}
			b[0] = 0x5a
			for n := 1; n < len(b); n *= 2 {
				copy(b[n:], b[:n])
			}
			kept = append(kept, b)
		}
	case "sleep":
		time.Sleep(time.Hour)
	case "nap":
		time.Sleep(200 * time.Millisecond)
	case "maps":
		for i := range 1000 {
			words[fmt.Sprint(i)] = i
		}
	case "trap":
		panic("on purpose")
	}
}
