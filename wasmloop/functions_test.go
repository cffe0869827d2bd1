package wasmloop

import (
	"slices"
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

func TestWhatReachesSomethingNeedsAGrant(t *testing.T) {
	t.Parallel()
	own := []string{FnSleep, FnAfter, FnCancelAfter, FnWaitSignal} // the run's own time
	byRequest := []string{FnHTTP, FnTool}
	for name, f := range abi.Functions {
		if needs := !f.Free && !slices.Contains(own, name) && !slices.Contains(byRequest, name); needs != (f.Class != "") {
			t.Errorf("%s needs a grant %t, and the table says %+v", name, needs, f)
		}
	}
}
