package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
)

// op is one instruction of a random program. A run's input is its program, so a
// handler that is called again finds the same one.
type op struct {
	Do      string     `json:"do"` // step, tx, parallel, park, signal, child, join, fail
	Name    string     `json:"name,omitempty"`
	Policy  PolicyKind `json:"policy,omitempty"`
	Lazy    bool       `json:"lazy,omitempty"`
	Ends    StepState  `json:"ends,omitempty"` // what the work comes to
	Unclear bool       `json:"unclear,omitempty"`
	Ops     []op       `json:"ops,omitempty"`     // of a parallel or a child
	Strands [][]op     `json:"strands,omitempty"` // of a join
	Need    int        `json:"need,omitempty"`    // of a join: -1 all settled, 0 all, else so many
	Shares  bool       `json:"shares,omitempty"`
	Times   int        `json:"times,omitempty"`
}

// genOps draws a program. names are unique within a run.
func genOps(t *rapid.T, depth int, prefix string) []op {
	var out []op
	for i := range rapid.IntRange(1, 2+depth).Draw(t, "length") {
		name := fmt.Sprintf("%s%d", prefix, i)
		kinds := []string{"step", "step", "step", "tx", "parallel", "park", "signal", "fail"}
		if depth > 0 {
			kinds = append(kinds, "child", "join", "join")
		}
		o := op{Do: rapid.SampledFrom(kinds).Draw(t, "do"), Name: name}
		switch o.Do {
		case "step":
			o = genStep(t, name)
		case "tx":
			o.Ends = rapid.SampledFrom([]StepState{Done, Done, Errored}).Draw(t, "ends")
		case "parallel":
			for j := range rapid.IntRange(2, 3).Draw(t, "width") {
				o.Ops = append(o.Ops, genStep(t, fmt.Sprintf("%s.%d", name, j)))
			}
		case "child":
			o.Shares = rapid.Bool().Draw(t, "shares the key")
			o.Ops = genOps(t, depth-1, prefix)
		case "join":
			width := rapid.IntRange(1, 3).Draw(t, "strands")
			o.Need = rapid.IntRange(-1, width).Draw(t, "need")
			for j := range width {
				o.Strands = append(o.Strands, genOps(t, depth-1, fmt.Sprintf("%s.%d.", name, j)))
			}
		case "fail":
			o.Times = rapid.IntRange(1, 2).Draw(t, "times")
		}
		out = append(out, o)
	}
	return out
}

func genStep(t *rapid.T, name string) op {
	o := op{Do: "step", Name: name}
	o.Policy = rapid.SampledFrom([]PolicyKind{Repeatable, Noted, Probed, AtMostOnce}).Draw(t, "policy")
	o.Ends = rapid.SampledFrom([]StepState{Done, Done, Done, Errored, Unknown}).Draw(t, "ends")
	o.Lazy = o.Policy == Repeatable && rapid.Bool().Draw(t, "lazy")
	o.Unclear = o.Policy == Probed && rapid.Bool().Draw(t, "unclear probe")
	if o.Policy == Repeatable && o.Ends == Unknown {
		o.Ends = Done
	}
	return o
}

// death is the panic of a process that was killed.
type death struct{}

// track is what the outside world and an all-knowing observer know of one step.
type track struct {
	begun       int  // how often its work began, in the record there is
	effects     int  // how often its effect happened
	open        bool // its intent is committed and its outcome is not
	interrupted int  // how often the process died while it was open
	unclear     bool // its work said that it cannot tell
	closed      bool // its outcome is committed
	retried     int  // how often a person had it begun again, which begins a new record
	past        int  // interruptions before that
}

// world is everything outside ombud, and the one who kills it.
type world struct {
	mu        sync.Mutex
	steps     map[string]*track // by run/step
	points    int               // to go until something happens; 0 for nothing
	strikes   string            // what happens then: kill or cancel
	dead      bool
	cancel    func(run string)
	cancelled map[string]bool
	faults    []string
	started   map[string][]int64 // by key: the order of arrival of those that began
	signals   int                // sent so far: each carries its number
	taken     map[string]string  // by run and number: the step that took it
	joined    map[string]string  // by run/step: what a join came to
}

