package cron

import (
	"math"
	"time"
)

// span is a stretch of real time, up to end, in which the local clock runs at one
// offset from UTC.
type span struct {
	end    int64 // Unix seconds, the first that no longer belongs to it
	offset int64
}

// spanAt returns the stretch that t is in. Only its end is asked for: package time
// gives starts that may lie before an earlier change.
func (s *Schedule) spanAt(t int64) span {
	at := time.Unix(t, 0).In(s.loc)
	_, offset := at.Zone()
	_, end := at.ZoneBounds()
	if end.IsZero() {
		return span{math.MaxInt64, int64(offset)}
	}
	if u := end.Unix(); u > t {
		return span{u, int64(offset)}
	}
	// Where a rule goes on for ever, package time takes each year for 365 days: on the
	// last day of a leap year the end lies behind. No rule changes on that day.
	return span{floorDiv(t, daySeconds)*daySeconds + daySeconds, int64(offset)}
}

// maxOffset is more than any local clock was ever off UTC (Manila, 1844: almost 16 h).
const maxOffset = 17 * hourSeconds

// next returns the first firing later than after, in Unix seconds.
//
// It goes from one change of the clock to the next and asks in each stretch for
// the first wall time that matches. high is the highest the clock has shown so
// far: a fixed schedule looks only above it, and so fires once where the clock
// goes back.
func (s *Schedule) next(after int64) (int64, bool) {
	after = max(after, firstUnix)
	if after >= lastUnix {
		return 0, false
	}
	fixed := !s.hour.wild && !s.minute.wild && !s.second.wild
	in, high := s.climb(after)
	from := after + in.offset + 1
	if fixed {
		from = high + 1
	}
	for {
		w, ok := s.nextWall(from)
		if !ok {
			return 0, false
		}
		if u := w - in.offset; u < in.end {
			return u, u <= lastUnix
		}
		// Not before this change of the clock. If it is far off, go there: nothing fires
		// in between, as long as no clock can go back to before from on the way.
		if near := w - maxOffset; near > in.end && (fixed || in.end-maxOffset > from) {
			in, high = s.climb(near)
			from = w
			continue
		}
		change := in.end
		high = max(high, change-1+in.offset)
		in = s.spanAt(change)
		shown := change + in.offset // by the clock, just after the change
		if shown > high+1 && !s.hour.wild && s.lost(high+1, shown, fixed) {
			return change, change <= lastUnix
		}
		if from = shown; fixed {
			from = max(shown, high+1)
		}
	}
}

// climb returns the stretch that t is in, and the highest the local clock has
// shown up to t. A clock that went back more than two days and a bit ago has
// caught up.
func (s *Schedule) climb(t int64) (span, int64) {
	in := s.spanAt(t - 3*maxOffset)
	high := int64(math.MinInt64)
	for in.end <= t {
		high = max(high, in.end-1+in.offset)
		in = s.spanAt(in.end)
	}
	return in, max(high, t+in.offset)
}

// lost reports whether a jump of the clock over the wall times from ≤ w < to took
// something that has to be made up: a time of a fixed schedule, or all that a
// mixed one had to do in an hour. What falls on a date that the jump swallowed
// whole is not made up.
func (s *Schedule) lost(from, to int64, fixed bool) bool {
	for w := from; ; {
		var ok bool
		if w, ok = s.nextWall(w); !ok || w >= to {
			return false
		}
		if date := floorDiv(w, daySeconds) * daySeconds; date >= from && date+daySeconds <= to {
			w = date + daySeconds
			continue
		}
		hour := floorDiv(w, hourSeconds) * hourSeconds
		if fixed || hour+int64(s.firstInHour()) >= from && hour+int64(s.lastInHour()) < to {
			return true
		}
		w = hour + hourSeconds
	}
}
