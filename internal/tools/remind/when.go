package remind

import (
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/tool"
)

// zoneOf returns a zone by name, the operator's for none.
func (t *Tools) zoneOf(name string) (*time.Location, error) {
	if name == "" {
		return t.zone, nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		return nil, fault.New(fault.Invalid, "there is no time zone %s; zones are named like Europe/Stockholm or UTC", tool.Show(name))
	}
	return zone, nil
}

// zoneNamed is the zone of a stored reminder; one that is gone from the tables
// since is shown in UTC.
func zoneNamed(name string) *time.Location {
	zone, err := time.LoadLocation(name)
	if err != nil {
		return time.UTC
	}
	return zone
}

// instant is when a reminder is due: later than now and at most ten years away.
func instant(in setInput, now time.Time, zone *time.Location) (time.Time, error) {
	const years = "a reminder can be at most ten years away"
	if in.At == "" {
		if in.InSeconds > int64(maxAhead/time.Second) {
			return time.Time{}, fault.New(fault.Invalid, years)
		}
		return now.Add(time.Duration(in.InSeconds) * time.Second), nil
	}
	at, err := parse(in.At, zone)
	switch {
	case err != nil:
		return at, err
	case !at.After(now):
		return at, fault.New(fault.Invalid, "%s is in the past: it is %s now", show(at, zone), show(now, zone))
	case at.After(now.Add(maxAhead)):
		return at, fault.New(fault.Invalid, years)
	}
	return at, nil
}

// local are the forms of a time without an offset.
var local = []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04"}

// parse reads a time with its offset, or one on the clocks of zone. A time the
// clocks skip is refused; of one they show twice the first is meant.
func parse(s string, zone *time.Location) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return at, nil
	}
	for _, form := range local {
		wall, err := time.ParseInLocation(form, s, time.UTC)
		if err != nil {
			continue
		}
		// The zone's offsets around that day: the clock shows wall at wall minus
		// one of them. The larger offset gives the earlier instant.
		_, before := wall.AddDate(0, 0, -1).In(zone).Zone()
		_, after := wall.AddDate(0, 0, 1).In(zone).Zone()
		for _, offset := range []int{max(before, after), min(before, after)} {
			at := wall.Add(-time.Duration(offset) * time.Second).In(zone)
			if at.Format(form) == wall.Format(form) {
				return at, nil
			}
		}
		return time.Time{}, fault.New(fault.Invalid, "the clocks of %s skip %s: they are put forward then", zone, tool.Show(s))
	}
	return time.Time{}, fault.New(fault.Invalid, "%s is not a time; write it like 2026-03-04T17:00:00+01:00", tool.Show(s))
}

func show(at time.Time, zone *time.Location) string {
	return at.In(zone).Format("Monday 2 January 2006 at 15:04:05 MST")
}