func (w *world) at(run, step string) *track {
	k := run + "/" + step
	if w.steps[k] == nil {
		w.steps[k] = &track{}
	}
	return w.steps[k]
}

func (w *world) blame(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// point is an instant at which the process may die; once dead it does nothing more.
func (w *world) point(run string, inTx bool) {
	w.mu.Lock()
	strike := false
	if w.points > 0 && !w.dead {
		w.points--
		strike = w.points == 0
	}
	if strike && w.strikes == "kill" {
		w.dead = true
	}
	dead := w.dead
	cancels := strike && w.strikes == "cancel" && !inTx
	w.mu.Unlock()
	if dead {
		panic(death{})
	}
	if cancels {
		w.cancel(run)
	}
}

// machine drives one store through crashes.
type machine struct {
	t     *testing.T
	b     *bench
	e     *Engine // of the process that lives
	kinds *Kinds
	w     *world
	runs  []string
	claim []*Run // claimed and not yet worked on
	stale []*Run // of processes that died
}

func (m *machine) add(k string, tell bool) {
	if err := m.kinds.Add(Kind{
		Name: k, Attempts: 3, TellUnknown: tell, Backoff: func(int) time.Duration { return 0 },
		Handle: func(ctx context.Context, r *Run) ([]byte, error) {
			var prog []op
			if err := json.Unmarshal(r.Input(), &prog); err != nil {
				return nil, err
			}
			return []byte(`"end"`), m.execute(ctx, r, prog)
		},
	}); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) execute(ctx context.Context, r *Run, prog []op) error {
	for _, o := range prog {
		var err error
		switch o.Do {
		case "step":
			err = m.step(ctx, r, o)
		case "tx":
			err = m.tx(ctx, r, o)
		case "parallel":
			err = m.parallel(ctx, r, o.Ops)
		case "park":
			err = r.Park(ctx, ForSignal, o.Name, never, func(ctx context.Context, tx *db.Tx) (bool, error) {
				m.w.point(r.ID(), true)
				return marked(ctx, tx, "signal/"+r.ID()+"/"+o.Name)
			})
		case "signal":
			err = m.heard(ctx, r, o)
		case "join":
			err = m.join(ctx, r, o)
		case "child":
			err = m.child(ctx, r, o)
		case "fail":
			if r.Record().Attempt < o.Times {
				err = fault.New(fault.Unavailable, "no luck")
			}
		}
		if err != nil {
			return err
		}
		m.w.point(r.ID(), false)
	}
	return nil
}

func (m *machine) step(ctx context.Context, r *Run, o op) error {
	w := m.w
	probe := func(context.Context) (Probe, Outcome) {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch tr := w.at(r.ID(), o.Name); {
		case o.Unclear:
			return CannotTell, Outcome{}
		case tr.effects > 0:
			return Happened, Succeed(json.RawMessage(`"found"`))
		}
		return DidNotHappen, Outcome{}
	}
	spec := StepSpec{
		Name: o.Name, Kind: "test", Policy: Policy{Kind: o.Policy, Probe: probe}, Lazy: o.Lazy, InputMAC: []byte(o.Name),
		OnOpen:   func(context.Context, *db.Tx) error { w.point(r.ID(), true); return nil },
		OnReopen: func(context.Context, *db.Tx, int) error { w.point(r.ID(), true); return nil },
		OnClose:  func(context.Context, *db.Tx, *Outcome) error { w.point(r.ID(), true); return nil },
	}
	out, err := r.Do(ctx, spec, func(context.Context) Outcome {
		w.mu.Lock()
		tr := w.at(r.ID(), o.Name)
		if tr.closed {
			w.faults = append(w.faults, "a recorded step was begun again: "+o.Name)
		}
		tr.begun++
		tr.open = o.Policy != Repeatable
		w.mu.Unlock()
		w.point(r.ID(), false)
		out := Succeed(json.RawMessage(`"done"`))
		w.mu.Lock()
		switch o.Ends {
		case Errored:
			out = Fail(errors.New("refused"))
		case Unknown:
			out = unknownOutcome("timed out")
			tr.effects++
			tr.unclear = true
		default:
			tr.effects++
		}
		w.mu.Unlock()
		w.point(r.ID(), false)
		return out
	})
	if err == nil || errors.Is(err, errUncertain) && out.State == Unknown { // else a parallel step was first
		m.check(r, o, out)
	}
	return err
}

// check compares the outcome of a step with what really happened.
func (m *machine) check(r *Run, o op, out Outcome) {
	m.w.mu.Lock()
	tr := m.w.at(r.ID(), o.Name)
	tr.open = false
	tr.closed = !o.Lazy || tr.closed
	now := *tr
	m.w.mu.Unlock()
	bad := func(format string, args ...any) {
		m.w.blame("%s %s: %s; outcome %s, %+v", o.Policy, o.Name, fmt.Sprintf(format, args...), out.State, now)
	}
	byPerson := now.retried > 0
	switch o.Policy {
	case AtMostOnce:
		if now.effects > 1+now.retried {
			bad("happened more than once")
		}
		if unknown := now.interrupted > 0 || now.unclear; unknown != (out.State == Unknown) && !m.settled(r, o.Name) {
			bad("unknown exactly when it was interrupted")
		}
	case Probed:
		if now.effects > 1+now.retried {
			bad("happened more than once")
		}
		if !o.Unclear && out.State == Done && now.effects != 1 && !byPerson && !m.settled(r, o.Name) {
			bad("is done and did not happen exactly once")
		}
		m.w.mu.Lock()
		cancelled := m.w.cancelled[r.ID()] // then nobody was there to ask the probe
		m.w.mu.Unlock()
		if !o.Unclear && out.State == Unknown && !now.unclear && !cancelled {
			bad("is unknown though its probe can tell")
		}
	case Noted:
		if now.effects > 1+now.interrupted+now.past+now.retried {
			bad("happened more often than it was interrupted")
		}
		_, steps, err := m.e.Get(m.t.Context(), r.ID())
		if err != nil {
			bad("%v", err)
		}
		for _, s := range steps {
			if s.Name == o.Name && s.Repeats != now.begun-1 && !m.settled(r, o.Name) {
				bad("counts %d repeats", s.Repeats)
			}
		}
	}
}

// settled reports whether a person has said what became of a step.
func (m *machine) settled(r *Run, step string) bool {
	ok := false
	if err := m.b.db.Read(m.t.Context(), func(ctx context.Context, q db.Q) (err error) {
		ok, err = marked(ctx, q, "settled/"+r.ID()+"/"+step)
		return err
	}); err != nil {
		m.w.blame("%v", err)
	}
	return ok
}

func marked(ctx context.Context, q db.Q, key string) (bool, error) {
	var n int
	err := q.QueryRow(ctx, "SELECT count(*) FROM meta WHERE key = $1", "test/"+key).Scan(&n)
	return n > 0, err
}

func mark(ctx context.Context, tx *db.Tx, key string) error {
	_, err := tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, 'x')", "test/"+key)
	return err
}

