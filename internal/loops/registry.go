package loops

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/trigger"
)

// Kind is the kind of a loop's runs, and Owner owns what starts them.
const (
	Kind  = "loop"
	Owner = "loop"
)

// Loop is a loop that is compiled in.
type Loop struct {
	Name        string // a-z, digits and dashes; its subject is loop:NAME
	Description string
	// Version grows when runs that are under way could not go on with the new Run: then
	// they wait for a version of ombud that has theirs.
	Version int
	On      []trigger.On
	Run     func(ctx context.Context, k *Kit) error
	Off     bool // until the configuration turns it on
	// Settings are those it knows, each with the values it can have; nil for any.
	Settings map[string][]string
}

// Setting is what the configuration says of a loop.
type Setting struct {
	Enabled *bool         // nil: as the loop says
	Timeout time.Duration // of one run's work; 0: the usual
	Values  map[string]string
}

// Attempts of a run, and the pause before the next: 1 min, 2 min, at most 30.
const attempts = 3

func backoff(n int) time.Duration { return min(time.Minute<<min(n-1, 5), 30*time.Minute) }

// Targets keeps what starts things.
type Targets interface {
	ReplaceTx(ctx context.Context, tx *db.Tx, owner string, targets []trigger.Target) error
	List(ctx context.Context, owner string) ([]trigger.Standing, error)
	GetIn(ctx context.Context, q db.Q, name string) (trigger.Standing, error)
}

var _ Targets = (*trigger.Triggers)(nil)

// Loops are the compiled-in loops of one daemon.
type Loops struct {
	d       Deps
	budget  *budget.Budget
	role    *policy.Role
	targets Targets
	byName  map[string]Loop
	set     map[string]Setting
	began   int64
}

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,40}$`)

// New returns the loops with their settings. role bounds all of them. Errors: Config if a
// setting is of no loop, or one that its loop does not know, Internal if a loop is not
// whole or there twice.
func New(d Deps, b *budget.Budget, role *policy.Role, targets Targets, all []Loop, set map[string]Setting) (*Loops, error) {
	l := &Loops{d: d, budget: b, role: role, targets: targets, byName: map[string]Loop{}, set: set, began: d.DB.Time()}
	for _, x := range all {
		if _, twice := l.byName[x.Name]; twice || !nameForm.MatchString(x.Name) || x.Run == nil || x.Description == "" || len(x.On) == 0 {
			return nil, fault.New(fault.Internal, "the loop %q is not whole, or there twice", x.Name)
		}
		l.byName[x.Name] = x
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		x, there := l.byName[name]
		if !there {
			return nil, fault.New(fault.Config, "loops.%s: no loop is called that", name).WithHint("the loops are %s", strings.Join(l.Names(), ", "))
		}
		if err := x.takes(set[name].Values); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// takes refuses settings that would have no effect.
func (x Loop) takes(values map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		can, known := x.Settings[name]
		switch {
		case !known && len(x.Settings) == 0:
			return fault.New(fault.Config, "loops.%s.set: the loop has no setting, so none is called %q", x.Name, name)
		case !known:
			return fault.New(fault.Config, "loops.%s.set: no setting is called %q", x.Name, name).
				WithHint("there are %s", strings.Join(slices.Sorted(maps.Keys(x.Settings)), ", "))
		case can != nil && !slices.Contains(can, values[name]):
			return fault.New(fault.Config, "loops.%s.set: %s cannot be %q", x.Name, name, values[name]).WithHint("it is one of %s", strings.Join(can, ", "))
		}
	}
	return nil
}

// Names are the names of the loops, in order.
func (l *Loops) Names() []string { return slices.Sorted(maps.Keys(l.byName)) }

// enabled says whether the configuration lets a loop run.
func (l *Loops) enabled(x Loop) bool {
	if on := l.set[x.Name].Enabled; on != nil {
		return *on
	}
	return !x.Off
}

func (x Loop) subject() string { return Owner + ":" + x.Name }

// definition is what a run of the loop is pinned to.
func (x Loop) definition() string { return x.subject() + "@v" + strconv.Itoa(max(1, x.Version)) }

// Kind is the kind of run that does a loop.
func (l *Loops) Kind() run.Kind {
	return run.Kind{Name: Kind, Handle: l.handle, Knows: l.knows, Attempts: attempts, Backoff: backoff, Ended: l.d.Ended(l.budget)}
}

// knows reports whether a run's loop is here, in the version it was started with.
func (l *Loops) knows(_ context.Context, _ db.Q, rec run.Record) (bool, error) {
	x, there := l.byName[strings.TrimPrefix(rec.Name, Owner+":")]
	return there && x.definition() == rec.Definition, nil
}

// Ended settles what a run with a kit leaves when it ends.
func (d Deps) Ended(b *budget.Budget) func(ctx context.Context, tx *db.Tx, rec run.Record) error {
	return func(ctx context.Context, tx *db.Tx, rec run.Record) error {
		if err := d.Approvals.WithdrawTx(ctx, tx, rec.ID, "the run has ended"); err != nil {
			return err
		}
		return b.SettleTx(ctx, tx, rec.ID)
	}
}

// StartTargets lets the triggers know the loops. It is called once, before anything fires.
func (l *Loops) StartTargets(ctx context.Context) error {
	var all []trigger.Target
	for _, name := range l.Names() {
		x := l.byName[name]
		all = append(all, trigger.Target{
			Name: x.subject(), RunKind: Kind, Definition: x.definition(), On: x.On, Busy: run.Queue, Paused: !l.enabled(x),
		})
	}
	return l.d.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return l.targets.ReplaceTx(ctx, tx, Owner, all) })
}

// Actor is who a loop works as. NotFound if no loop is the subject.
func (l *Loops) Actor(subject string) (Actor, error) {
	name, is := strings.CutPrefix(subject, Owner+":")
	x, there := l.byName[name]
	if !is || !there {
		return Actor{}, fault.New(fault.NotFound, "no loop is called %q", name).WithHint("the loops are %s", strings.Join(l.Names(), ", "))
	}
	set := l.set[x.Name]
	return Actor{Subject: subject, Role: l.role, Config: set.Values, Limits: Limits{Active: set.Timeout}}, nil
}

// handle is the handler of a loop's runs.
func (l *Loops) handle(ctx context.Context, r *run.Run) ([]byte, error) {
	rec := r.Record()
	who, err := l.Actor(rec.Name)
	if err != nil {
		return nil, err
	}
	return nil, l.d.Do(ctx, r, who, l.byName[strings.TrimPrefix(rec.Name, Owner+":")].Run)
}

// Do does a run with a kit, within its time. A panic of fn is an error of its own.
func (d Deps) Do(ctx context.Context, r *run.Run, who Actor, fn func(ctx context.Context, k *Kit) error) error {
	k, err := NewKit(ctx, d, r, who)
	if err != nil {
		return err
	}
	ctx, cancel := k.bounded(ctx)
	defer cancel()
	err = fn(ctx, k)
	if err == nil || run.Unwinding(err) {
		return err
	}
	if late := context.Cause(ctx); fault.Is(late, fault.Timeout) {
		return late
	}
	if hint := fault.HintOf(err); hint != "" {
		return fault.New(fault.ClassOf(err), "%s (%s)", err, hint)
	}
	return fmt.Errorf("%s: %w", who.Subject, err)
}
