package loops

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/cron"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/trigger"
)

// The states of a loop, as its list shows them.
const (
	Well     = "ok"
	Idle     = "idle"     // it has not run yet
	Ailing   = "failing"  // its last run failed, or is in doubt
	Dark     = "dark"     // its schedule has been quiet for more than three intervals
	Disabled = "disabled" // by somebody, until it is enabled again
	Off      = "off"      // by the configuration
)

// Status is a loop and how it does.
type Status struct {
	Loop
	Standing trigger.Standing
	Setting  Setting
	State    string
	Reason   string
	Last     *run.Record // the newest run; nil if there was none
	LastOK   int64       // when one came to a good end last; 0 for never
}

// maxRuns is how many of a loop's runs are looked at for its state.
const maxRuns = 50

// List returns all loops by name.
func (l *Loops) List(ctx context.Context) (out []Status, err error) {
	for _, name := range l.Names() {
		s, err := l.Get(ctx, name)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// Get returns one loop by its name, with or without "loop:" before it.
func (l *Loops) Get(ctx context.Context, name string) (s Status, err error) {
	name = strings.TrimPrefix(name, Owner+":")
	x, there := l.byName[name]
	if !there {
		return s, fault.New(fault.NotFound, "no loop is called %q", name).WithHint("the loops are %s", strings.Join(l.Names(), ", "))
	}
	s, err = l.d.StatusOf(ctx, l.targets, Kind, x.subject(), l.began)
	if s.State == Off {
		s.Reason = "loops." + name + ".enabled in the configuration"
	}
	s.Loop, s.Setting = x, l.set[name]
	return s, err
}

// StatusOf is how a target does whose runs are of a kind, less what it is. since is when
// the daemon began: what should have started before then is not held against it.
func (d Deps) StatusOf(ctx context.Context, targets Targets, kind, subject string, since int64) (s Status, err error) {
	err = d.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		s.Standing, err = targets.GetIn(ctx, q, subject)
		return err
	})
	if err != nil {
		return s, err
	}
	runs, err := d.Runs.List(ctx, run.Filter{Kind: kind, Key: subject, Limit: maxRuns})
	if err != nil {
		return s, err
	}
	s.State, s.Reason = Idle, ""
	for i := range runs {
		if s.Last == nil {
			s.Last = &runs[i]
		}
		if s.State == Idle {
			s.State, s.Reason = told(runs[i])
		}
		if runs[i].State == run.Completed {
			s.LastOK = runs[i].Ended
			break
		}
	}
	s.judge(since, time.UnixMicro(d.DB.Time()))
	return s, nil
}

// told is what the newest run that says something says of a loop.
func told(r run.Record) (state, reason string) {
	switch {
	case r.State == run.Completed:
		return Well, ""
	case r.State == run.Failed:
		return Ailing, r.Error
	case r.State == run.Uncertain:
		return Ailing, "in doubt: " + r.Error
	case r.State == run.Waiting && r.Wait == run.ForRetry:
		return Ailing, r.Error
	}
	return Idle, ""
}

// judge puts what stands above the last run: a loop that is kept from running, and one
// that should have run and did not.
func (s *Status) judge(since int64, now time.Time) {
	switch {
	case s.Standing.PausedBy != "":
		s.State, s.Reason = Disabled, "by "+s.Standing.PausedBy
		if s.Standing.Withheld > 0 {
			s.Reason += fmt.Sprintf("; %d triggers came since", s.Standing.Withheld)
		}
		return
	case s.Standing.Paused:
		s.State, s.Reason = Off, ""
		return
	case s.State == Ailing:
		return
	}
	from := time.UnixMicro(max(s.LastOK, since, s.Standing.Created))
	for _, plan := range s.Standing.Schedules() {
		if quiet(plan, from, now) {
			s.State = Dark
			s.Reason = fmt.Sprintf("no run has come to a good end since %s, and it should start %s", from.Format("2 January 15:04"), plan.When)
		}
	}
}

// intervals is how many of its intervals a schedule may be quiet for.
const intervals = 3

// quiet reports whether a schedule had three instants since from, the last of them more
// than a minute ago.
func quiet(plan trigger.Schedule, from, now time.Time) bool {
	zone := plan.Zone
	if zone == "" {
		zone = "Local"
	}
	loc, err := cron.Zone(zone)
	if err != nil {
		return false
	}
	s, err := cron.Parse(plan.When, loc)
	if err != nil || s.Once() {
		return false
	}
	passed := s.Anchored(from).Upcoming(from, intervals)
	return len(passed) == intervals && passed[intervals-1].Add(time.Minute).Before(now)
}