// tx is a step whose work is a row. Done twice, the row would be there twice.
func (m *machine) tx(ctx context.Context, r *Run, o op) error {
	key := "row/" + r.ID() + "/" + o.Name
	out, err := r.DoTx(ctx, StepSpec{Name: o.Name, Kind: "tx", OnClose: func(context.Context, *db.Tx, *Outcome) error {
		m.w.point(r.ID(), true)
		return nil
	}}, func(ctx context.Context, tx *db.Tx) Outcome {
		if err := mark(ctx, tx, key); err != nil {
			return Fail(err)
		}
		m.w.point(r.ID(), true)
		if o.Ends == Errored {
			return Fail(errors.New("refused"))
		}
		return Succeed(nil)
	})
	if err != nil {
		return err
	}
	there := false
	if err := m.b.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
		there, err = marked(ctx, q, key)
		return err
	}); err != nil {
		return err
	}
	if out.State != o.Ends || there != (o.Ends == Done) {
		m.w.blame("tx %s: outcome %s, wanted %s, row there: %v", o.Name, out.State, o.Ends, there)
	}
	return nil
}

func (m *machine) parallel(ctx context.Context, r *Run, ops []op) error {
	errs := make([]error, len(ops))
	died := make([]any, len(ops))
	var wg sync.WaitGroup
	for i, o := range ops {
		wg.Go(func() {
			defer func() { died[i] = recover() }()
			errs[i] = m.step(ctx, r, o)
		})
	}
	wg.Wait()
	for _, p := range died {
		if p != nil {
			panic(p)
		}
	}
	return errors.Join(errs...)
}

