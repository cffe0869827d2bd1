// Package loop is what a signed loop for ombud is written with. A loop is a Go program
// compiled to WebAssembly:
//
//	package main
//
//	import "github.com/ombud-run/ombud/sdk/loop"
//
//	func init() {
//		loop.Main(func(k *loop.Kit) error {
//			k.Log(loop.Info, "started by "+k.Trigger().Kind)
//			return k.Remember("hello was here")
//		})
//	}
//
//	func main() {}
//
// It is compiled by
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o hello.wasm
//
// # What a run is
//
// Each trigger runs the loop in a fresh instance. A run can be ended at any call and run
// again from its beginning, after a crash or while it sleeps. The calls it made before are
// then answered as they were answered, and nothing is done twice, as long as it makes the
// same calls in the same order. So decide by what the kit returns, not by the clock or by
// randomness, or take these in a [Kit.Step], whose result is kept.
package loop
