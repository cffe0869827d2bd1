package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/failpoint"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
)

const (
	page     = 64          // schedules read at once
	maxBatch = 48          // weight of one transaction, which has to be short
	pageAll  = 500         // schedules read at once when all are looked through
	setBack  = time.Minute // how far the clock must go back to be noticed
	again    = time.Second // the first pause after an error
	shortest = time.Millisecond
)

// The kinds of event an instant leaves.
const (
	KindJob     = "scheduler.job"
	KindMissed  = "scheduler.missed"
	KindSkipped = "scheduler.skipped"
	KindFailed  = "scheduler.failed"
)

// Job is the payload of them all. The first four keys are KARMAX's.
type Job struct {
	JobID   string `json:"job_id"`
	JobName string `json:"job_name"`
	AgentID string `json:"agent_id"`
	Payload Said   `json:"payload"`

	Owner   string  `json:"owner"`
	Outcome Outcome `json:"outcome"`
	At      string  `json:"at"` // the nominal instant, with the offset of the zone
	AtUS    int64   `json:"at_us"`
	LateUS  int64   `json:"late_us,omitempty"`
	From    string  `json:"from,omitempty"`  // of a row of instants the first; At is the last
	Count   int     `json:"count,omitempty"` // of a row
	More    bool    `json:"more,omitempty"`  // Count is the least there were
	Why     string  `json:"why,omitempty"`
}

// Said is what a firing starts with.
type Said struct {
	Prompt string `json:"prompt,omitempty"` // absent: the schedule cannot be read
}

// Start looks through the schedules, since the machine's zone, its zone data or its
// clock may have changed meanwhile, and begins to fire. It is safe to call twice.
func (s *Schedules) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quit != nil {
		return nil
	}
	if err := s.review(ctx); err != nil {
		return fmt.Errorf("look through the schedules: %w", err)
	}
	ctx, quit := context.WithCancel(context.WithoutCancel(ctx))
	s.quit = quit
	s.loop.Go(func() { s.run(ctx) })
	return nil
}

// Stop ends the firing and waits for the commit under way. It is safe to call twice.
func (s *Schedules) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quit == nil {
		return
	}
	s.quit()
	s.loop.Wait()
	s.quit = nil
}

// run looks until ctx ends: when the next schedule is due, when one was changed, and at
// least every 30 seconds, whatever a timer says of the time.
func (s *Schedules) run(ctx context.Context) {
	woken, stop := s.db.Watch(topic)
	defer stop()
	last, pause := s.opt.Clock.Read(), again
	for {
		wait, err := s.lookOnce(ctx, &last)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.slog.Warn("fire schedules", "error", err)
			wait, pause = pause, min(2*pause, look)
		default:
			pause = again
		}
		tick, drop := s.opt.Clock.After(wait)
		select {
		case <-tick:
		case <-woken:
		case <-ctx.Done():
		}
		drop()
	}
}

// lookOnce settles what is due and says how long there is nothing to do. last is what
// the clocks showed at the look before.
func (s *Schedules) lookOnce(ctx context.Context, last *eventlog.Reading) (time.Duration, error) {
	now := s.opt.Clock.Read()
	if step := now.Wall.Sub(last.Wall) - (now.Mono - last.Mono); step <= -setBack {
		if err := s.review(ctx); err != nil {
			return 0, err
		}
	}
	*last = now
	if held := s.opt.Held(); held != nil {
		return look, nil //nolint:nilerr // that is no failure
	}
	for {
		more, err := s.settleDue(ctx)
		if err != nil || ctx.Err() != nil {
			return 0, err
		}
		if !more {
			break
		}
	}
	next, err := s.nextDue(ctx)
	if err != nil {
		return 0, err
	}
	wait := look
	if now := s.now(); next < now+look.Microseconds() {
		wait = time.Duration(next-now) * time.Microsecond
	}
	return max(shortest, wait), nil
}

// nextDue is when the next schedule is due, Never if none is.
func (s *Schedules) nextDue(ctx context.Context) (next int64, err error) {
	err = s.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		return q.QueryRow(ctx, "SELECT COALESCE(min(fire_at), $1) FROM schedules WHERE state = 'active'", Never).Scan(&next)
	})
	return next, err
}

// due returns active schedules whose time has come, the earliest first.
func (s *Schedules) due(ctx context.Context, now int64, limit int) (out []Schedule, err error) {
	err = s.db.Read(ctx, func(ctx context.Context, q db.Q) error {
		out, err = s.query(ctx, q, "state = 'active' AND fire_at <= $1 ORDER BY fire_at, seq LIMIT $2", now, limit)
		return err
	})
	return out, err
}

