package run

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/failpoint"
	"github.com/ombud-run/ombud/internal/fault"
)

// Errors that unwind a handler. A handler returns them as they are.
var (
	errParked    = errors.New("the run waits")
	errLost      = errors.New("the run belongs to another node now")
	errUncertain = errors.New("the run is uncertain")
	errStopping  = errors.New("the daemon stops")
	errCancelled = errors.New("the run was cancelled")
	errEnded     = errors.New("the run has ended")
)

// Unwinding reports whether err is the engine ending a handler, not a failure of
// the work: the handler must return it without telling anybody.
func Unwinding(err error) bool {
	for _, e := range []error{errParked, errLost, errUncertain, errStopping, errJoined} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Run is a run being worked on. Its methods may be called from several goroutines
// of its handler, but a step name only once in an execution.
type Run struct {
	e      *Engine
	ctx    context.Context
	cancel context.CancelCauseFunc
	clock  *Clock
	going  context.Context // ends when the daemon stops: waits and what can be repeated end
	halt   context.CancelCauseFunc

	// known is set before the handler begins and used by functions of InTx only, which
	// run one after the other on the store's goroutine.
	known *known

	leaving sync.Mutex // held by whoever moves the run out of running

	mu       sync.Mutex
	rec      Record
	steps    map[string]*Step
	seq      int64
	pending  []lazyStep // outcomes that ride with the next commit
	underWay int        // steps between their beginning and their commit
	quiet    *sync.Cond // on mu: underWay has changed
	left     error      // why no further step may begin in this execution
}

func newRun(e *Engine, rec Record) *Run {
	ctx, cancel := context.WithCancelCause(context.Background())
	r := &Run{e: e, ctx: ctx, cancel: cancel, clock: NewClock(), rec: rec, steps: map[string]*Step{}}
	r.going, r.halt = context.WithCancelCause(ctx)
	r.quiet = sync.NewCond(&r.mu)
	return r
}

// Halted is closed when the daemon stops: what may be repeated without harm, such
// as waiting for a model, should end then. The context of a Repeatable step does.
func (r *Run) Halted() <-chan struct{} { return r.going.Done() }

// Record is the run as it was claimed.
func (r *Run) Record() Record { return r.rec }

// ID is the run's id.
func (r *Run) ID() string { return r.rec.ID }

// Input is what the run was started with.
func (r *Run) Input() json.RawMessage { return r.rec.Input }

// Active is how long the run has been worked on, without its waits and without the time in
// which a person was asked within a step.
func (r *Run) Active() time.Duration {
	return time.Duration(r.rec.Spent)*time.Microsecond + r.clock.Worked()
}

// Bound returns a context that ends with cause when the run has been active for so long.
func (r *Run) Bound(ctx context.Context, most time.Duration, cause error) (context.Context, context.CancelFunc) {
	return r.clock.Bound(ctx, most-time.Duration(r.rec.Spent)*time.Microsecond, cause)
}

// Asking says that a person is asked within a step until done is called: the run is not
// active meanwhile. The context ends with the daemon, which does not wait for people.
func (r *Run) Asking(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(r.going, func() { cancel(errStopping) })
	back := r.clock.Ask()
	return ctx, func() { stop(); back(); cancel(context.Canceled) }
}

// asked is for how long of this execution a person was asked, in microseconds.
func (r *Run) asked() int64 { return r.clock.Asked().Microseconds() }

// Recorded returns a step's record, if there is one.
func (r *Run) Recorded(name string) (Step, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.steps[name]
	if !ok {
		return Step{}, false
	}
	return *s, true
}

// Any reports whether any recorded step of the run fits.
func (r *Run) Any(fits func(Step) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.steps {
		if fits(*s) {
			return true
		}
	}
	return false
}

func (r *Run) loadSteps() error {
	var steps []*Step
	err := r.e.db.Read(r.ctx, func(ctx context.Context, q db.Q) (err error) {
		steps, err = r.e.loadSteps(ctx, q, r.rec.ID)
		return err
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = &known{r.rec, map[string]*Step{}}
	for _, s := range steps {
		r.steps[s.Name], r.known.steps[s.Name] = s, s
		r.seq = max(r.seq, s.Seq)
	}
	return nil
}

// StepSpec describes a step.
type StepSpec struct {
	Name     string // stable within the run; not a call order
	Kind     string // "context", "model", "tool", …
	Policy   Policy
	InputMAC []byte
	Timeout  time.Duration // longest the effect may take; 0 if it has none outside
	// Resumes says that a Noted step goes on where it was when it is begun again: nobody
	// waits for it when the daemon stops, and no other node for its Timeout.
	Resumes bool
	// Lazy lets the outcome of a Repeatable step ride with the run's next commit.
	Lazy bool
	// OnOpen joins the commit of the intent. It may run twice.
	OnOpen func(ctx context.Context, tx *db.Tx) error
	// OnReopen joins the commit that counts a repeat after a crash.
	OnReopen func(ctx context.Context, tx *db.Tx, repeats int) error
	// OnClose joins the commit of the outcome and may set its Audit. It may run twice.
	OnClose func(ctx context.Context, tx *db.Tx, o *Outcome) error
}

// Do does a step once. If it is recorded, its outcome is returned. Otherwise the
// intent is committed (unless the step is Repeatable), fn runs, and the outcome is
// committed. A step found open was interrupted by a crash and is treated by its
// policy. The error is the engine's and unwinds the handler; a failure of the work
// is in the outcome.
func (r *Run) Do(ctx context.Context, spec StepSpec, fn func(ctx context.Context) Outcome) (Outcome, error) {
	out, err := r.do(ctx, spec, fn)
	if err == nil && out.State == Unknown {
		err = r.InDoubt(spec.Name)
	}
	return out, err
}

func (r *Run) do(ctx context.Context, spec StepSpec, fn func(ctx context.Context) Outcome) (Outcome, error) {
	s, met := r.Recorded(spec.Name)
	if met && s.State != Open {
		return s.outcome(), nil
	}
	if !met && settles(ctx) {
		return Outcome{}, errJoined
	}
	if err := r.enter(ctx); err != nil {
		return Outcome{}, err
	}
	defer r.exit()
	if met {
		spec.Policy = stricter(s.Policy, spec.Policy)
		return r.resume(ctx, spec, s.Seq, fn)
	}
	seq := r.nextSeq()
	if spec.Policy.Kind != Repeatable {
		if err := r.e.coverEffect(ctx, spec.cover()); err != nil {
			return Outcome{}, err
		}
		if err := r.openStep(ctx, spec, seq); err != nil {
			return Outcome{}, err
		}
		// The node may have been paused since: it may have no lease any more.
		if err := r.insist(ctx, func() error { return r.e.coverEffect(ctx, spec.cover()) }); err != nil {
			return Outcome{}, err
		}
	}
	return r.perform(ctx, spec, seq, fn)
}

// cover is how long no other node may take the run over in. For what goes on where it was
// nobody need wait.
func (s StepSpec) cover() time.Duration {
	if s.Resumes {
		return 0
	}
	return s.Timeout
}

// stricter is the policy for a step that was begun under one and is met under
// another: what could not be repeated when it was begun cannot be now.
func stricter(begun PolicyKind, now Policy) Policy {
	if begun == AtMostOnce || begun == Probed && now.Kind != Probed {
		return Policy{Kind: AtMostOnce}
	}
	return now
}

// enter counts a step as under way. A run does not leave the state running before
// every such step has made its commit: only then is an open step one that a crash
// interrupted.
func (r *Run) enter(ctx context.Context) error {
	r.leaving.Lock()
	defer r.leaving.Unlock()
	if err := r.mayBegin(ctx); err != nil {
		return err
	}
	if s := strandOf(ctx); s != nil && s.resting() {
		return errParked
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left != nil {
		return r.left
	}
	r.underWay++
	return nil
}

func (r *Run) exit() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underWay--
	r.quiet.Broadcast()
}

// leave moves the run out of running with commit, once no step is under way, and
// returns why. If commit fails the run stays and its error is returned. It must not
// be called from within a step.
func (r *Run) leave(why error, commit func() error) error {
	r.leaving.Lock() // no step begins meanwhile
	defer r.leaving.Unlock()
	r.mu.Lock()
	for r.underWay > 0 {
		r.quiet.Wait()
	}
	left := r.left
	r.mu.Unlock()
	if left != nil { // a parallel step was first
		return left
	}
	if err := commit(); err != nil {
		return err
	}
	r.mu.Lock()
	r.left = why
	r.mu.Unlock()
	return why
}

// InDoubt makes the run uncertain because of a step of unknown outcome, unless its
// kind is told of such steps. It returns the error that unwinds the handler.
func (r *Run) InDoubt(name string) error {
	kind, _ := r.e.kinds.get(r.rec.Kind)
	s, ok := r.Recorded(name)
	if !ok || s.State != Unknown || kind.TellUnknown {
		return nil
	}
	return r.leave(errUncertain, func() error {
		return r.insist(r.ctx, func() error {
			return r.commit(change{kind: evUncertain, data: endedData{Class: fault.Unknown, Error: name + ": " + s.Error}}, nil)
		})
	})
}

func (r *Run) nextSeq() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	return r.seq
}

// mayBegin refuses to begin a step in a run that has to stop.
func (r *Run) mayBegin(ctx context.Context) error {
	if r.e.isStopping() {
		return errStopping
	}
	if cause := context.Cause(r.ctx); cause != nil {
		return cause
	}
	return context.Cause(ctx)
}

func (r *Run) openStep(ctx context.Context, spec StepSpec, seq int64) error {
	c := change{kind: evStepOpened, step: spec.Name, data: stepData{
		Name: spec.Name, Kind: spec.Kind, Policy: spec.Policy.Kind, Seq: seq,
		TimeoutUS: spec.Timeout.Microseconds(), InputMAC: spec.InputMAC,
	}}
	return r.insist(ctx, func() error { return r.commit(c, spec.OnOpen) })
}

// perform runs the effect between its two commits.
func (r *Run) perform(ctx context.Context, spec StepSpec, seq int64, fn func(ctx context.Context) Outcome) (Outcome, error) {
	if spec.Timeout > 0 {
		failpoint.Hit("run.effect.before")
	}
	out := r.attempt(ctx, spec, fn)
	if spec.Timeout > 0 {
		failpoint.Hit("run.effect.after")
	}
	if errors.Is(out.Err, errStopping) {
		return out, errStopping // left open: it is begun again at the next start
	}
	if spec.Lazy && spec.Policy.Kind == Repeatable && out.State != Unknown {
		r.mu.Lock()
		r.pending = append(r.pending, lazyStep{spec, seq, out})
		r.mu.Unlock()
		r.remember(spec, seq, out) // a branch that is called again meets it
		return out, nil
	}
	return r.closeStep(spec, seq, out)
}

// attempt runs an effect. One that may be repeated, or goes on where it was, is not waited
// for when the daemon stops: its context ends, and a failure from then on is none of its own.
func (r *Run) attempt(ctx context.Context, spec StepSpec, fn func(ctx context.Context) Outcome) Outcome {
	if spec.Policy.Kind != Repeatable && !spec.Resumes {
		return fn(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.going, func() { cancel(errStopping) })()
	out := fn(ctx)
	if out.State != Done && errors.Is(context.Cause(r.going), errStopping) {
		return Abandon()
	}
	return out
}

// resume treats a step that a crash interrupted.
func (r *Run) resume(ctx context.Context, spec StepSpec, seq int64, fn func(ctx context.Context) Outcome) (Outcome, error) {
	if err := r.e.coverEffect(ctx, spec.cover()); err != nil {
		return Outcome{}, err
	}
	switch spec.Policy.Kind {
	case Probed:
		answer, out := spec.Policy.Probe(ctx)
		switch answer {
		case Happened:
			return r.closeStep(spec, seq, out)
		case CannotTell:
			if err := r.mayBegin(ctx); err != nil {
				return Outcome{}, err // it was not asked in earnest: the next start asks again
			}
			return r.closeStep(spec, seq, unknownOutcome("it was interrupted and what became of it cannot be told"))
		case DidNotHappen:
		}
	case AtMostOnce:
		return r.closeStep(spec, seq, unknownOutcome("it was interrupted: it may or may not have happened"))
	case Repeatable, Noted:
	}
	if settles(ctx) {
		return r.closeStep(spec, seq, Fail(fault.New(fault.Cancelled, "%w", errJoined)))
	}
	err := r.insist(ctx, func() error {
		return r.commit(change{kind: evStepReopened, step: spec.Name, data: stepData{Name: spec.Name}}, func(ctx context.Context, tx *db.Tx) error {
			if spec.OnReopen == nil {
				return nil
			}
			s, err := r.e.loadStep(ctx, tx, r.rec.ID, spec.Name)
			if err != nil {
				return err
			}
			return spec.OnReopen(ctx, tx, s.Repeats)
		})
	})
	if err != nil {
		return Outcome{}, err
	}
	return r.perform(ctx, spec, seq, fn)
}

func unknownOutcome(text string) Outcome {
	return Outcome{State: Unknown, Err: fault.New(fault.Unknown, "%s", text), CostKnown: true}
}

// closeStep records an outcome. The effect is done by now, so it does not give up
// while the store is merely unavailable; only when the daemon ends does the step
// stay open.
func (r *Run) closeStep(spec StepSpec, seq int64, out Outcome) (Outcome, error) {
	err := r.insist(context.WithoutCancel(r.ctx), func() error {
		changes := []change{r.closing(spec, seq, &out)}
		return r.commitAll(changes, func(ctx context.Context, tx *db.Tx, c []change) error {
			return r.onClose(ctx, tx, spec, &out, &c[0])
		})
	})
	if err != nil {
		return out, err
	}
	r.remember(spec, seq, out)
	return out, nil
}

func (r *Run) closing(spec StepSpec, seq int64, out *Outcome) change {
	d := stepData{
		Name: spec.Name, Kind: spec.Kind, Policy: spec.Policy.Kind, Seq: seq, InputMAC: spec.InputMAC,
		State: out.State, ResultMAC: r.e.contentMAC(r.rec.ID, spec.Name, out.Result), Cost: out.Cost, CostKnown: out.CostKnown, Audit: out.Audit,
	}
	if out.Err != nil {
		d.Class, d.Error = fault.ClassOf(out.Err), out.Err.Error()
	}
	return change{kind: evStepClosed, step: spec.Name, data: d, result: out.Result}
}

func (r *Run) onClose(ctx context.Context, tx *db.Tx, spec StepSpec, out *Outcome, c *change) error {
	if spec.OnClose == nil {
		return nil
	}
	if err := spec.OnClose(ctx, tx, out); err != nil {
		return err
	}
	*c = r.closing(spec, c.data.(stepData).Seq, out)
	return nil
}

func (r *Run) remember(spec StepSpec, seq int64, out Outcome) {
	s := &Step{Name: spec.Name, Kind: spec.Kind, Seq: seq, Policy: spec.Policy.Kind, State: out.State, Result: out.Result,
		Cost: out.Cost, CostKnown: out.CostKnown, Audit: out.Audit, InputMAC: spec.InputMAC}
	if out.Err != nil {
		s.ErrorClass, s.Error = fault.ClassOf(out.Err), out.Err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps[spec.Name] = s
}

// DoTx does a step whose work is rows: fn runs inside the commit of its outcome,
// so there is nothing to be in doubt about. If fn returns an outcome that is not
// Done its rows are rolled back and the failure is recorded. fn may run twice.
func (r *Run) DoTx(ctx context.Context, spec StepSpec, fn func(ctx context.Context, tx *db.Tx) Outcome) (Outcome, error) {
	if s, ok := r.Recorded(spec.Name); ok && s.State != Open {
		return s.outcome(), nil
	}
	if settles(ctx) {
		return Outcome{}, errJoined
	}
	if err := r.enter(ctx); err != nil {
		return Outcome{}, err
	}
	defer r.exit()
	spec.Policy = Policy{Kind: Repeatable}
	seq := r.nextSeq()
	var out Outcome
	work := func(ctx context.Context, tx *db.Tx) error {
		out = fn(ctx, tx)
		return out.Err
	}
	err := r.insist(ctx, func() error {
		return r.commitAll([]change{{}}, func(ctx context.Context, tx *db.Tx, c []change) error {
			// If it is the store that fails, so will the statements that follow.
			failed := tx.Savepoint(ctx, work)
			if errors.Is(failed, errNotYet) {
				return errNotYet
			}
			if failed != nil && out.Err == nil {
				out = Fail(failed) // one of its statements failed and it did not say so
			}
			c[0] = r.closing(spec, seq, &out)
			return r.onClose(ctx, tx, spec, &out, &c[0])
		})
	})
	if err != nil {
		return out, err
	}
	r.remember(spec, seq, out)
	return out, nil
}

// Step is Do for a result that is plain JSON and costs nothing.
func (r *Run) Step(ctx context.Context, name string, p Policy, fn func(ctx context.Context) (json.RawMessage, error)) (json.RawMessage, error) {
	out, err := r.Do(ctx, StepSpec{Name: name, Policy: p}, func(ctx context.Context) Outcome {
		result, err := fn(ctx)
		if err != nil {
			return Fail(err)
		}
		return Succeed(result)
	})
	if err != nil {
		return nil, err
	}
	return out.Result, out.Err
}