// child starts a run in the commit of a step and waits for its end.
func (m *machine) child(ctx context.Context, r *Run, o op) error {
	rec, err := r.WaitRun(ctx, o.Name, func(ctx context.Context, tx *db.Tx) (string, error) {
		s := Spec{ID: r.ID() + "-" + o.Name, Kind: r.Record().Kind, Parent: r.ID(), Key: "child", Width: 2, Input: o.Ops}
		if o.Shares {
			s.Key, s.Width = r.Record().Key, r.Record().Width
		}
		id, err := m.e.StartTx(ctx, tx, s)
		m.w.point(r.ID(), true)
		return id, err
	})
	if err == nil && !rec.State.Ended() {
		m.w.blame("a child that is %s was waited for", rec.State)
	}
	if fault.Is(err, fault.Conflict) || fault.Is(err, fault.Invalid) {
		m.w.blame("start a child: %v", err)
	}
	return err
}

// heard takes a signal. All of a run have one name, so that its waits share them.
func (m *machine) heard(ctx context.Context, r *Run, o op) error {
	number, err := r.WaitSignal(ctx, o.Name, "go", 0)
	if err != nil {
		return err
	}
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	k := r.ID() + "/" + string(number)
	if by := m.w.taken[k]; by != "" && by != o.Name {
		m.w.faults = append(m.w.faults, "signal "+k+" was taken by "+by+" and by "+o.Name)
	}
	for other, by := range m.w.taken {
		if by == o.Name && other != k && strings.HasPrefix(other, r.ID()+"/") {
			m.w.faults = append(m.w.faults, o.Name+" took "+other+" and "+k)
		}
	}
	m.w.taken[k] = o.Name
	return nil
}

// join lets strands work side by side; what it came to may never change.
func (m *machine) join(ctx context.Context, r *Run, o op) error {
	join := JoinQuorum(o.Need)
	switch o.Need {
	case -1:
		join = JoinAllSettled
	case 0:
		join = JoinAll
	}
	var branches []Branch
	for i, ops := range o.Strands {
		branches = append(branches, Branch{Name: fmt.Sprint(i), Do: func(ctx context.Context) (json.RawMessage, error) {
			return nil, m.execute(ctx, r, ops)
		}})
	}
	out, err := r.Parallel(ctx, o.Name, join, branches...)
	if Unwinding(err) || errors.Is(err, errCancelled) || errors.Is(err, errEnded) || context.Cause(ctx) != nil {
		return err
	}
	got := fmt.Sprintf("%s %t", states(out), err == nil)
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	k := r.ID() + "/" + o.Name
	if before := m.w.joined[k]; before != "" && before != got {
		m.w.faults = append(m.w.faults, "join "+k+" came to "+before+" and to "+got)
	}
	m.w.joined[k] = got
	good := strings.Count(states(out), "d")
	if met := o.Need == -1 || o.Need == 0 && good == len(out) || o.Need > 0 && good >= o.Need; met != (err == nil) {
		m.w.faults = append(m.w.faults, fmt.Sprintf("join %s, %d needed, came to %s: %v", k, o.Need, got, err))
	}
	return err
}

// parks are the names of what a program may wait for by a mark, and whether it waits
// for signals.
func parks(prog []op) (names []string, hears bool) {
	for _, o := range prog {
		switch o.Do {
		case "park":
			names = append(names, o.Name)
		case "signal":
			hears = true
		}
		for _, strand := range o.Strands {
			more, too := parks(strand)
			names, hears = append(names, more...), hears || too
		}
	}
	return names, hears
}
