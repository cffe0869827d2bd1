package schedule

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/cron"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/label"
)

// changed is the payload of schedule.added, .changed, .paused, .resumed and .removed.
type changed struct {
	Name  string `json:"name,omitempty"`
	Owner string `json:"owner"`
	When  string `json:"when"`
	Zone  string `json:"zone"`
	Next  string `json:"next,omitempty"`
	Anew  bool   `json:"anew,omitempty"` // it inherits nothing: the rule is another
}

func (s *Schedules) tell(ctx context.Context, tx *db.Tx, verb, by string, x *Schedule, anew bool) error {
	c := changed{Name: x.Name, Owner: x.Owner, When: x.When, Zone: x.Zone, Anew: anew}
	if x.State == Active && x.Next != Never {
		c.Next = show(x.Next, s.rules.location(x))
	}
	_, err := s.log.AppendTx(ctx, tx, eventlog.New{Stream: streamOf(x.ID), Kind: "schedule." + verb, Actor: by, Data: c, Expect: eventlog.Any})
	return err
}

// names are what schedules can be called.
var names = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$`)

// owners are who can own one.
var owners = regexp.MustCompile(`^(operator|(agent|recipe|loop):[A-Za-z0-9][A-Za-z0-9._-]{0,63})$`)

// splitName tells OWNER/NAME apart; a plain name is the operator's.
func splitName(text string) (owner, name string) {
	if o, n, ok := strings.Cut(text, "/"); ok {
		return o, n
	}
	return Operator, text
}

// check fills in what spec leaves out, and refuses what could not be done.
func check(spec Spec) (Spec, *cron.Schedule, string, error) {
	bad := func(format string, args ...any) (Spec, *cron.Schedule, string, error) {
		return spec, nil, "", fault.New(fault.Invalid, format, args...)
	}
	if spec.Zone == "" {
		spec.Zone = localZone
	}
	if spec.Missed == "" {
		spec.Missed = Once
	}
	if spec.Overlap == "" {
		spec.Overlap = OverlapSkip
		if spec.Missed == All {
			spec.Overlap = OverlapQueue // else the first would keep the rest from being made up for
		}
	}
	switch {
	case spec.Grace == 0:
		spec.Grace = DefaultGrace
	case spec.Grace < 0:
		spec.Grace = -time.Microsecond
	}
	spec.Starts.Say = strings.TrimSpace(guard.CleanText(spec.Starts.Say))
	if spec.Starts.Label.Sources == nil {
		spec.Starts.Label = label.Of(label.Operator, label.OperatorOnly)
	}
	c, rule, err := read(spec.When, spec.Zone)
	if err != nil {
		return spec, nil, "", err
	}
	switch {
	case !owners.MatchString(spec.Owner):
		return bad("%q cannot own a schedule", spec.Owner)
	case spec.Name != "" && !names.MatchString(spec.Name):
		return bad("%q is no name of a schedule: it has 1 to 64 letters, digits and . _ : -", spec.Name)
	case strings.HasPrefix(spec.Name, "sch_"):
		return bad("a name cannot begin as an id does: %q", spec.Name)
	case !slices.Contains([]Missed{Once, Skip, All}, spec.Missed):
		return bad("%q says nothing about missed instants: it is once, skip or all", spec.Missed)
	case spec.Overlap != OverlapSkip && spec.Overlap != OverlapQueue:
		return bad("%q says nothing about overlap: it is skip or queue", spec.Overlap)
	case spec.Grace > maxGrace:
		return bad("the grace is at most %d days", int(maxGrace.Hours())/24)
	case spec.Jitter < 0 || spec.Jitter > maxJitter:
		return bad("the jitter is from 0 to %d h", int(maxJitter.Hours()))
	case c.Period() > 0 && spec.Jitter >= c.Period():
		return bad("the jitter is as long as the period, so instants would overtake each other")
	case spec.Starts.Target != "" && (spec.Starts.Target != spec.Owner || spec.Starts.Say != ""):
		return bad("a schedule starts its owner or says something, not %q", spec.Starts.Target)
	case spec.Starts.Say == "" && spec.Starts.Target == "":
		return bad("a schedule says something, and this one has no text")
	case len(spec.Starts.Say) > maxSay:
		return bad("the text has %d bytes; at most %d are taken", len(spec.Starts.Say), maxSay)
	}
	return spec, c, rule, nil
}

// start makes a rule count from now, and refuses one that would never fire.
func (x *Schedule) start(c *cron.Schedule, rule string, now int64) error {
	x.rule, x.Anchor, x.Settled = rule, now, now
	x.Last, x.FiredCount, x.MissedCount = Last{}, 0, 0
	x.Next = after(c.Anchored(time.UnixMicro(now)), now)
	x.FireAt = x.due(x.Next)
	if x.Next == Never {
		err := fault.New(fault.Invalid, "schedule %q would never fire: no instant of it is left", x.When)
		if c.Once() {
			return err.WithHint("it is %s now", show(now, c.Location()))
		}
		return err
	}
	if x.State != Paused {
		x.State = Active
	}
	return nil
}

// Add adds a schedule. Conflict if its owner has one of that name.
func (s *Schedules) Add(ctx context.Context, spec Spec, by string) (x Schedule, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		x, err = s.AddTx(ctx, tx, spec, by)
		return err
	})
	return x, err
}

// AddTx is Add as part of tx.
func (s *Schedules) AddTx(ctx context.Context, tx *db.Tx, spec Spec, by string) (Schedule, error) {
	spec, c, rule, err := check(spec)
	if err != nil {
		return Schedule{}, err
	}
	x := Schedule{ID: id.New("sch"), Spec: spec, State: Active, Created: s.now()}
	if x.Name == "" {
		x.Name = x.ID
	}
	if err := x.start(c, rule, s.now()); err != nil {
		return Schedule{}, err
	}
	found, err := s.query(ctx, tx, "key = $1", s.key(x.Owner, x.Name))
	if err != nil {
		return Schedule{}, err
	}
	if len(found) > 0 {
		return Schedule{}, fault.New(fault.Conflict, "there is a schedule %s already (%s)", x.Name, found[0].ID).
			WithHint("replace it, or take another name")
	}
	if err := s.insert(ctx, tx, &x); err != nil {
		return Schedule{}, err
	}
	return x, s.tell(ctx, tx, "added", by, &x, false)
}

// Put adds a schedule, or makes the one its owner has by that name what spec says. If
// its rule is another one it begins anew; else it stays where it is.
func (s *Schedules) Put(ctx context.Context, spec Spec, by string) (x Schedule, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		x, err = s.PutTx(ctx, tx, spec, by)
		return err
	})
	return x, err
}

// PutTx is Put as part of tx.
func (s *Schedules) PutTx(ctx context.Context, tx *db.Tx, spec Spec, by string) (Schedule, error) {
	if spec.Name == "" {
		return s.AddTx(ctx, tx, spec, by)
	}
	found, err := s.query(ctx, tx, "key = $1", s.key(spec.Owner, spec.Name))
	if err != nil {
		return Schedule{}, err
	}
	if len(found) == 0 {
		return s.AddTx(ctx, tx, spec, by)
	}
	spec, c, rule, err := check(spec)
	if err != nil {
		return Schedule{}, err
	}
	x := found[0]
	if x.Problem == nil && x.rule == rule && reflect.DeepEqual(x.Spec, spec) {
		return x, nil
	}
	anew := x.Problem != nil || x.rule != rule
	x.Spec, x.Problem = spec, nil
	if anew {
		if err := x.start(c, rule, s.now()); err != nil {
			return Schedule{}, err
		}
	} else {
		x.FireAt = x.due(x.Next)
	}
	if err := s.save(ctx, tx, &x); err != nil {
		return Schedule{}, err
	}
	return x, s.tell(ctx, tx, "changed", by, &x, anew)
}

// ReplaceTx makes the schedules of an owner the given ones, by their names, which all
// have one. Those that stay the same are not touched; what a person paused stays paused.
func (s *Schedules) ReplaceTx(ctx context.Context, tx *db.Tx, owner string, specs []Spec, by string) error {
	keep := map[string]bool{}
	for _, spec := range specs {
		if spec.Owner != owner || spec.Name == "" || keep[spec.Name] {
			return fault.New(fault.Invalid, "the schedules of %s need a name of their own each: %q", owner, spec.Name)
		}
		keep[spec.Name] = true
		if _, err := s.PutTx(ctx, tx, spec, by); err != nil {
			return fmt.Errorf("schedule %q: %w", spec.Name, err)
		}
	}
	all, err := s.query(ctx, tx, "owner = $1 ORDER BY seq", owner)
	if err != nil {
		return err
	}
	for _, x := range all {
		if keep[x.Name] {
			continue
		}
		if err := s.removeTx(ctx, tx, x, by); err != nil {
			return err
		}
	}
	return nil
}

// change runs fn on one schedule in a transaction.
func (s *Schedules) change(ctx context.Context, name string, fn func(ctx context.Context, tx *db.Tx, x *Schedule) error) (x Schedule, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if x, err = s.GetIn(ctx, tx, name); err != nil {
			return err
		}
		return fn(ctx, tx, &x)
	})
	return x, err
}

// Remove removes a schedule; its events stay.
func (s *Schedules) Remove(ctx context.Context, name, by string) (Schedule, error) {
	return s.change(ctx, name, func(ctx context.Context, tx *db.Tx, x *Schedule) error { return s.removeTx(ctx, tx, *x, by) })
}

// RemoveTx is Remove as part of tx.
func (s *Schedules) RemoveTx(ctx context.Context, tx *db.Tx, name, by string) error {
	x, err := s.GetIn(ctx, tx, name)
	if err != nil {
		return err
	}
	return s.removeTx(ctx, tx, x, by)
}

func (s *Schedules) removeTx(ctx context.Context, tx *db.Tx, x Schedule, by string) error {
	n, err := tx.Exec(ctx, "DELETE FROM schedules WHERE id = $1 AND version = $2", x.ID, x.version)
	if err == nil && n == 0 {
		err = moved(x.ID)
	}
	if err != nil {
		return err
	}
	return s.tell(ctx, tx, "removed", by, &x, false)
}

// Pause keeps a schedule from firing. The instants meanwhile are not missed: nobody wants
// them. Pausing a paused one does nothing.
func (s *Schedules) Pause(ctx context.Context, name, by string) (Schedule, error) {
	return s.change(ctx, name, func(ctx context.Context, tx *db.Tx, x *Schedule) error { return s.pauseTx(ctx, tx, x, by) })
}

// PauseTx is Pause as part of tx.
func (s *Schedules) PauseTx(ctx context.Context, tx *db.Tx, name, by string) error {
	x, err := s.GetIn(ctx, tx, name)
	if err != nil {
		return err
	}
	return s.pauseTx(ctx, tx, &x, by)
}

func (s *Schedules) pauseTx(ctx context.Context, tx *db.Tx, x *Schedule, by string) error {
	switch x.State {
	case Paused:
		return nil
	case Done:
		return fault.New(fault.Conflict, "schedule %s has no instant left", x.title())
	}
	x.State = Paused
	return s.moveTx(ctx, tx, "paused", by, x)
}

// Resume lets a paused schedule go on, with the first instant from now. Conflict if none
// is left.
func (s *Schedules) Resume(ctx context.Context, name, by string) (Schedule, error) {
	return s.change(ctx, name, func(ctx context.Context, tx *db.Tx, x *Schedule) error {
		if x.State != Paused {
			return nil
		}
		if x.Problem != nil {
			return x.Problem
		}
		c, err := s.rules.of(x)
		if err != nil {
			return err
		}
		now := max(s.now(), x.Settled)
		next := after(c, now)
		if next == Never {
			return fault.New(fault.Conflict, "schedule %s has no instant left", x.title()).WithHint("ombud schedule rm %s", x.title())
		}
		x.State, x.Settled, x.Next, x.FireAt = Active, now, next, x.due(next)
		return s.moveTx(ctx, tx, "resumed", by, x)
	})
}

func (s *Schedules) moveTx(ctx context.Context, tx *db.Tx, verb, by string, x *Schedule) error {
	ok, err := s.step(ctx, tx, x)
	if err == nil && !ok {
		err = moved(x.ID)
	}
	if err != nil {
		return err
	}
	tx.Notify(topic)
	return s.tell(ctx, tx, verb, by, x, false)
}

// Run fires a schedule now, whatever its state. Its instants stay as they are. The run
// is what was started.
func (s *Schedules) Run(ctx context.Context, name, by string) (x Schedule, err error) {
	if err := s.opt.Held(); err != nil {
		return x, err
	}
	return s.change(ctx, name, func(ctx context.Context, tx *db.Tx, x *Schedule) error {
		if x.Problem != nil {
			return x.Problem
		}
		now, loc := s.now(), s.rules.location(x)
		j := s.job(x, loc, verdict{instant: now})
		j.Outcome = ByHand
		evs, err := s.log.AppendTx(ctx, tx, eventlog.New{Stream: streamOf(x.ID), Kind: KindJob, Actor: by, Data: j, Expect: eventlog.Any})
		if err != nil {
			return err
		}
		run, err := s.fire(ctx, tx, Firing{Schedule: *x, At: time.UnixMicro(now).In(loc), Kind: Manual, Event: evs[0].ID})
		if err != nil {
			return err
		}
		x.Last = Last{Outcome: ByHand, Instant: now, At: now, Run: run}
		return s.note(ctx, tx, x)
	})
}

// Overdue returns the schedules whose time has come and that have not fired, such as
// those of an instance that is held; the earliest first, at most limit.
func (s *Schedules) Overdue(ctx context.Context, limit int) ([]Schedule, error) {
	return s.due(ctx, s.now(), limit)
}

// SkipOverdue records what is due as missed, without firing, and returns how many
// schedules that were.
func (s *Schedules) SkipOverdue(ctx context.Context, why string) (n int, err error) {
	for {
		now := s.now()
		list, err := s.due(ctx, now, page)
		if err != nil || len(list) == 0 {
			return n, err
		}
		var batch []plan
		for _, x := range list {
			p := s.rules.planFor(x, now)
			for i := range p.verdicts {
				if p.verdicts[i].fires {
					p.verdicts[i].fires, p.verdicts[i].why = false, why
				}
			}
			batch = append(batch, p)
		}
		if err := s.settle(ctx, now, batch); err != nil {
			return n, err
		}
		n += len(batch)
	}
}

// Wake makes the loop look now: nothing holds it any more.
func (s *Schedules) Wake() { s.db.Wake(topic) }
