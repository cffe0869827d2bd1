package wasmloop

import (
	"testing"

	"github.com/ombud-run/ombud/wasmloop/abi"
)

// What authors are told of a host function is what the host does.
func TestTheTableOfHostFunctionsIsTrue(t *testing.T) {
	t.Parallel()
	for name, f := range abi.Functions {
		fn, there := hostFuncs[name]
		own, isOwn := ownFuncs[name]
		if isOwn {
			fn = own
		}
		if there == isOwn || isOwn != f.Own {
			t.Errorf("%s: in v1 %t, in ours %t, and the table says ours %t", name, there, isOwn, f.Own)
		}
		if fn.class != f.Class || fn.value != f.Value || fn.free != f.Free {
			t.Errorf("%s: the host needs %q %q, free %t, and the table says %+v", name, fn.class, fn.value, fn.free, f)
		}
	}
	if len(hostFuncs)+len(ownFuncs) != len(abi.Functions) {
		t.Errorf("the host has %d functions and the table %d", len(hostFuncs)+len(ownFuncs), len(abi.Functions))
	}
}