// settleDue settles one page of what is due and reports whether there may be more. The
// plans are made outside of the transactions, which are short and few.
func (s *Schedules) settleDue(ctx context.Context) (more bool, err error) {
	now := s.now()
	list, err := s.due(ctx, now, page)
	if err != nil || len(list) == 0 {
		return false, err
	}
	plans := make([]plan, 0, len(list))
	for _, x := range list {
		plans = append(plans, s.rules.planFor(x, now))
	}
	return true, s.settle(ctx, now, plans)
}

// settle carries plans out in their order, a few in each commit.
func (s *Schedules) settle(ctx context.Context, now int64, plans []plan) error {
	for len(plans) > 0 {
		n, weight := 0, 0
		for n < len(plans) && (n == 0 || weight+plans[n].weight() <= maxBatch) {
			weight += plans[n].weight()
			n++
		}
		if err := s.settleBatch(ctx, now, plans[:n]); err != nil {
			return err
		}
		plans = plans[n:]
	}
	return nil
}

func (s *Schedules) settleBatch(ctx context.Context, now int64, batch []plan) error {
	return s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		for i := range batch {
			if err := s.settleTx(ctx, tx, now, &batch[i]); err != nil {
				return err
			}
		}
		failpoint.Hit("schedule.fired")
		return nil
	})
}

// settleTx takes one schedule over the instants of its plan. One that somebody else has
// moved meanwhile is left to the next look.
func (s *Schedules) settleTx(ctx context.Context, tx *db.Tx, now int64, p *plan) error {
	x := p.s // the function may run twice
	if p.failed != nil {
		return s.failTx(ctx, tx, now, &x, p.failed)
	}
	last := p.verdicts[len(p.verdicts)-1].instant
	x.Settled, x.Next, x.FireAt = last, p.next, x.due(p.next)
	if p.next == Never {
		x.State = Done
	}
	if ok, err := s.step(ctx, tx, &x); err != nil || !ok {
		return err
	}
	for _, v := range p.verdicts {
		if err := s.judge(ctx, tx, now, &x, p, v); err != nil {
			return err
		}
	}
	return s.note(ctx, tx, &x)
}

// failTx puts off a schedule that cannot be read, and tells it once.
func (s *Schedules) failTx(ctx context.Context, tx *db.Tx, now int64, x *Schedule, why error) error {
	x.FireAt = now + unreadable.Microseconds()
	if ok, err := s.step(ctx, tx, x); err != nil || !ok {
		return err
	}
	if x.Last.Outcome == WasFailed && x.Last.Error == why.Error() {
		return nil
	}
	if err := s.failed(ctx, tx, now, x, time.UTC, verdict{instant: x.Next, count: 1}, why); err != nil {
		return err
	}
	return s.note(ctx, tx, x)
}

// judge records one verdict, and fires where it says so.
func (s *Schedules) judge(ctx context.Context, tx *db.Tx, now int64, x *Schedule, p *plan, v verdict) error {
	if !v.fires {
		x.MissedCount += int64(v.count)
		return s.passed(ctx, tx, now, x, p.loc, v, WasMissed)
	}
	if x.Overlap == OverlapSkip {
		busy, err := s.atWork(ctx, tx, x.Last.Run)
		if err != nil {
			return err
		}
		if busy {
			x.MissedCount++
			v.why = "run " + x.Last.Run + " is still at work"
			return s.passed(ctx, tx, now, x, p.loc, v, WasSkipped)
		}
	}
	started, event := "", ""
	err := tx.Savepoint(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
		event, err = s.told(ctx, tx, now, x, p.loc, v)
		if err != nil {
			return err
		}
		started, err = s.fire(ctx, tx, Firing{Schedule: *x, At: time.UnixMicro(v.instant).In(p.loc), Kind: v.kind, Event: event})
		return err
	})
	switch {
	case errors.Is(err, errFiredBefore):
		return nil
	case err != nil:
		return s.failed(ctx, tx, now, x, p.loc, v, err)
	}
	outcome := Fired
	if v.kind == Late {
		outcome = FiredLate
	}
	x.FiredCount++
	x.Last = Last{Outcome: outcome, Instant: v.instant, At: now, Run: started}
	return nil
}

// errFiredBefore says that a nominal instant had its firing: the clock went back.
var errFiredBefore = errors.New("it has fired before")

// told leaves the event of a firing, whose id is the one proof that the instant fired.
func (s *Schedules) told(ctx context.Context, tx *db.Tx, now int64, x *Schedule, loc *time.Location, v verdict) (string, error) {
	j := s.job(x, loc, v)
	j.Outcome, j.LateUS = Fired, max(0, now-x.due(v.instant))
	if v.kind == Late {
		j.Outcome = FiredLate
	}
	n := eventlog.New{
		ID: fmt.Sprintf("schedule:%s:%s:%d", x.ID, x.rule, v.instant), Stream: streamOf(x.ID), Kind: KindJob, Actor: actorOf(x.ID),
		Data: j, Expect: eventlog.Any,
	}
	evs, err := s.log.AppendTx(ctx, tx, n)
	if fault.Is(err, fault.Conflict) || err == nil && evs[0].Repeated {
		return "", errFiredBefore
	}
	return n.ID, err
}

