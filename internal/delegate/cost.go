package delegate

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/run"
)

const (
	// firstHold is held for a task at least, in micro-USD, and silentHold for one whose program
	// tells only in the end what it used.
	firstHold  = 500_000
	silentHold = 1_000_000
	// response is what a program asks a model to answer at most at once, in tokens.
	response = 32_000
)

// hold is what a task holds when it begins: what the dearest of the last ones has cost.
// Where its program tells only in the end what it used, nothing can be held later. All that
// it may cost would leave a day no room for three, so it is more of the same.
func (s *Service) hold(ctx context.Context, q db.Q, t Task, most int64) (int64, error) {
	h, _, err := s.pick(t.Harness)
	if err != nil {
		return most, nil //nolint:nilerr // it is not set up any more, which the run says
	}
	if s.Price == nil {
		return most, nil
	}
	least := int64(firstHold)
	if !child.TellsUse(child.Task{CLI: h.CLI, Write: t.Write}) {
		least = silentHold
	}
	_, dearest, _, err := s.typical(ctx, q, h.Name)
	hold := max(least, dearest)
	if most > 0 {
		hold = min(hold, most)
	}
	return hold, err
}

// reserve holds what a task may be expected to cost while it works, and returns what it may
// cost: its limit, or what is left of the budgets above it. 0 is no limit.
func (s *Service) reserve(ctx context.Context, r *run.Run, t Task, auth *act.Authority) (most int64, err error) {
	out, err := r.DoTx(ctx, run.StepSpec{Name: reserveStep, Kind: "budget"}, func(ctx context.Context, tx *db.Tx) run.Outcome {
		left, err := s.Budget.Left(ctx, tx, auth.Agent, "")
		if err != nil {
			return run.Fail(err)
		}
		most := t.Limit
		if left.Limited && left.Left > 0 && (most == 0 || left.Left < most) {
			most = left.Left
		}
		hold, err := s.hold(ctx, tx, t, most)
		if err != nil {
			return run.Fail(err)
		}
		// Its limit is its own: the one of a turn does not hold for it.
		_, err = s.Budget.ReserveTx(ctx, tx, budget.Reserve{
			Run: r.ID(), Apart: true, Step: reserveStep, Agent: auth.Agent, Provider: t.Harness, Model: t.Model, Amount: hold, Known: hold > 0,
		})
		if err != nil {
			return run.Fail(err)
		}
		held, err := json.Marshal(most)
		if err != nil {
			return run.Fail(err)
		}
		return run.Succeed(held)
	})
	if err == nil {
		err = out.Err
	}
	if err == nil {
		err = json.Unmarshal(out.Result, &most)
	}
	return most, err
}

// meter holds more of the budgets while a program tells that it has used more, and ends it
// where they have no more. It is used by one goroutine at a time.
type meter struct {
	s    *Service
	w    *work
	most int64 // the task may cost, 0: no limit
	held int64
	over error // why it was ended
	end  context.CancelCauseFunc
}

// meter returns the meter of a task under way. most is what it may cost.
func (s *Service) meter(ctx context.Context, w *work, most int64, end context.CancelCauseFunc) (*meter, error) {
	m := &meter{s: s, w: w, most: most, end: end}
	err := s.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		rid, err := s.Budget.OpenOf(ctx, q, w.run, reserveStep)
		if err != nil {
			return err
		}
		m.held, err = s.Budget.HeldBy(ctx, q, rid)
		return err
	})
	if fault.Is(err, fault.NotFound) {
		return m, nil // it was begun by a version that held otherwise
	}
	return m, err
}

