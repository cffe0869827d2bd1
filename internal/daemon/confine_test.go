package daemon

import (
	"maps"
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
	d.owe(map[denialKey]int64{keyOf(b): 1})
	due := d.collect(true)
	if due[keyOf(b)] != 1 || len(due) != 1 {
		t.Errorf("at the end %v is written", due)
	}
	d.owe(due)
	if again := d.collect(false); !maps.Equal(again, due) {
		t.Errorf("what could not be written came back as %v", again)
	}
	if due := d.collect(true); len(due) != 0 {
		t.Errorf("%v is written twice", due)
	}
}

// A program that is refused something every hour does not keep the counts from being
// written: the hour is over for all that is counted, whoever notices first.
func TestTheCountOfAnHourIsWrittenThoughTheNextHasBegun(t *testing.T) {
	t.Parallel()
	now := time.Unix(3600*1000, 0)
	d := newDenials(func() time.Time { return now })
	a := confine.Denial{Owner: confine.Owner{Subject: "agent:a", Tool: "shell.exec"}, What: "open"}
	for hour := range 3 {
		for range denialsEach + 5 {
			d.count(a)
		}
		due := d.collect(false)
		if want := int64(min(hour, 1) * 5); due[keyOf(a)] != want {
			t.Errorf("in hour %d a count of %d is written, want %d", hour, due[keyOf(a)], want)
		}
		now = now.Add(time.Hour)
	}
}
