// Package ombud is the root of the module. It holds the sources that a new loop is made of,
// so that "ombud loop new" needs no network.
package ombud

import "embed"

// Sources are the kit for loops in Go with its test host, the kit for AssemblyScript, and
// the example loops, by their paths below the root.
//
//go:embed LICENSE sdk/loop/*.go sdk/loop/looptest/*.go wasmloop/abi/*.go
//go:embed examples/loops/*/*.go examples/loops/*/loop.yaml
//go:embed sdk/assemblyscript/*.json sdk/assemblyscript/loop.yaml sdk/assemblyscript/assembly
var Sources embed.FS