// spent is told what the program has used so far.
func (m *meter) spent(ctx context.Context, name string, u harness.Usage, c harness.Cost) {
	cost, known := m.s.soFar(m.w, name, u, c)
	if !known {
		cost, known = m.s.likely(m.w, name, u)
	}
	for m.over == nil && (!known || cost > m.held-m.held/3) {
		if known && m.most > 0 && cost >= m.most && m.w.h.CLI != harness.Claude { // which stops by itself
			m.stop(fault.New(fault.Denied, "it has cost %s, and one task may cost %s", budget.USD(cost), budget.USD(m.most)).
				WithHint("raise delegate.usd in the configuration, and go on with its session"))
			return
		}
		want := 2 * m.held
		switch {
		case !known:
			want = m.most // nothing says what would be enough; where nothing limits it, there is no such amount
		case m.most > 0:
			want = min(want, m.most)
		}
		if want <= m.held {
			return
		}
		got, refused, err := m.raise(ctx, want-m.held)
		switch {
		case err != nil:
			m.s.Logger.Error("hold more for a coding agent", "run", m.w.run, "error", err)
			return // and again when it tells more
		case got == 0 && known && cost >= m.held:
			m.stop(refused)
			return
		case got == 0:
			return
		}
		m.held += got
	}
}

func (m *meter) stop(why error) {
	m.over = why
	m.end(why)
}

// raise holds so much more in a commit of its own, or all that is left.
func (m *meter) raise(ctx context.Context, by int64) (got int64, refused, err error) {
	err = m.s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		got, refused = 0, nil
		rid, err := m.s.Budget.OpenOf(ctx, tx, m.w.run, reserveStep)
		if err != nil {
			return err
		}
		if err = m.s.Budget.RaiseTx(ctx, tx, rid, by); err == nil {
			got = by
			return nil
		}
		if refused = err; !fault.Is(err, fault.Denied) {
			return err
		}
		left, err := m.s.Budget.Left(ctx, tx, m.w.agent, "")
		if err != nil || left.Left <= 0 {
			return err
		}
		if err := m.s.Budget.RaiseTx(ctx, tx, rid, left.Left); err != nil && !fault.Is(err, fault.Denied) {
			return err
		} else if err == nil {
			got = left.Left
		}
		return nil
	})
	return got, refused, err
}

// ended makes of the record of a program that the meter ended what it came to.
func (m *meter) ended(rec *harness.Record) {
	if m.over == nil || rec.Outcome == harness.Completed {
		return
	}
	rec.Outcome, rec.Reason, rec.Error = harness.Limit, "budget", m.over.Error()
	if hint := fault.HintOf(m.over); hint != "" {
		rec.Error += " (" + hint + ")"
	}
}

// soFar is what a run has cost, by what its program has told; false where nobody knows.
func (s *Service) soFar(w *work, name string, u harness.Usage, c harness.Cost) (int64, bool) {
	switch {
	case c.Known && c.Cumulative:
		return max(0, c.MicroUSD-w.x.Body.MicroUSD), true
	case c.Known:
		return c.MicroUSD, true
	case s.Price == nil || !u.Known:
		return 0, false
	case u.Cumulative:
		u = since(u, w.x.Body.Usage)
	}
	return s.Price(w.h.CLI, cmp.Or(w.t.Model, name), u)
}

// likely is what a run may have cost at most of which nobody knows it.
func (s *Service) likely(w *work, name string, u harness.Usage) (int64, bool) {
	if s.Likely == nil || !u.Known {
		return 0, false
	}
	if u.Cumulative {
		u = since(u, w.x.Body.Usage)
	}
	return s.Likely(w.h.CLI, cmp.Or(w.t.Model, name), u)
}

// price books what a run cost: the difference where its program counts over its session. Of
// one that was cut off it is what was seen, and the response that was not may come to more.
func (s *Service) price(rep *Report, w *work, rec harness.Record) {
	rep.Total = Total{MicroUSD: rec.Cost.MicroUSD, Usage: rec.Usage}
	rep.Usage = rec.Usage
	if rec.Usage.Cumulative {
		rep.Usage = since(rec.Usage, w.x.Body.Usage)
	}
	rep.MicroUSD, rep.Priced = s.soFar(w, rec.Model, rec.Usage, rec.Cost)
	rep.CutOff = cutOff(rec)
	whole := rec.Cost.Known && rec.Cost.Cumulative
	if !rep.Priced && rep.CutOff { // nothing of it is known, but how much it may be
		if seen, is := s.likely(w, rec.Model, rec.Usage); is {
			unseen, _ := s.Likely(w.h.CLI, cmp.Or(w.t.Model, rec.Model), harness.Usage{Input: rec.Usage.Context, Output: response})
			rep.Possible, rep.Bounded = seen+unseen, true
		}
	}
	if rep.Priced && !whole && rec.Usage.Partial && (rep.MicroUSD > 0 || rep.CutOff) {
		rep.Priced = false
		if rep.CutOff && s.Price != nil {
			rep.Possible, rep.Bounded = s.Price(w.h.CLI, cmp.Or(w.t.Model, rec.Model), harness.Usage{Input: rec.Usage.Context, Output: response})
		}
	}
	if w.try > 1 { // also where it counts over its session: a program that is killed does not write down what it had used
		rep.Priced = false
		w.note("what it used before it was interrupted may be missing in its cost")
	}
}