// passed records an instant, or a row of them, that starts nothing.
func (s *Schedules) passed(ctx context.Context, tx *db.Tx, now int64, x *Schedule, loc *time.Location, v verdict, outcome Outcome) error {
	j := s.job(x, loc, v)
	j.Outcome, j.Why, j.LateUS = outcome, v.why, max(0, now-x.due(v.instant))
	if v.from != 0 {
		j.From, j.Count, j.More = show(v.from, loc), v.count, v.more
	}
	kind := KindMissed
	if outcome == WasSkipped {
		kind = KindSkipped
	}
	_, err := s.log.AppendTx(ctx, tx, eventlog.New{Stream: streamOf(x.ID), Kind: kind, Actor: actorOf(x.ID), Data: j, Expect: eventlog.Any})
	x.Last = Last{Outcome: outcome, Instant: v.instant, At: now, Run: x.Last.Run}
	return err
}

// failed records that what was to be started could not be. The first of a row of
// failures is told to the operator.
func (s *Schedules) failed(ctx context.Context, tx *db.Tx, now int64, x *Schedule, loc *time.Location, v verdict, why error) error {
	first := x.Last.Outcome != WasFailed
	x.MissedCount++
	x.Last = Last{Outcome: WasFailed, Instant: v.instant, At: now, Run: x.Last.Run, Error: why.Error()}
	j := s.job(x, loc, v)
	j.Outcome, j.Why = WasFailed, why.Error()
	evs, err := s.log.AppendTx(ctx, tx, eventlog.New{Stream: streamOf(x.ID), Kind: KindFailed, Actor: actorOf(x.ID), Data: j, Expect: eventlog.Any})
	if err == nil && first {
		text := fmt.Sprintf("The schedule %s could not start what it is for at %s: %s", x.title(), show(v.instant, loc), why)
		err = s.opt.Tell(ctx, tx, evs[0].ID, text)
	}
	return err
}

func (s *Schedules) job(x *Schedule, loc *time.Location, v verdict) Job {
	return Job{
		JobID: x.ID, JobName: x.title(), AgentID: x.Starts.Agent, Payload: Said{x.Starts.Say},
		Owner: x.Owner, At: show(v.instant, loc), AtUS: v.instant,
	}
}

// title is what people call a schedule.
func (x *Schedule) title() string {
	if x.Name == "" {
		return x.ID
	}
	return x.Name
}

func streamOf(id string) string { return "schedule:" + id }
func actorOf(id string) string  { return "schedule:" + id }

// atWork reports whether a run is under way. One that waits for a person to decide on
// its unknown outcome is not.
func (s *Schedules) atWork(ctx context.Context, q db.Q, id string) (bool, error) {
	if id == "" {
		return false, nil
	}
	rec, err := s.runs.RecordIn(ctx, q, id)
	if fault.Is(err, fault.NotFound) {
		return false, nil // it is so old that it was pruned
	}
	return err == nil && !rec.State.Ended() && rec.State != run.Uncertain, err
}

// review computes the next instant of every schedule anew from what is settled, for the
// zone data or the machine's zone may be others; and from the present where the clock
// shows less than what is settled. What was only passed by then comes again, what
// fired does not.
func (s *Schedules) review(ctx context.Context) error {
	for from := int64(0); ; {
		now := s.now()
		var list []Schedule
		err := s.db.Read(ctx, func(ctx context.Context, q db.Q) (err error) {
			list, err = s.query(ctx, q, "seq > $1 AND state IN ('active', 'done') ORDER BY seq LIMIT $2", from, pageAll)
			return err
		})
		if err != nil || len(list) == 0 {
			return err
		}
		from = list[len(list)-1].seq
		var wrong []Schedule
		for _, x := range list {
			if s.reviewed(&x, now) {
				wrong = append(wrong, x)
			}
		}
		if len(wrong) == 0 {
			continue
		}
		err = s.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			tx.Notify(topic)
			for _, x := range wrong {
				if _, err := s.step(ctx, tx, &x); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
}

// reviewed sets the next instant of x right and reports whether it was wrong.
func (s *Schedules) reviewed(x *Schedule, now int64) bool {
	if x.Problem != nil || x.State == Active && x.FireAt <= now {
		return false // it is due, and will be settled
	}
	c, err := s.rules.of(x)
	if err != nil {
		return false // told when it is due
	}
	base := min(max(x.Settled, x.Anchor), now)
	before := *x
	x.Next = after(c, base)
	x.FireAt = x.due(x.Next)
	x.State = Active
	if x.Next == Never {
		x.State = Done
	}
	if x.Next != before.Next {
		x.Settled = base
	}
	return x.Next != before.Next || x.FireAt != before.FireAt || x.State != before.State
}
