package run

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// Branch is one of several pieces of work that go on side by side. Do works with the
// context it is given and names its steps so that they are unique in the run. Like a
// handler it is called again from its beginning after a crash or a wait.
type Branch struct {
	Name string // unique among its siblings
	Do   func(ctx context.Context) (json.RawMessage, error)
}

// Join says when parallel branches have come to a result.
type Join struct {
	need    int  // how many have to succeed; 0 for all
	settled bool // all have to end, well or not
}

// The joins.
var (
	JoinAll        = Join{}              // all have to succeed; the first failure decides
	JoinAllSettled = Join{settled: true} // all have to end; failures are told, not an error
	JoinFirst      = Join{need: 1}       // the first success decides
)

// JoinQuorum is decided by n successes, or when they cannot be reached any more.
func JoinQuorum(n int) Join { return Join{need: max(n, 1)} }

// lookAgain is how often branches that wait look while others work, should the hint
// not have come.
const lookAgain = 5 * time.Second

// Parallel lets branches work side by side and returns what each came to, in their
// order, with an error if the join has failed. A branch that waits does not keep the
// others; when all that are left wait, the run is parked for the first of what they
// wait for. When the join is decided the rest are cancelled: what they have under way
// comes to its end, the runs they wait for are cancelled, and their outcome is of
// class Cancelled.
func (r *Run) Parallel(ctx context.Context, step string, join Join, branches ...Branch) ([]Outcome, error) {
	p := &parallel{r: r, step: step, join: join, done: make(chan pass)}
	if err := p.lay(branches); err != nil {
		return nil, err
	}
	if s, ok := r.Recorded(step); ok {
		return p.outcomes(), s.outcome().Err
	}
	if settles(ctx) {
		return nil, firstOf(p.settle(ctx), errJoined)
	}
	if _, decided := r.Recorded(p.decision()); !decided {
		if err := p.work(ctx); err != nil {
			return nil, err
		}
	}
	_, failed := p.decide()
	if p.left() > 0 {
		if err := p.settle(ctx); err != nil {
			return nil, err
		}
	}
	if err := p.note(ctx, step, "join", p.left() == 0, result(failed)); err != nil {
		return nil, err
	}
	return p.outcomes(), failed
}

// parallel is one Parallel in one execution; only its caller's goroutine uses it.
type parallel struct {
	r       *Run
	step    string
	join    Join
	strands []*strand
	done    chan pass // not buffered: whoever starts a strand waits for it
	died    any       // what a branch panicked with
}

func (p *parallel) name(s *strand) string { return p.step + "/" + s.branch.Name }
func (p *parallel) decision() string      { return p.step + "/:decided" }

func (p *parallel) lay(branches []Branch) error {
	seen := map[string]bool{":decided": true}
	for _, b := range branches {
		if b.Name == "" || seen[b.Name] || b.Do == nil {
			return fault.New(fault.Invalid, "step %s: the branch %q has no name of its own", p.step, b.Name)
		}
		seen[b.Name] = true
		s := &strand{branch: b}
		if rec, ok := p.r.Recorded(p.name(s)); ok {
			out := rec.outcome()
			s.out = &out
		}
		p.strands = append(p.strands, s)
	}
	if p.join.need > len(branches) {
		return fault.New(fault.Invalid, "step %s: %d of %d branches cannot succeed", p.step, p.join.need, len(branches))
	}
	return nil
}

// decide reports whether the join has come to a result, and the error if it failed.
func (p *parallel) decide() (bool, error) {
	good, bad, total := 0, 0, len(p.strands)
	var failed error
	for _, s := range p.strands {
		switch {
		case s.out == nil:
		case s.out.State == Done:
			good++
		default:
			if bad++; failed == nil {
				failed = fault.New(fault.ClassOf(s.out.Err), "branch %s: %w", s.branch.Name, s.out.Err)
			}
		}
	}
	need := p.join.need
	if need == 0 {
		need = total
	}
	switch {
	case p.join.settled:
		return good+bad == total, nil
	case good >= need:
		return true, nil
	case total-bad >= need:
		return false, nil
	case p.join.need > 0:
		failed = fault.New(fault.ClassOf(failed), "%d of %d branches succeeded, %d had to: %w", good, total, need, failed)
	}
	return true, failed
}

// result is the outcome of a join.
func result(failed error) Outcome {
	if failed != nil {
		return Fail(failed)
	}
	return Succeed(json.RawMessage("null"))
}

func (p *parallel) left() (n int) {
	for _, s := range p.strands {
		if s.out == nil {
			n++
		}
	}
	return n
}

