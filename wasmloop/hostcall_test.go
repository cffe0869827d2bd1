package wasmloop

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/ombud-run/ombud/wasmloop/abi"
)

// Whatever is called with whatever pointers: the host does not fail, the code is one of the
// convention, and nothing is written but an answer, into the buffer that was named.
func FuzzHostCall(f *testing.F) {
	f.Add("ask", []byte(`{"prompt":"p"}`), uint32(0), uint32(3), uint32(100), uint32(14), uint32(4096), uint32(1000))
	f.Add("tool", []byte(`{"name":"calendar.add","input":{"a":[1,{"b":null}]}}`), uint32(0), uint32(4), uint32(100), uint32(52), uint32(65530), uint32(0xffffffff))
	f.Add("http", []byte(`{"url":"https://api.example.com/","headers":{"a":"b"}}`), uint32(0), uint32(4), uint32(100), uint32(53), uint32(0), uint32(0))
	f.Add("step_begin", []byte(`{"name":"n","once":true}`), uint32(0xfffffff0), uint32(0xffffffff), uint32(0x7fffffff), uint32(65537), uint32(1), uint32(1))
	f.Add("chat_summary_save", []byte("{\"jid\":\"\xff\xfe\"}"), uint32(0), uint32(17), uint32(100), uint32(12), uint32(0), uint32(9))
	b := guestOf(f, wat(f, "outside"), plain)
	f.Fuzz(func(t *testing.T, name string, request []byte, namePtr, nameLen, reqPtr, reqLen, out, outCap uint32) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		mod, err := b.instantiate(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer mod.Close(ctx) //nolint:errcheck // a fuzz target
		mem := mod.Memory()
		mem.Write(0, []byte(name))                      // if it fits
		mem.Write(100, request)                         // the same
		i := b.newInstance(ctx, []byte(`{"kind":"x"}`)) // what open makes
		whole, _ := mem.Read(0, mem.Size())
		for _, own := range []bool{false, true} {
			before := bytes.Clone(whole)
			written := uint32(0)
			if own {
				stack := []uint64{uint64(namePtr), uint64(nameLen), uint64(reqPtr), uint64(reqLen), uint64(out), uint64(outCap)}
				ombudCall(context.WithValue(ctx, instanceKey{}, i), mod, stack)
				status, n := abi.Status(stack[0]>>32), uint32(stack[0]) //nolint:gosec // as a guest reads it
				if status < abi.StatusOK || status > abi.StatusUnknown || status != abi.StatusOK && n == 0 {
					t.Fatalf("status %d with %d bytes", status, n)
				}
				if i.left == nil {
					written = n
				}
			} else {
				code := i.call(ctx, mem, namePtr, nameLen, reqPtr, reqLen, out, outCap)
				if code < codeMalformed || code > 0 && uint32(code) > outCap { //nolint:gosec // above 0
					t.Fatalf("code %d for a buffer of %d", code, outCap)
				}
				written = uint32(max(0, code)) //nolint:gosec // not below 0
			}
			if at := api.DecodeU32(uint64(out)); written > 0 {
				copy(before[at:at+written], whole[at:at+written])
			}
			if !bytes.Equal(before, whole) {
				t.Fatal("it wrote elsewhere")
			}
		}
	})
}
