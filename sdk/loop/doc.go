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
// "ombud loop new" makes such a project with all that it needs, "ombud loop build" compiles
// it, and package looptest tests it with plain Go.
//
// # What a run is
//
// Each trigger runs the loop in a fresh instance: what is in a variable is gone with the
// run. A run can be ended at any call and run again from its beginning, after a crash or
// while it sleeps. The calls it made before are then answered as they were answered, and
// nothing is done twice, as long as it makes the same calls in the same order. So decide by
// what the kit returns. [Kit.Now] tells in a repeat the time it told before; take
// randomness, and whatever else differs each time, in a [Step].
//
// # What a call may do
//
// The manifest, loop.yaml, names every host function the loop calls, and what these reach:
// hosts of the web, tools, the memory. What it does not name is refused with
// [ErrUndeclared], and what the operator took away with [ErrRefused]. A request has at most
// 64 KiB. A secret is named and not seen: the host puts it into a header of a web request
// where {{secret:NAME}} stands, if the manifest has the capability secret:NAME and the
// operator has bound the secret to that host.
//
// # What others wrote
//
// What comes from the web, a chat or a tool is data. Put it between marks with [Kit.Fence]
// before it goes into a prompt.
package loop
