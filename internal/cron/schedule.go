package cron

import (
	"time"
)

// kind says what a schedule is made of.
type kind int

const (
	fields kind = iota // calendar fields
	every              // a period from an anchor
	once               // one instant
)

// lastUnix is the last second of the year 9999: later instants have no RFC 3339 text.
const lastUnix = 253402300799

// firstUnix is the first second of the year 0. Nobody asks what came before.
const firstUnix = -62167219200

// Schedule says when something is due. It is immutable and safe for concurrent use.
type Schedule struct {
	kind  kind
	loc   *time.Location
	zoned bool // the text names its zone

	second, minute, hour, day, month, weekday field

	period int64     // every: in seconds
	anchor time.Time // every: instants are anchor + k·period, k ≥ 1
	at     time.Time // once
	notes  []string
}

// Location returns the zone whose clock the schedule follows.
func (s *Schedule) Location() *time.Location { return s.loc }

// Notes returns what in the text probably means something else than its author
// thought. It is legal all the same.
func (s *Schedule) Notes() []string { return append([]string(nil), s.notes...) }

// Once reports whether the schedule fires a single time.
func (s *Schedule) Once() bool { return s.kind == once }

// Period returns the interval of an @every schedule, 0 of any other.
func (s *Schedule) Period() time.Duration { return time.Duration(s.period) * time.Second }

// Anchored returns the schedule with its periods counted from t, to the
// microsecond: the first instant is t plus one period. Only @every looks at it;
// without an anchor it counts from the Unix epoch.
func (s *Schedule) Anchored(t time.Time) *Schedule {
	out := *s
	out.anchor = t.Truncate(time.Microsecond)
	return &out
}

// Next returns the first instant later than after, in the schedule's zone, and
// false if there is none.
func (s *Schedule) Next(after time.Time) (time.Time, bool) {
	switch s.kind {
	case once:
		return s.show(s.at, s.at.After(after))
	case every:
		t, ok := s.tick(s.ticksUntil(after) + 1)
		return s.show(t, ok && t.After(after))
	}
	u, ok := s.next(after.Unix())
	return s.show(time.Unix(u, 0), ok)
}

// Prev returns the last instant earlier than before, and false if there is none.
// It takes time in the logarithm of the distance, however dense the schedule.
func (s *Schedule) Prev(before time.Time) (time.Time, bool) {
	switch s.kind {
	case once:
		return s.show(s.at, s.at.Before(before))
	case every:
		t, ok := s.tick(s.ticksUntil(before.Add(-1)))
		return s.show(t, ok)
	}
	end := before.Unix()
	if before.Nanosecond() > 0 {
		end++
	}
	u, ok := s.prev(min(end, lastUnix+1))
	return s.show(time.Unix(u, 0), ok)
}

// Upcoming returns the first n instants later than after, fewer if there are no more.
func (s *Schedule) Upcoming(after time.Time, n int) []time.Time {
	var out []time.Time
	for len(out) < n {
		t, ok := s.Next(after)
		if !ok {
			break
		}
		out, after = append(out, t), t
	}
	return out
}

// Between returns the first limit instants later than from and not later than to,
// and whether there are more: with from the last instant that fired and to the
// present, those that were missed. For the newest alone ask [Schedule.Prev].
func (s *Schedule) Between(from, to time.Time, limit int) (instants []time.Time, more bool) {
	for {
		t, ok := s.Next(from)
		if !ok || t.After(to) {
			return instants, false
		}
		if len(instants) >= limit {
			return instants, true
		}
		instants, from = append(instants, t), t
	}
}

// Count returns how many instants are later than from and not later than to, up
// to limit, and whether there are more.
func (s *Schedule) Count(from, to time.Time, limit int) (n int, more bool) {
	if s.kind == every {
		total := max(0, s.ticksUntil(to)-s.ticksUntil(from))
		return int(min(total, int64(limit))), total > int64(limit)
	}
	for {
		t, ok := s.Next(from)
		if !ok || t.After(to) {
			return n, false
		}
		if n >= limit {
			return n, true
		}
		n, from = n+1, t
	}
}

// show puts t into the schedule's zone, unless its year there has five digits:
// such a time has no RFC 3339 text.
func (s *Schedule) show(t time.Time, ok bool) (time.Time, bool) {
	if !ok {
		return time.Time{}, false
	}
	if in := t.In(s.loc); in.Year() <= 9999 {
		return in, true
	}
	return t.UTC(), true
}

// ticksUntil returns how many periods have ended at t. A time.Duration spans 292
// years, so the arithmetic is in seconds.
func (s *Schedule) ticksUntil(t time.Time) int64 {
	from := s.start()
	seconds := max(firstUnix, min(t.Unix(), lastUnix)) - from.Unix()
	if t.Nanosecond() < from.Nanosecond() {
		seconds--
	}
	return max(0, floorDiv(seconds, s.period))
}

// tick returns the kth instant of a period, k ≥ 1.
func (s *Schedule) tick(k int64) (time.Time, bool) {
	from := s.start()
	u := from.Unix() + k*s.period
	return time.Unix(u, int64(from.Nanosecond())), k >= 1 && u <= lastUnix
}

func (s *Schedule) start() time.Time {
	if s.anchor.IsZero() {
		return time.Unix(0, 0)
	}
	return s.anchor
}

// prevWindow bounds how far back the search for an earlier instant goes. The
// rarest schedule is a leap day: eight years around 1900 and 2100, twice that
// where a zone lost one.
const prevWindow = 40 * 366 * daySeconds

// prev returns the last firing before end: it widens a window until something
// fires in it, then halves it.
func (s *Schedule) prev(end int64) (int64, bool) {
	var last int64
	for span := int64(64); ; span *= 8 {
		u, ok := s.next(end - span - 1)
		if ok && u < end {
			last = u
			break
		}
		if span > prevWindow {
			return 0, false
		}
	}
	for {
		u, ok := s.next(last)
		if !ok || u >= end {
			return last, true
		}
		last = u
		middle := last + (end-last)/2
		if u, ok := s.next(middle - 1); ok && u < end {
			last = u
		} else {
			end = middle
		}
	}
}
