package recipe

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/loops"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/trigger"
)

// Attempts of a run, and the pause before the next: 1 min, 2 min, at most 30.
const attempts = 3

func backoff(n int) time.Duration { return min(time.Minute<<min(n-1, 5), 30*time.Minute) }

// Work does the runs of recipes.
type Work struct {
	l      *Library
	kit    loops.Deps
	role   *policy.Role
	budget *budget.Budget
	schema func(tool string) json.RawMessage
}

// NewWork returns what does the runs of l's recipes, with a kit. role is what every recipe
// has; schema is that of a tool's input, nil if there is no such tool.
func NewWork(l *Library, kit loops.Deps, role *policy.Role, b *budget.Budget, schema func(tool string) json.RawMessage) *Work {
	return &Work{l: l, kit: kit, role: role, budget: b, schema: schema}
}

// Kind is the kind of a recipe's run.
func (w *Work) Kind() run.Kind {
	return run.Kind{Name: RunKind, Handle: w.handle, Attempts: attempts, Backoff: backoff, Knows: w.knows, Ended: w.kit.Ended(w.budget)}
}

// knows reports whether the definition of a run is there.
func (w *Work) knows(ctx context.Context, q db.Q, rec run.Record) (bool, error) {
	n := 0
	err := q.QueryRow(ctx, "SELECT count(*) FROM recipe_definitions WHERE hash = $1", rec.Definition).Scan(&n)
	return n > 0, err
}

// Actor is who a recipe works as. NotFound if no recipe is the subject.
func (w *Work) Actor(subject string) (loops.Actor, error) {
	name, is := strings.CutPrefix(subject, "recipe:")
	if is && !w.l.Loaded() { // what a file grants is not known yet
		return loops.Actor{Subject: subject, Role: w.role, Own: []policy.Rule{}}, nil
	}
	r := w.l.Current(name)
	if !is || r == nil {
		return loops.Actor{}, fault.New(fault.NotFound, "no recipe is called %q", strings.TrimPrefix(subject, Subject(""))).WithHint("ombud recipe list shows what there is")
	}
	return w.actor(r, r)
}

// actor is who works on a definition. What the file grants no longer is gone for a run
// that is under way too; where now is nil there is no file, and nothing is granted.
func (w *Work) actor(r *Recipe, now *Recipe) (loops.Actor, error) {
	who := loops.Actor{Subject: Subject(r.Name), Role: w.role, Own: []policy.Rule{}}
	for _, text := range r.Scopes() {
		s, err := scope.ParseRule(text)
		if err != nil {
			return who, err
		}
		if !slices.ContainsFunc(now.Scopes(), func(t string) bool { return scope.Must(t).Covers(s) }) {
			continue
		}
		who.Own = append(who.Own, policy.Rule{Scope: s, Effect: policy.Allow})
	}
	return who, nil
}

func (w *Work) handle(ctx context.Context, r *run.Run) (result []byte, err error) {
	rec := r.Record()
	x, err := w.l.Definition(ctx, rec.Definition)
	if err != nil {
		return nil, err
	}
	now := w.l.Current(x.Name)
	if !w.l.Loaded() { // what the files grant now is not known: it has what it began with
		now = x
	}
	who, err := w.actor(x, now)
	if err != nil {
		return nil, err
	}
	err = w.kit.Do(ctx, r, who, func(ctx context.Context, k *loops.Kit) (err error) {
		result, err = x.Run(ctx, &worked{Kit: k, r: r, schema: w.schema}, x.start(k.Trigger(), rec.Created))
		return err
	})
	return result, err
}

// start is a trigger as the steps see it.
func (r *Recipe) start(t trigger.Trigger, created int64) Start {
	zone := r.zone(t)
	s := Start{
		Kind: t.Kind, Name: t.Name, At: time.UnixMicro(t.At).In(zone), Event: t.Event, EventKind: t.EventKind, Payload: t.Payload,
		Now: time.UnixMicro(created).In(zone),
	}
	for _, src := range t.Label.Sources {
		if !src.Trusted() {
			s.From = strings.TrimPrefix(string(src), string(label.Untrusted("")))
			if s.From == "" {
				s.From = "others"
			}
		}
	}
	return s
}

// zone is that of the schedule that started a run, or of the first there is.
func (r *Recipe) zone(t trigger.Trigger) *time.Location {
	n := 0
	name := ""
	for _, on := range r.On {
		if on.Schedule == nil {
			continue
		}
		if n++; n == 1 || t.Kind == trigger.BySchedule && t.Name == strconv.Itoa(n) {
			name = on.Schedule.Zone
		}
	}
	if zone, err := time.LoadLocation(cmpZone(name)); err == nil {
		return zone
	}
	return time.Local
}

// worked is the kit of a run, with what recipes alone do.
type worked struct {
	*loops.Kit
	r      *run.Run
	schema func(tool string) json.RawMessage
}

var _ Kit = (*worked)(nil)

func (w *worked) HTTP(ctx context.Context, step string, r Request) (Response, error) {
	res, err := w.Kit.HTTP(ctx, step, loops.HTTPRequest{Method: r.Method, URL: r.URL, Headers: r.Headers, Body: r.Body})
	return Response(res), err
}

func (w *worked) Tool(ctx context.Context, step, name string, input json.RawMessage) (string, error) {
	return w.Kit.Tool(ctx, step, name, Fit(input, w.schema(name)))
}

func (w *worked) Start(ctx context.Context, step, target string) error {
	return w.RunLoop(ctx, step, target)
}

func (w *worked) Unwinding(err error) bool { return run.Unwinding(err) }

// Parallel lets branches work side by side. In a further attempt of the run branches that
// failed in an earlier one are begun again, under another name.
func (w *worked) Parallel(ctx context.Context, step, how string, quorum int, branches []Strand) ([]Ended, error) {
	join := map[string]run.Join{"all": run.JoinAll, "all-settled": run.JoinAllSettled, "first": run.JoinFirst, "quorum": run.JoinQuorum(quorum)}[how]
	list := make([]run.Branch, len(branches))
	for i, b := range branches {
		list[i] = run.Branch{Name: b.Name, Do: b.Do}
	}
	for try := 0; ; try++ {
		name := step
		if try > 0 {
			name += "~" + strconv.Itoa(try)
		}
		_, before := w.r.Recorded(name)
		outs, err := w.r.Parallel(ctx, name, join, list...)
		if err != nil && before && try < w.r.Record().Attempt && !run.Unwinding(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return endings(branches, outs), nil
	}
}

func endings(branches []Strand, outs []run.Outcome) []Ended {
	ended := make([]Ended, len(outs))
	for i, o := range outs {
		ended[i] = Ended{Name: branches[i].Name, State: "done", Result: o.Result}
		if o.State != run.Done {
			ended[i].State = "failed"
			if fault.Is(o.Err, fault.Cancelled) {
				ended[i].State = "cancelled"
			}
			ended[i].Error = "it did not end well and left no error"
			if o.Err != nil {
				ended[i].Error = o.Err.Error()
			}
		}
	}
	return ended
}
