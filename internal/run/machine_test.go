package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

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
	if rec.State != Waiting || rec.Wait != ForSignal && rec.Wait != ForSeveral {
		return
	}
	var prog []op
	if err := json.Unmarshal(rec.Input, &prog); err != nil {
		m.t.Fatal(err)
	}
	names, hears := parks(prog)
	if rec.Wait == ForSignal {
		names, hears = []string{rec.WaitRef}, rec.WaitRef == "go"
	}
	if hears {
		m.w.signals++
		if err := m.e.Signal(m.t.Context(), rec.ID, "go", json.RawMessage(fmt.Sprint(m.w.signals)), "operator"); err != nil {
			m.w.blame("signal: %v", err)
		}
		if rec.Wait == ForSignal {
			return
		}
	}
	if err := m.b.db.InTx(m.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		for _, name := range names {
			if there, err := marked(ctx, tx, "signal/"+rec.ID+"/"+name); err != nil {
				return err
			} else if there {
				continue
			}
			if err := mark(ctx, tx, "signal/"+rec.ID+"/"+name); err != nil {
				return err
			}
			return m.e.WakeTx(ctx, tx, rec.ID, ForSignal, name)
		}
		return nil
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
			var all []string
			for _, r := range slices.SortedFunc(maps.Values(recs), func(a, b Record) int { return int(a.Seq - b.Seq) }) {
				slot := int64(-1)
				if r.slot != nil {
					slot = *r.slot
				}
				all = append(all, fmt.Sprintf("%s child of %q: %s, slot %d, due %d", r.ID, r.Parent, r.State, slot, r.NextAt))
			}
			t.Fatalf("key %s: %d slots, %d active, width %d\n%s", r.Key, slots[r.Key], active[r.Key], r.Width, strings.Join(all, "\n"))
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
	recs, _, err := m.e.claim(m.t.Context(), room)
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
		for _, q := range []string{"DELETE FROM runs", "DELETE FROM steps", "DELETE FROM nodes", "DELETE FROM waiters", "DELETE FROM signals", "DELETE FROM meta WHERE key LIKE 'test/%'"} {
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
			s := Spec{Kind: rapid.SampledFrom([]string{"tell", "doubt"}).Draw(t, "kind"), Input: genOps(t, 2, "s")}
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
			m.w = &world{steps: map[string]*track{}, started: map[string][]int64{}, cancelled: map[string]bool{}, taken: map[string]string{}, joined: map[string]string{}}
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
