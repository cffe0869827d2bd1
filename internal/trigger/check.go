package trigger

import (
	"regexp"
	"strings"

	"github.com/ombud-run/ombud/internal/cron"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
)

// names are what targets can be called: their owner's word and a name.
var names = regexp.MustCompile(`^[a-z]{1,16}:[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// kinds are what can be listened to: a kind of event, all with a beginning, or all.
var kinds = regexp.MustCompile(`^(\*|[a-z][a-z0-9_]*(\.[a-z0-9_]+)*(\.\*)?)$`)

// Limits of a target.
const (
	maxOn    = 32
	maxKinds = 32
	maxWhere = 32
)

// check refuses a target that could not be started as it says. An owner is a word, with a
// slash and what it owns of the word's targets behind it if there are several of them.
func check(owner string, x Target) error {
	owner, _, _ = strings.Cut(owner, "/")
	bad := func(format string, args ...any) error {
		return fault.New(fault.Invalid, x.Name+": "+format, args...)
	}
	switch {
	case !names.MatchString(x.Name) || !strings.HasPrefix(x.Name, owner+":"):
		return fault.New(fault.Invalid, "%q is no name of a target of %s: it is %s: and 1 to 64 letters, digits and . _ -", x.Name, owner, owner)
	case x.RunKind == "":
		return bad("it does not say what a run of it is")
	case x.Busy != run.Queue && x.Busy != run.Coalesce && x.Busy != run.Skip:
		return bad("%q says nothing about arrivals while it is busy: it is queue, coalesce or skip", x.Busy)
	case len(x.On) > maxOn:
		return bad("it has %d triggers; the most is %d", len(x.On), maxOn)
	}
	for _, on := range x.On {
		if err := on.check(); err != nil {
			return bad("%w", err)
		}
	}
	return nil
}

func (on On) check() error {
	set := 0
	for _, is := range []bool{on.Schedule != nil, on.Event != nil, on.Webhook != nil, on.Timer, on.Manual} {
		if is {
			set++
		}
	}
	if set != 1 {
		return fault.New(fault.Invalid, "a trigger is exactly one of schedule, event, webhook, timer and manual")
	}
	switch {
	case on.Event != nil:
		return on.Event.check()
	case on.Webhook != nil:
		return on.Webhook.check()
	case on.Schedule != nil:
		zone := on.Schedule.Zone
		if zone == "" {
			zone = "Local"
		}
		loc, err := cron.Zone(zone)
		if err == nil {
			_, err = cron.Parse(on.Schedule.When, loc)
		}
		return err
	}
	return nil
}
