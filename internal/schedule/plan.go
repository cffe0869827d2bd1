package schedule

import (
	"fmt"
	"time"

	"github.com/ombud-run/ombud/internal/cron"
)

const (
	// look is the longest sleep between two looks at the clock: of running time, which
	// stands still while the machine is suspended.
	look = 30 * time.Second
	// promptly is how late an instant is on time: one may fall right after a look.
	promptly = look + look/2
	// singly is how many missed instants of one look have an event each.
	singly = 20
	// countAtMost bounds how many missed instants are counted.
	countAtMost = 10_000
	// unreadable is when a schedule that cannot be read is looked at again.
	unreadable = 5 * time.Minute
)

// verdict is what becomes of an instant, or of a row of missed ones.
type verdict struct {
	instant int64 // of a row the last
	fires   bool
	kind    string // Due or Late, if it fires

	count int    // instants, 1 but for a row
	from  int64  // of a row the first
	more  bool   // there were more than count
	why   string // it was missed
}

// plan is what one look makes of a schedule.
type plan struct {
	s        Schedule
	verdicts []verdict
	next     int64
	loc      *time.Location
	failed   error // the schedule cannot be read
}

// weight is about how many events it leaves.
func (p *plan) weight() int { return 1 + len(p.verdicts) }

// planFor decides what becomes of the instants of x that are due at now. x is active and
// its FireAt has come. It asks no clock.
func (r *rules) planFor(x Schedule, now int64) plan {
	p := plan{s: x, next: x.Next, loc: time.UTC}
	if x.Problem != nil {
		p.failed = x.Problem
		return p
	}
	c, err := r.of(&x)
	if err != nil {
		p.failed = err
		return p
	}
	p.loc = c.Location()
	newest := x.newestDue(c, now)
	p.next = after(c, newest)
	late := time.Duration(max(0, now-x.due(newest))) * time.Microsecond
	kind := Late
	if late <= promptly {
		kind = Due
	}
	fire := func(at int64) {
		p.verdicts = append(p.verdicts, verdict{instant: at, fires: true, kind: kind, count: 1})
	}
	switch {
	case x.Missed == All:
		first := x.makeUp(c, newest)
		p.pass(c, x.Next, first, fmt.Sprintf("at most %d are made up for", MaxMakeUp))
		for at := first; at <= newest; at = after(c, at) {
			kind = Late
			if now-x.due(at) <= promptly.Microseconds() {
				kind = Due
			}
			fire(at)
		}
	case kind == Due, x.Missed == Once && late <= x.Grace:
		why := "made up for by " + show(newest, p.loc)
		if x.Missed == Skip {
			why = "the policy is skip"
		}
		p.pass(c, x.Next, newest, why)
		fire(newest)
	default:
		why := "late by " + late.Round(time.Second).String() + ", and "
		if x.Missed == Skip {
			why += "the policy is skip"
		} else {
			why += "the grace is " + max(0, x.Grace).String()
		}
		p.pass(c, x.Next, newest+1, why)
	}
	return p
}

// newestDue is the newest instant that is due at now, x.Next if there is no later one.
func (x *Schedule) newestDue(c *cron.Schedule, now int64) int64 {
	newest, ok := before(c, now+1)
	// With jitter, what is nominally past may be still to come.
	for range 64 {
		if !ok || newest <= x.Next || x.due(newest) <= now {
			break
		}
		newest, ok = before(c, newest)
	}
	if ok && newest > x.Next && x.due(newest) > now {
		newest, ok = before(c, now-x.Jitter.Microseconds()+1)
	}
	if !ok || newest < x.Next {
		return x.Next
	}
	return newest
}

// makeUp is the first of the newest MaxMakeUp instants from x.Next on.
func (x *Schedule) makeUp(c *cron.Schedule, newest int64) int64 {
	first := newest
	for range MaxMakeUp - 1 {
		earlier, ok := before(c, first)
		if !ok || earlier <= x.Next {
			return x.Next
		}
		first = earlier
	}
	return first
}

// pass records the instants from first on and before end as missed: the first ones singly,
// the rest as a row.
func (p *plan) pass(c *cron.Schedule, first, end int64, why string) {
	at := first
	for n := 0; n < singly && at < end; n++ {
		p.verdicts = append(p.verdicts, verdict{instant: at, count: 1, why: why})
		at = after(c, at)
	}
	if at >= end {
		return
	}
	last, _ := before(c, end) // at is one
	n, more := c.Count(time.UnixMicro(at), time.UnixMicro(last), countAtMost)
	p.verdicts = append(p.verdicts, verdict{instant: last, from: at, count: n + 1, more: more, why: why})
}

// show writes an instant for people and programs.
func show(us int64, loc *time.Location) string {
	return time.UnixMicro(us).In(loc).Format(time.RFC3339)
}
