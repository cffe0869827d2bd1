package daemon

import (
	"context"
	"math"
	"time"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/schedule"
	"github.com/ombud-run/ombud/internal/wire"
)

// openSchedules constructs what starts by itself at times.
func (d *Daemon) openSchedules() {
	d.schedules = schedule.New(d.db, d.vault, d.events, d.runs, d.fireSchedule, schedule.Options{
		Held: d.hold.Refuse, Tell: d.agents.NoticeTx, Logger: d.log,
	})
	d.openTriggers()
}

// fireSchedule starts what a schedule starts: a target, or it says something to an agent,
// which nobody waits for.
func (d *Daemon) fireSchedule(ctx context.Context, tx *db.Tx, f schedule.Firing) (string, error) {
	starts := f.Schedule.Starts
	if starts.Target != "" {
		return d.triggers.Fire(ctx, tx, f)
	}
	in := agent.Inbound{
		Address: agent.Local(named(starts.Conversation)), Title: named(starts.Conversation), Agent: starts.Agent,
		Sender: "schedule:" + f.Schedule.ID, SenderName: "schedule " + f.Schedule.Name, Text: starts.Say,
		Key: f.Event, Cause: f.Event, Unattended: true,
	}
	known, err := d.agents.Conversation(ctx, tx, named(starts.Conversation))
	switch {
	case err == nil:
		in.Address, in.Title = known.Address, known.Title
	case !fault.Is(err, fault.NotFound) || id.Valid("conv", starts.Conversation):
		return "", err
	}
	in.Source, in.Audience, in.Tier = standing(f.Schedule, in.Address)
	got, err := d.agents.IntakeTx(ctx, tx, in)
	return got.Run, err
}

// standing is whose words a schedule says and how far they reach. What an agent has set
// is never more than what a paired chat says: it reads, and asks for the rest. What was
// set with others' words in the context is theirs.
func standing(x schedule.Schedule, at agent.Address) (label.Source, label.Audience, policy.Tier) {
	audience := label.Audience("") // the members of the conversation
	if at.Channel == agent.Local("").Channel {
		audience = label.OperatorOnly
	}
	for _, a := range x.Starts.Label.Audiences {
		if a == label.OperatorOnly && x.Owner != schedule.Operator {
			audience = a
		}
	}
	if x.Owner == schedule.Operator {
		return label.Operator, audience, policy.Trusted
	}
	for _, s := range x.Starts.Label.Sources {
		if !s.Trusted() {
			return s, audience, policy.Paired
		}
	}
	return label.Own, audience, policy.Paired
}

// scheduleMethods are the operator's methods about schedules.
func (d *Daemon) scheduleMethods(m *ipc.Mux) {
	d.triggerMethods(m)
	ipc.Handle(m, wire.ScheduleList, d.scheduleList)
	ipc.Handle(m, wire.ScheduleAdd, d.scheduleAdd)
	ipc.Handle(m, wire.SchedulePause, scheduleChange(d.schedules.Pause))
	ipc.Handle(m, wire.ScheduleResume, scheduleChange(d.schedules.Resume))
	ipc.Handle(m, wire.ScheduleRemove, scheduleChange(d.schedules.Remove))
	ipc.Handle(m, wire.ScheduleRun, func(ctx context.Context, req wire.ScheduleRequest) (wire.ScheduleRunResult, error) {
		x, err := d.schedules.Run(ctx, req.Schedule, byOperator)
		if err != nil {
			return wire.ScheduleRunResult{}, err
		}
		return wire.ScheduleRunResult{Schedule: wireSchedule(x), RunID: x.Last.Run}, nil
	})
}

func scheduleChange(do func(ctx context.Context, name, by string) (schedule.Schedule, error)) func(context.Context, wire.ScheduleRequest) (wire.ScheduleResult, error) {
	return func(ctx context.Context, req wire.ScheduleRequest) (wire.ScheduleResult, error) {
		x, err := do(ctx, req.Schedule, byOperator)
		if err != nil {
			return wire.ScheduleResult{}, err
		}
		return wire.ScheduleResult{Schedule: wireSchedule(x)}, nil
	}
}

func (d *Daemon) scheduleList(ctx context.Context, req wire.ScheduleListRequest) (out wire.ScheduleListResult, err error) {
	list, err := d.schedules.List(ctx, schedule.Filter{Owner: req.Owner, After: req.After, Limit: req.Limit})
	for _, x := range list {
		shown := wireSchedule(x)
		shown.Conversation = d.title(ctx, shown.Conversation)
		out.Schedules = append(out.Schedules, shown)
	}
	return out, err
}