func (p *parallel) working() (n int) {
	for _, s := range p.strands {
		if s.working {
			n++
		}
	}
	return n
}

func (p *parallel) outcomes() []Outcome {
	out := make([]Outcome, 0, len(p.strands))
	for _, s := range p.strands {
		if s.out != nil {
			out = append(out, *s.out)
			continue
		}
		out = append(out, Fail(fault.New(fault.Cancelled, "%w", errJoined)))
	}
	return out
}

// note records something the coordinator has come to know.
func (p *parallel) note(ctx context.Context, name, kind string, lazy bool, out Outcome) error {
	spec := StepSpec{Name: name, Kind: kind, Policy: Policy{Kind: Repeatable}, Lazy: lazy}
	_, err := p.r.do(ctx, spec, func(context.Context) Outcome { return out })
	return err
}

// work calls the branches until the join is decided. It returns when none works any
// more; the error is one that unwinds the handler.
func (p *parallel) work(ctx context.Context) error {
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unwind := p.run(ctx, within)
	if unwind == nil && p.left() > 0 { // committed before a branch is stopped because of it
		_, failed := p.decide()
		unwind = p.note(ctx, p.decision(), "join", false, result(failed))
	}
	cancel(errJoined)
	for p.working() > 0 {
		last := <-p.done
		last.s.working = false
		if err := p.unwinds(ctx, last); unwind == nil {
			unwind = err
		}
	}
	if p.died != nil {
		panic(p.died) // where the handler runs
	}
	return unwind
}

// run is work until the decision.
func (p *parallel) run(ctx, within context.Context) error {
	woken, stop := p.r.e.db.Watch(topicOf(p.r.ID()))
	defer stop()
	for {
		if decided, _ := p.decide(); decided {
			return nil
		}
		waits, next := p.start(within)
		if p.working() == 0 {
			if err := p.r.parkFor(ctx, several(p.step, waits)); err != nil {
				return err
			}
			p.wake() // what one of them waits for came meanwhile
			continue
		}
		timer := time.NewTimer(next)
		select {
		case ended := <-p.done:
			if err := p.took(ctx, ended); err != nil {
				timer.Stop()
				return err
			}
		case <-woken:
			p.wake()
		case <-timer.C:
			p.wake()
		}
		timer.Stop()
	}
}

// start calls every branch that neither works, waits nor has ended. It returns what
// is waited for, and how long to wait before those are called again anyway.
func (p *parallel) start(ctx context.Context) (waits []wait, next time.Duration) {
	next = lookAgain
	now := p.r.e.db.Time()
	for _, s := range p.strands {
		if s.out == nil && !s.working && len(s.rests) == 0 {
			s.begin(context.WithValue(ctx, strandKey{}, s), p.done)
		}
		for _, w := range s.rests {
			if w.until != never {
				next = min(next, time.Duration(w.until-now)*time.Microsecond)
			}
		}
		waits = append(waits, s.rests...)
	}
	return waits, max(next, 0)
}

// wake has every branch that waits called again: it looks for itself.
func (p *parallel) wake() {
	for _, s := range p.strands {
		s.rests = nil
	}
}

// took takes in what a pass came to.
func (p *parallel) took(ctx context.Context, ended pass) error {
	s := ended.s
	s.working = false
	if err := p.unwinds(ctx, ended); err != nil {
		return err
	}
	if s.rests = s.waits; len(s.rests) > 0 {
		return nil
	}
	out := Succeed(ended.result)
	if ended.err != nil {
		out = Fail(ended.err)
	}
	s.out = &out
	return p.note(ctx, p.name(s), "branch", true, out)
}

// unwinds is the error of a pass that ends the whole execution.
func (p *parallel) unwinds(ctx context.Context, ended pass) error {
	if ended.panicked != nil {
		p.died = ended.panicked
		return errEnded
	}
	switch err := ended.err; {
	case err == nil || ended.s.resting() || errors.Is(err, errJoined):
		return nil
	case Unwinding(err), errors.Is(err, errCancelled), errors.Is(err, errEnded):
		return err
	}
	return context.Cause(ctx)
}

// settle closes what branches that are not needed any more left open in a crash, and
// cancels the runs they wait for: they are called once more and begin nothing.
func (p *parallel) settle(ctx context.Context) error {
	for _, s := range p.strands {
		if s.out != nil {
			continue
		}
		last := &strand{branch: s.branch, settling: true}
		_, err := last.branch.Do(context.WithValue(ctx, strandKey{}, last))
		if err := p.unwinds(ctx, pass{s: last, err: err}); err != nil {
			return err
		}
	}
	return nil
}