// cutOff says whether a program was ended, or ended, before it closed its record.
func cutOff(rec harness.Record) bool {
	switch rec.Outcome {
	case harness.Killed, harness.Cut, harness.Interrupted:
		return true
	}
	return rec.Outcome == harness.Limit && rec.Reason == "budget" && rec.Usage.Partial
}

// since is what was used since an earlier count of the same session.
func since(now, was harness.Usage) harness.Usage {
	now.Input, now.Output = max(0, now.Input-was.Input), max(0, now.Output-was.Output)
	now.CacheRead, now.CacheWrite = max(0, now.CacheRead-was.CacheRead), max(0, now.CacheWrite-was.CacheWrite)
	now.Reasoning = max(0, now.Reasoning-was.Reasoning)
	now.Cumulative = false
	return now
}

// costOfEnded fills in what a run cost that did not come to its end, as far as its program
// told it when it was ended.
func (s *Service) costOfEnded(ctx context.Context, tx *db.Tx, runID string, x Session, t Task, rep *Report) error {
	row, err := s.get(ctx, tx, runID)
	if err != nil {
		return err
	}
	k, told, err := s.kept(ctx, tx, runID)
	if fault.Is(err, fault.Verification) { // what is damaged cannot say what it cost, and would hold the budget for ever
		s.Logger.Error("what the program of a task told", "run", runID, "error", err)
		return nil
	}
	if err != nil || !told || k.Try != row.Tries {
		return err
	}
	h, _, err := s.pick(t.Harness)
	if err != nil {
		return nil //nolint:nilerr // it is not set up any more, and what it cost is not known
	}
	s.price(rep, &work{t: t, h: h, x: x, try: row.Tries}, k.Record)
	return nil
}

// letGoTx books what was held against the budget as what it came to: the cost, if that is
// known; what is known of it, and a bounded rest, for a program that was ended; all that was
// held, if it had told nothing or died with a daemon and was started again; a cost nobody
// knows, for one that came to its end; and nothing for one that was never started.
func (s *Service) letGoTx(ctx context.Context, tx *db.Tx, rec run.Record, rep *Report) error {
	rid, err := s.Budget.OpenOf(ctx, tx, rec.ID, reserveStep)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	x, err := s.get(ctx, tx, rec.ID)
	switch {
	case err != nil:
		return err
	case x.Tries == 0:
		return s.Budget.ReleaseTx(ctx, tx, rid)
	}
	u := rep.Usage
	tokens := budget.Tokens{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite}
	if err := s.Budget.TokensTx(ctx, tx, rid, tokens); err != nil {
		return err
	}
	held, err := s.Budget.HeldBy(ctx, tx, rid)
	if err != nil {
		return err
	}
	switch ended := rep.CutOff || rec.State != run.Completed; {
	case x.Tries > 1: // what the earlier starts used is known to nobody; it was held
		rep.Priced, rep.Possible = false, rep.Possible+held
		return s.Budget.AtLeastTx(ctx, tx, rid, rep.MicroUSD, rep.Possible)
	case rep.Priced || !ended:
		return s.Budget.CommitTx(ctx, tx, rid, rep.MicroUSD, rep.Priced)
	case rep.Bounded:
		return s.Budget.AtLeastTx(ctx, tx, rid, rep.MicroUSD, rep.Possible)
	}
	rep.Possible = held
	return s.Budget.PossibleTx(ctx, tx, rid)
}