func (d *Daemon) scheduleAdd(ctx context.Context, req wire.ScheduleAddRequest) (wire.ScheduleResult, error) {
	spec := schedule.Spec{
		Owner: schedule.Operator, Name: req.Name, When: req.When, Zone: req.Zone,
		Starts: schedule.Starts{Say: req.Say, Agent: req.Agent, Conversation: req.Conversation},
		Missed: schedule.Missed(req.Missed), Overlap: schedule.Overlap(req.Overlap), Jitter: lengthOf(req.JitterS),
	}
	if req.GraceS != nil {
		if spec.Grace = lengthOf(*req.GraceS); *req.GraceS == 0 {
			spec.Grace = -1
		}
	}
	if req.Replace && req.Name == "" {
		return wire.ScheduleResult{}, fault.New(fault.Invalid, "what is replaced needs its name")
	}
	if err := d.canHear(ctx, req); err != nil {
		return wire.ScheduleResult{}, err
	}
	put := d.schedules.Add
	if req.Replace {
		put = d.schedules.Put
	}
	x, err := put(ctx, spec, byOperator)
	if err != nil {
		return wire.ScheduleResult{}, err
	}
	return wire.ScheduleResult{Schedule: wireSchedule(x)}, nil
}

// lengthOf is a number of seconds as a length. Of more than a time.Duration holds it is the
// longest there is, which is refused like any that is too long.
func lengthOf(n int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Second)
	return time.Duration(max(-most, min(n, most))) * time.Second
}

// canHear refuses an agent or a conversation that is not there: a schedule would only
// fail when its time has come.
func (d *Daemon) canHear(ctx context.Context, req wire.ScheduleAddRequest) error {
	if _, there := d.o.Config.Config.Agents[req.Agent]; req.Agent != "" && req.Agent != agent.Default && !there {
		return fault.New(fault.NotFound, "there is no agent %q", req.Agent)
	}
	if !id.Valid("conv", req.Conversation) {
		return nil // a local one is made by its first message
	}
	_, err := d.conversation(ctx, req.Conversation)
	return err
}

func wireSchedule(x schedule.Schedule) wire.Schedule {
	out := wire.Schedule{
		ID: x.ID, Name: x.Name, Owner: x.Owner, When: x.When, Zone: x.Zone, Target: x.Starts.Target, Say: x.Starts.Say,
		Agent: x.Starts.Agent, Conversation: x.Starts.Conversation, Missed: string(x.Missed), GraceS: int64(max(0, x.Grace) / time.Second),
		Overlap: string(x.Overlap), JitterS: int64(x.Jitter / time.Second), State: string(x.State), AddedAt: x.Created,
		Fired: x.FiredCount, MissedCount: x.MissedCount,
	}
	if x.Problem != nil {
		out.Problem = problem(fault.ClassOf(x.Problem), x.Problem.Error())
	}
	if x.State == schedule.Active && x.Next != schedule.Never {
		out.NextAt, out.FireAt, out.Next = x.Next, x.FireAt, x.Show(x.Next)
	}
	if x.Last.Outcome != "" {
		out.Last = &wire.ScheduleLast{
			Outcome: string(x.Last.Outcome), At: x.Last.Instant, InZone: x.Show(x.Last.Instant), EndedAt: x.Last.At, RunID: x.Last.Run, Error: x.Last.Error,
		}
	}
	return out
}

// lastFiring is what the newest instant of a schedule led to.
func (d *Daemon) lastFiring(ctx context.Context, name string) (event, runID string, err error) {
	x, err := d.schedules.Get(ctx, name)
	if err != nil || x.Last.Run != "" {
		return "", x.Last.Run, err
	}
	for _, kind := range []string{schedule.KindFailed, schedule.KindMissed, schedule.KindSkipped, schedule.KindJob} {
		if e, err := d.events.Last(ctx, "schedule:"+x.ID, kind); err == nil {
			return e.ID, "", nil
		}
	}
	return "", "", fault.New(fault.NotFound, "no instant of schedule %s has come yet", x.Name).WithHint("ombud schedule list shows the next one")
}

// overdueSchedules are the schedules that would fire, or pass by their instants, as soon
// as the instance is let go.
func (d *Daemon) overdueSchedules(ctx context.Context) (out []wire.PendingTimer, err error) {
	list, err := d.schedules.Overdue(ctx, most)
	for _, x := range list {
		out = append(out, wire.PendingTimer{ID: x.ID, Kind: "schedule", At: x.Next, Text: beginning(x.Name + ": " + x.Starts.Say)})
	}
	return out, err
}

// skipOverdue passes over all that should have fired by now.
func (d *Daemon) skipOverdue(ctx context.Context) (n int, err error) {
	if n, err = d.runs.SkipOverdue(ctx); err != nil {
		return n, err
	}
	passed, err := d.schedules.SkipOverdue(ctx, "passed over after a restore")
	return n + passed, err
}
