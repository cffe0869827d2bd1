package recipe

import (
	"errors"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
)

// How a branch ended is told, whether it left an error or not.
func TestEachEndOfABranchIsTold(t *testing.T) {
	t.Parallel()
	strands := []Strand{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}
	ended := endings(strands, []run.Outcome{
		{State: run.Done}, {State: run.Errored, Err: errors.New("no")}, {State: run.Unknown}, {State: run.Errored, Err: fault.New(fault.Cancelled, "late")},
	})
	for i, want := range []string{"done", "failed", "failed", "cancelled"} {
		if e := ended[i]; e.Name != strands[i].Name || e.State != want || (e.Error == "") != (want == "done") {
			t.Errorf("%+v, want %s", e, want)
		}
	}
}
