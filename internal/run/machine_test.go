package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// op is one instruction of a random program. A run's input is its program, so a
// handler that is called again finds the same one.
type op struct {
	Do      string     `json:"do"` // step, tx, parallel, park, child, fail
	Name    string     `json:"name,omitempty"`
	Policy  PolicyKind `json:"policy,omitempty"`
	Lazy    bool       `json:"lazy,omitempty"`
	Ends    StepState  `json:"ends,omitempty"` // what the work comes to
	Unclear bool       `json:"unclear,omitempty"`
	Ops     []op       `json:"ops,omitempty"` // of a parallel or a child
	Shares  bool       `json:"shares,omitempty"`
	Times   int        `json:"times,omitempty"`
}

// genOps draws a program. names are unique within a run.
func genOps(t *rapid.T, depth int, prefix string) []op {
	var out []op
	for i := range rapid.IntRange(1, 4).Draw(t, "length") {
		name := fmt.Sprintf("%s%d", prefix, i)
		kinds := []string{"step", "step", "step", "tx", "parallel", "park", "fail"}
		if depth > 0 {
			kinds = append(kinds, "child")
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
		Ended: func(ctx context.Context, tx *db.Tx, r Record) error {
			if r.Parent == "" {
				return nil
			}
			return m.e.WakeTx(ctx, tx, r.Parent, ForSignal, r.ID)
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
	out, err := r.DoTx(ctx, StepSpec{Name: o.Name, Kind: "child"}, func(ctx context.Context, tx *db.Tx) Outcome {
		s := Spec{ID: r.ID() + "-" + o.Name, Kind: r.Record().Kind, Parent: r.ID(), Key: "child", Width: 2, Input: o.Ops}
		if o.Shares {
			s.Key, s.Width = r.Record().Key, r.Record().Width
		}
		id, err := m.e.StartTx(ctx, tx, s)
		m.w.point(r.ID(), true)
		if err != nil {
			return Fail(err)
		}
		return Succeed(json.RawMessage(`"` + id + `"`))
	})
	if err != nil {
		return err
	}
	if out.Err != nil {
		m.w.blame("start a child: %v", out.Err)
		return out.Err
	}
	child := strings.Trim(string(out.Result), `"`)
	return r.Park(ctx, ForSignal, child, never, func(ctx context.Context, tx *db.Tx) (bool, error) {
		rec, err := m.e.load(ctx, tx, child)
		return rec.State.Ended(), err
	})
}

// work does what Engine.begin does, and dies where the world says so.
func (m *machine) work(r *Run, local bool) (died bool) {
	if local { // cancellations are heard at once
		m.e.mu.Lock()
		m.e.live[r.ID()] = r
		m.e.mu.Unlock()
	}
	defer func() {
		m.e.mu.Lock()
		delete(m.e.live, r.ID())
		m.e.mu.Unlock()
		p := recover()
		if in, ok := p.(*db.Panic); ok {
			p = in.Value
		}
		switch p.(type) {
		case nil:
		case death:
			died = true
		default:
			panic(p)
		}
	}()
	if r.rec.Fence == 1 && r.rec.Key != "" && r.rec.Parent == "" {
		m.w.started[r.rec.Key] = append(m.w.started[r.rec.Key], r.rec.Seq)
	}
	kind, _ := m.kinds.get(r.rec.Kind)
	if err := r.loadSteps(); err != nil {
		m.t.Fatal(err)
	}
	result, err := kind.Handle(r.ctx, r)
	m.e.conclude(r, kind, result, err)
	return false
}

// boot is a new process on the same store.
func (m *machine) boot() {
	if m.e != nil {
		m.stale = append(m.stale, m.claim...)
		m.claim = nil
		for _, tr := range m.w.steps {
			if tr.open {
				tr.open = false
				tr.interrupted++
			}
		}
	}
	m.w.dead, m.w.points = false, 0
	m.e = New(m.b.db, m.b.vault, m.b.log, m.kinds, Options{})
	m.e.claims = m.e.claimSQL()
	if err := m.e.recoverOnce(m.t.Context(), true); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) records() map[string]Record {
	out := map[string]Record{}
	recs, err := m.e.List(m.t.Context(), Filter{Limit: 1000})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, r := range recs {
		out[r.ID] = r
	}
	return out
}

// signal gives a run what it waits for.
func (m *machine) signal(rec Record) {
	if rec.State != Waiting || rec.Wait != ForSignal || strings.HasPrefix(rec.WaitRef, "run") {
		return
	}
	if err := m.b.db.InTx(m.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if there, err := marked(ctx, tx, "signal/"+rec.ID+"/"+rec.WaitRef); err != nil || there {
			return err
		}
		if err := mark(ctx, tx, "signal/"+rec.ID+"/"+rec.WaitRef); err != nil {
			return err
		}
		return m.e.WakeTx(ctx, tx, rec.ID, ForSignal, rec.WaitRef)
	}); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) resolve(rec Record, d Decision) {
	_, steps, err := m.e.Get(m.t.Context(), rec.ID)
	if err != nil {
		m.t.Fatal(err)
	}
	i := slices.IndexFunc(steps, func(s *Step) bool { return s.State == Unknown })
	if i < 0 {
		m.w.blame("run %s is uncertain and no step is", rec.ID)
		return
	}
	if err := m.e.Resolve(m.t.Context(), rec.ID, d, "operator", ""); err != nil {
		m.w.blame("resolve %s: %v", d, err)
		return
	}
	tr := m.w.at(rec.ID, steps[i].Name)
	switch d {
	case Retry:
		tr.retried++
		tr.past += tr.interrupted
		tr.closed, tr.unclear, tr.interrupted, tr.begun = false, false, 0, 0
	default:
		if err := m.b.db.InTx(m.t.Context(), func(ctx context.Context, tx *db.Tx) error {
			if there, err := marked(ctx, tx, "settled/"+rec.ID+"/"+steps[i].Name); err != nil || there {
				return err
			}
			return mark(ctx, tx, "settled/"+rec.ID+"/"+steps[i].Name)
		}); err != nil {
			m.t.Fatal(err)
		}
	}
}

// staleWrites tries everything an owner can write, with an old fence.
func (m *machine) staleWrites(r *Run) {
	before, steps, err := m.e.Get(m.t.Context(), r.ID())
	if err != nil {
		m.t.Fatal(err)
	}
	ctx := context.Background()
	kind, _ := m.kinds.get(r.rec.Kind)
	none := func(context.Context) Outcome { m.w.blame("a stale owner began a step"); return Succeed(nil) }
	for i, try := range []func() error{
		func() error {
			_, err := r.Do(ctx, StepSpec{Name: "stale", Policy: Policy{Kind: AtMostOnce}}, none)
			return err
		},
		func() error {
			_, err := r.Do(ctx, StepSpec{Name: "stale", Policy: Policy{Kind: Repeatable}}, func(context.Context) Outcome { return Succeed(nil) })
			return err
		},
		func() error {
			_, err := r.DoTx(ctx, StepSpec{Name: "stale"}, func(context.Context, *db.Tx) Outcome { return Succeed(nil) })
			return err
		},
		func() error { return r.Park(ctx, ForSignal, "stale", never, nil) },
		func() error {
			return r.Finish(ctx, StepSpec{Name: "stale"}, nil, func(context.Context, *db.Tx) error { return nil })
		},
		func() error { return r.end(kind, evFailed, endedData{}, nil) },
		func() error { return r.end(kind, evCancelled, endedData{}, nil) },
	} {
		// A stale owner that knows of a step in doubt stops before it writes.
		if err := try(); !errors.Is(err, errLost) && !errors.Is(err, errUncertain) {
			m.w.blame("write %d of a stale owner of a run that is %s: %v", i, before.State, err)
		}
		r.ctx = context.Background() // as if it had not noticed
	}
	after, more, err := m.e.Get(m.t.Context(), r.ID())
	if err != nil || after.Version != before.Version || len(more) != len(steps) {
		m.w.blame("a stale owner moved run %s from version %d to %d: %v", r.ID(), before.Version, after.Version, err)
	}
}

// invariants hold after every action.
func (m *machine) invariants(t *rapid.T) {
	recs := m.records()
	for id := range recs {
		var rep Report
		if err := m.e.verifyOne(m.t.Context(), id, &rep); err != nil {
			t.Fatal(err)
		}
	}
	slots, active := map[string]int{}, map[string]int{}
	for _, r := range recs {
		if r.Key == "" {
			continue
		}
		if r.slot != nil {
			slots[r.Key]++
		}
		busy := r.State == Running || r.State == Waiting || r.State == Cancelling
		if busy && !sharesPlace(recs, r) {
			active[r.Key]++
		}
		if max(slots[r.Key], active[r.Key]) > r.Width {
			t.Fatalf("key %s: %d slots, %d active, width %d", r.Key, slots[r.Key], active[r.Key], r.Width)
		}
	}
	for key, seqs := range m.w.started {
		if !slices.IsSorted(seqs) {
			t.Fatalf("key %s: began in the order %v", key, seqs)
		}
	}
	if len(m.w.faults) > 0 {
		t.Fatal(strings.Join(m.w.faults, "\n"))
	}
}

func sharesPlace(recs map[string]Record, r Record) bool {
	for p := r.Parent; p != ""; p = recs[p].Parent {
		if recs[p].Key == r.Key && recs[p].State.holdsKey() {
			return true
		}
	}
	return false
}

// take claims runs, as the dispatcher does.
func (m *machine) take(t *rapid.T, room int) {
	recs, err := m.e.claim(m.t.Context(), room)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range recs {
		m.claim = append(m.claim, newRun(m.e, rec))
	}
}

// dispatch claims and works until nothing is due.
func (m *machine) dispatch(t *rapid.T) {
	for {
		m.take(t, 8)
		if len(m.claim) == 0 {
			return
		}
		r := m.claim[0]
		m.claim = m.claim[1:]
		m.work(r, true)
	}
}

// finish lets everything end that nothing blocks any more.
func (m *machine) finish(t *rapid.T) {
	m.boot()
	for range 200 {
		m.dispatch(t)
		m.invariants(t)
		left := 0
		for _, rec := range m.records() {
			if rec.State.Ended() {
				continue
			}
			left++
			m.signal(rec)
			if rec.State == Uncertain {
				m.resolve(rec, rapid.SampledFrom([]Decision{Retry, MarkDone, MarkFailed, GiveUp}).Draw(t, "decision"))
			}
		}
		if left == 0 {
			m.receipts(t)
			return
		}
	}
	for id, rec := range m.records() {
		if !rec.State.Ended() {
			t.Errorf("run %s stays %s (%s %s, due %d): %s", id, rec.State, rec.Wait, rec.WaitRef, rec.NextAt, rec.Error)
		}
	}
	t.FailNow()
}

func (m *machine) receipts(t *rapid.T) {
	for id, rec := range m.records() {
		receipt, err := m.e.Receipt(m.t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(receipt)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := VerifyReceipt(text, m.b.vault.PublicKey()); err != nil {
			t.Fatal(err)
		}
		if err := m.e.CheckReceipt(m.t.Context(), receipt); err != nil {
			t.Fatal(err)
		}
		_, steps, err := m.e.Get(m.t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			if s.State == Open {
				t.Fatalf("run %s is %s and step %s is open", id, rec.State, s.Name)
			}
		}
	}
}

func (m *machine) empty() error {
	return m.b.db.InTx(m.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		for _, q := range []string{"DELETE FROM runs", "DELETE FROM steps", "DELETE FROM nodes", "DELETE FROM meta WHERE key LIKE 'test/%'"} {
			if _, err := tx.Exec(ctx, q); err != nil {
				return err
			}
		}
		return nil
	})
}

func (m *machine) actions() map[string]func(*rapid.T) {
	pick := func(t *rapid.T, fits func(Record) bool) (Record, bool) {
		recs := slices.SortedFunc(maps.Values(m.records()), func(a, b Record) int { return int(a.Seq - b.Seq) })
		recs = slices.DeleteFunc(recs, func(r Record) bool { return !fits(r) })
		if len(recs) == 0 {
			return Record{}, false
		}
		return recs[rapid.IntRange(0, len(recs)-1).Draw(t, "run")], true
	}
	return map[string]func(*rapid.T){
		"": m.invariants,
		"start": func(t *rapid.T) {
			s := Spec{Kind: rapid.SampledFrom([]string{"tell", "doubt"}).Draw(t, "kind"), Input: genOps(t, 1, "s")}
			s.Key = rapid.SampledFrom([]string{"", "one", "one", "two"}).Draw(t, "key")
			if s.Key == "two" {
				s.Width = 2
			}
			m.runs = append(m.runs, m.b.begin(s))
		},
		"claim": func(t *rapid.T) { m.take(t, rapid.IntRange(1, 3).Draw(t, "room")) },
		"work": func(t *rapid.T) {
			if m.take(t, 1); len(m.claim) == 0 {
				t.Skip("nothing is due")
			}
			m.w.points = rapid.IntRange(0, 12).Draw(t, "points to the strike")
			m.w.strikes = rapid.SampledFrom([]string{"kill", "kill", "cancel"}).Draw(t, "strikes")
			local := rapid.Bool().Draw(t, "hears at once")
			r := m.claim[0]
			m.claim = m.claim[1:]
			if m.work(r, local) {
				m.stale = append(m.stale, r)
				m.boot()
			}
			m.w.points = 0
		},
		"kill": func(*rapid.T) { m.boot() },
		"signal": func(t *rapid.T) {
			if rec, ok := pick(t, func(r Record) bool { return r.State == Waiting }); ok {
				m.signal(rec)
			}
		},
		"cancel": func(t *rapid.T) {
			if rec, ok := pick(t, func(r Record) bool { return !r.State.Ended() }); ok {
				m.w.cancel(rec.ID)
			}
		},
		"resolve": func(t *rapid.T) {
			if rec, ok := pick(t, func(r Record) bool { return r.State == Uncertain }); ok {
				m.resolve(rec, rapid.SampledFrom([]Decision{Retry, MarkDone, MarkFailed, GiveUp}).Draw(t, "decision"))
			}
		},
		"write by a stale owner": func(t *rapid.T) {
			if len(m.stale) > 0 {
				m.staleWrites(m.stale[rapid.IntRange(0, len(m.stale)-1).Draw(t, "stale")])
			}
		},
	}
}

// TestEngineKeepsItsPromisesThroughCrashes drives random programs through random
// kills, cancellations, signals and decisions, beside a world that counts effects.
func TestEngineKeepsItsPromisesThroughCrashes(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		cases := 0
		rapid.Check(t, func(rt *rapid.T) {
			if cases++; d.Postgres() && cases > 25 && !testing.Verbose() {
				return // a commit there takes longer; -v does them all
			}
			m := &machine{t: t, b: b, kinds: NewKinds()}
			m.w = &world{steps: map[string]*track{}, started: map[string][]int64{}, cancelled: map[string]bool{}}
			m.w.cancel = func(run string) {
				m.w.mu.Lock()
				m.w.cancelled[run] = true
				m.w.mu.Unlock()
				if err := m.e.Cancel(t.Context(), run, "operator", "test"); err != nil && !fault.Is(err, fault.Conflict) {
					m.w.blame("cancel: %v", err)
				}
			}
			m.add("tell", true)
			m.add("doubt", false)
			b.Engine = New(d, b.vault, b.log, m.kinds, Options{})
			if err := m.empty(); err != nil {
				rt.Fatal(err)
			}
			m.boot()
			rt.Repeat(m.actions())
			m.finish(rt)
		})
	})
}
