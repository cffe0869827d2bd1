package cron

import "math/bits"

const (
	daySeconds  = 24 * 60 * 60
	hourSeconds = 60 * 60
)

// A wall time is what a local clock shows, as seconds since it showed 1970-01-01
// 00:00:00: a calendar without a zone, in which every day has 24 hours.

// nextWall returns the first wall time from w on that the fields match.
func (s *Schedule) nextWall(w int64) (int64, bool) {
	day := floorDiv(w, daySeconds)
	from := int(w - day*daySeconds)
	found, ok := s.nextDay(day)
	if !ok {
		return 0, false
	}
	if found == day {
		if tod, ok := s.nextTime(from); ok {
			return day*daySeconds + int64(tod), true
		}
		if found, ok = s.nextDay(day + 1); !ok {
			return 0, false
		}
	}
	tod, _ := s.nextTime(0)
	return found*daySeconds + int64(tod), true
}

// nextTime returns the first matching second of the day from tod on.
func (s *Schedule) nextTime(tod int) (int, bool) {
	h, m, sec := tod/hourSeconds, tod/60%60, tod%60
	if s.hour.has(h) {
		if s.minute.has(m) {
			if next, ok := s.second.from(sec); ok {
				return h*hourSeconds + m*60 + next, true
			}
		}
		if next, ok := s.minute.from(m + 1); ok {
			return h*hourSeconds + next*60 + s.second.first(), true
		}
	}
	next, ok := s.hour.from(h + 1)
	return next*hourSeconds + s.firstInHour(), ok
}

// firstInHour and lastInHour return what the fields match first and last in an hour.
func (s *Schedule) firstInHour() int { return s.minute.first()*60 + s.second.first() }
func (s *Schedule) lastInHour() int  { return s.minute.last()*60 + s.second.last() }

// nextDay returns the first matching day from day on, counted from 1970-01-01.
func (s *Schedule) nextDay(day int64) (int64, bool) {
	year, month, dom := civil(day)
	for year <= 9999+1 { // where UTC has 9999 a local clock may show 10000
		if !s.month.has(month) {
			next, ok := s.month.from(month + 1)
			if !ok {
				year, next = year+1, s.month.first()
			}
			month, dom = next, 1
			continue
		}
		first := days(year, month, 1)
		if m := s.daysOf(year, month, first) >> dom; m != 0 {
			return first + int64(dom+bits.TrailingZeros64(m)) - 1, true
		}
		if month, dom = month+1, 1; month > 12 {
			year, month = year+1, 1
		}
	}
	return 0, false
}

// daysOf returns the matching days of a month as bits 1 to 31. first is its first day.
func (s *Schedule) daysOf(year, month int, first int64) uint64 {
	all := uint64(1)<<(monthLength(year, month)+1) - 2
	if s.weekday.star {
		return s.day.mask & all
	}
	// Day 1 has weekday w; the days of weekday x are 1+(x-w mod 7) and each seventh after it.
	w := int(floorMod(first+4, 7)) // 1970-01-01 was a Thursday
	week := (s.weekday.mask | s.weekday.mask<<7) >> w & 0x7f
	byWeekday := (week | week<<7 | week<<14 | week<<21 | week<<28) << 1
	if s.day.star {
		return byWeekday & all
	}
	return (byWeekday | s.day.mask) & all
}

// can reports whether any date matches: 31 February does not.
func (s *Schedule) can() bool {
	if !s.weekday.star {
		return true
	}
	for month := 1; month <= 12; month++ {
		const leap = 2000
		if s.month.has(month) && s.day.first() <= monthLength(leap, month) {
			return true
		}
	}
	return false
}

func monthLength(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// days counts from 1970-01-01 to a date of the proleptic Gregorian calendar. Years
// begin in March here, so that the leap day is the last of its year.
func days(year, month, dom int) int64 {
	y := int64(year)
	if month <= 2 {
		y--
	}
	era := floorDiv(y, 400)
	inEra := y - era*400
	inYear := int64((153*((month+9)%12)+2)/5 + dom - 1)
	return era*146097 + inEra*365 + inEra/4 - inEra/100 + inYear - 719468
}

// civil is the inverse of days.
func civil(day int64) (year, month, dom int) {
	day += 719468
	era := floorDiv(day, 146097)
	inEra := day - era*146097
	y := (inEra - inEra/1460 + inEra/36524 - inEra/146096) / 365
	inYear := inEra - (365*y + y/4 - y/100)
	m := (5*inYear + 2) / 153
	dom = int(inYear - (153*m+2)/5 + 1)
	month = int((m+2)%12) + 1
	year = int(y + era*400)
	if month <= 2 {
		year++
	}
	return year, month, dom
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func floorMod(a, b int64) int64 { return a - floorDiv(a, b)*b }
