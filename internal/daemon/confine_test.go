package daemon

import (
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
)

// A flood of refusals becomes entries and one count; none is lost.
func TestRefusalsOfProgramsAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(3600*1000, 0)
	d := newDenials(func() time.Time { return now })
	a := confine.Denial{Owner: confine.Owner{Subject: "agent:a", Tool: "shell.exec"}, What: "open"}
	b := confine.Denial{Owner: confine.Owner{Subject: "agent:b", Tool: "shell.exec"}, What: "open"}
	single := 0
	for range 5 * denialsEach {
		if d.count(a) {
			single++
		}
	}
	if single != denialsEach || !d.count(b) {
		t.Errorf("%d entries of their own", single)
	}
	if due := d.collect(false); len(due) != 0 {
		t.Errorf("within the hour %v is written", due)
	}
	now = now.Add(time.Hour)
	if due := d.collect(false); len(due) != 1 || due[keyOf(a)] != 4*denialsEach {
		t.Errorf("after it %v is written", due)
	}
	if !d.count(a) {
		t.Error("a new hour has no entries of its own")
	}
	d.owe(b)
	if due := d.collect(true); due[keyOf(b)] != 1 || len(due) != 1 {
		t.Errorf("at the end %v is written", due)
	}
	if due := d.collect(true); len(due) != 0 {
		t.Errorf("%v is written twice", due)
	}
}
