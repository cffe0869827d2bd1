package signed

import (
	"time"

	"github.com/ombud-run/ombud/internal/loops"
	"github.com/ombud-run/ombud/wasmloop"
)

// Limits bound one run of a loop.
type Limits struct {
	MemoryMB int
	Time     time.Duration // of work; waiting does not count
	Calls    int           // host calls that reach something
	Log      int           // bytes
	Answer   int           // bytes of one answer to it
	Record   int           // bytes of what it asked, was answered and kept by steps
}

// usualMemoryMB is how much memory an instance may have where its manifest says nothing.
const usualMemoryMB = 64

// LimitsOf are the limits of a loop's run, given the time the operator set; 0 for the usual.
func LimitsOf(m wasmloop.Manifest, timeout time.Duration) Limits {
	l := Limits{MemoryMB: m.MemoryMB, Time: timeout, Calls: maxCalls, Log: maxLog, Answer: maxAnswer, Record: maxKept}
	if l.MemoryMB == 0 {
		l.MemoryMB = usualMemoryMB
	}
	if l.Time == 0 {
		l.Time = loops.UsualTime
	}
	return l
}
