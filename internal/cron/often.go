package cron

import "time"

// Often reports whether two of the schedule's instants can be less than d apart, where d is
// a minute or less: an expression has the same seconds in each of its minutes.
func (s *Schedule) Often(d time.Duration) bool {
	next := s.Upcoming(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Second), 2)
	return len(next) == 2 && next[1].Sub(next[0]) < d
}
