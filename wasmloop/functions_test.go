package wasmloop

import (
	"testing"

	"github.com/ombud-run/ombud/wasmloop/abi"
)

// What is not in the table would need no grant.
func TestTheTableHasEveryHostFunction(t *testing.T) {
	t.Parallel()
	for name, f := range abi.Functions {
		_, there := hostFuncs[name]
		_, isOwn := ownFuncs[name]
		if there == isOwn || isOwn != f.Own {
			t.Errorf("%s: in v1 %t, in ours %t, and the table says ours %t", name, there, isOwn, f.Own)
		}
	}
	if len(hostFuncs)+len(ownFuncs) != len(abi.Functions) {
		t.Errorf("the host has %d functions and the table %d", len(hostFuncs)+len(ownFuncs), len(abi.Functions))
	}
}
