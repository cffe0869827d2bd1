package daemon

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/loops"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/schedule"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/internal/wire"
)

// openLoops constructs what loops and recipes work with, and the loops.
func (d *Daemon) openLoops(cfg config.Config, kinds *run.Kinds) error {
	d.kit = loops.Deps{
		DB: d.db, Vault: d.vault, Log: d.events, Runs: d.runs, Act: d.act, Agents: d.agents, Approvals: d.approvals, Blobs: d.blobs,
		Triggers: d.triggers, Held: d.grants, Usual: d.grants.Usual(), Chats: d.operatorChats, Hide: d.hide, Logger: d.log,
	}
	role, err := d.roles.Get(policy.RoleFirstParty)
	if err != nil {
		return err
	}
	d.health = loops.NewIntegrations(d.db, d.vault, d.hide, d.probes)
	set := map[string]loops.Setting{}
	for name, x := range cfg.Loops {
		set[name] = loops.Setting{Enabled: x.Enabled, Timeout: x.Timeout, Values: x.Set}
	}
	if d.loopSet, err = loops.New(d.kit, d.budget, role, d.triggers, d.shippedLoops(), set); err != nil {
		return err
	}
	return errors.Join(
		kinds.Add(d.loopSet.Kind()), kinds.Add(loops.CallKind(d.kit, d.actorOf, d.budget)), kinds.Add(loops.SendKind(d.kit)),
	)
}

// operatorChats are the chats in which a paired sender is the operator.
func (d *Daemon) operatorChats(ctx context.Context) (chats []string, err error) {
	list, err := d.pairing.List(ctx)
	for _, i := range list {
		if i.OperatorIn(i.Chat, false) {
			chats = append(chats, i.Chat)
		}
	}
	return chats, err
}

// shippedLoops are the loops that are compiled in.
func (d *Daemon) shippedLoops() []loops.Loop {
	return append([]loops.Loop{
		d.health.Loop(), loops.MemoryUpkeep(d.memory), loops.BudgetWatch(d.budget, time.Local), loops.LetterWatch(d.letters),
	}, d.extraLoops()...)
}

// actorOf is who a subject that works by itself is. NotFound if nobody.
func (d *Daemon) actorOf(subject string) (loops.Actor, error) {
	if strings.HasPrefix(subject, "recipe:") {
		return d.recipeWork.Actor(subject)
	}
	who, err := d.loopSet.Actor(subject)
	if fault.Is(err, fault.NotFound) && strings.HasPrefix(subject, loops.Owner+":") {
		if _, there := d.signed.Current(strings.TrimPrefix(subject, loops.Owner+":")); there {
			return d.signedWork.Actor(subject)
		}
	}
	return who, err
}

// startLoops lets the triggers know the loops.
func (d *Daemon) startLoops(ctx context.Context) error {
	if err := d.signed.StartTargets(ctx); err != nil { // first: it lets go of a name that a loop of ombud has now
		return err
	}
	return d.loopSet.StartTargets(ctx)
}

// memoryOf says whose memory a subject uses: an agent its own, and what works by itself
// that of the agent it works with.
func memoryOf(subject string) string {
	if strings.HasPrefix(subject, "loop:") || strings.HasPrefix(subject, "recipe:") {
		return agent.Default
	}
	return strings.TrimPrefix(subject, "agent:")
}

// permitActor is what policy is asked about a call of a loop or a recipe. NotFound for
// any other subject.
func (d *Daemon) permitActor(subject string, held policy.Held) (policy.Input, error) {
	who, err := d.actorOf(subject)
	if err != nil {
		return policy.Input{}, err
	}
	return who.Permit(held, d.grants.Usual())
}

// loopMethods are the operator's methods about them.
func (d *Daemon) loopMethods(m *ipc.Mux) {
	ipc.Handle(m, wire.LoopList, d.loopList)
	ipc.Handle(m, wire.LoopRun, d.loopRun)
	ipc.Handle(m, wire.LoopDisable, d.loopSwitch(d.triggers.Pause))
	ipc.Handle(m, wire.LoopEnable, d.loopSwitch(d.triggers.Resume))
	ipc.Handle(m, wire.LoopLogs, d.loopLogs)
	ipc.Handle(m, wire.IntegrationsList, d.integrationsList)
}

func (d *Daemon) loopList(ctx context.Context, req wire.LoopListRequest) (out wire.LoopListResult, err error) {
	if req.Name == "" {
		out.Loops, err = d.everyLoop(ctx)
		return out, err
	}
	out.Loops = make([]wire.Loop, 1)
	out.Loops[0], err = d.oneLoop(ctx, req.Name)
	return out, err
}

func (d *Daemon) wireLoop(ctx context.Context, s loops.Status) (wire.Loop, error) {
	out := wire.Loop{
		Name: s.Name, Kind: "compiled", Description: s.Description, State: s.State, Reason: s.Reason, Subject: s.Standing.Name,
		Role: policy.RoleFirstParty, TimeoutS: int64(s.Setting.Timeout / time.Second), Started: s.Standing.Started, LastOKAt: s.LastOK,
	}
	if out.TimeoutS == 0 {
		out.TimeoutS = int64(loops.UsualTime / time.Second)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Setting.Values)) {
		out.Settings = append(out.Settings, wire.LoopSetting{Name: name, Value: s.Setting.Values[name]})
	}
	for _, on := range s.Standing.On {
		out.Triggers = append(out.Triggers, triggerText(on))
	}
	if s.Last != nil {
		shown := wireRun(*s.Last, nil)
		out.Last = &shown
	}
	times, err := d.schedules.List(ctx, schedule.Filter{Owner: s.Standing.Name})
	for _, x := range times {
		if x.State == schedule.Active && !s.Standing.Stopped() && (out.NextAt == 0 || x.Next < out.NextAt) {
			out.NextAt = x.Next
		}
	}
	return out, err
}

// triggerText tells a trigger to a person.
func triggerText(on trigger.On) string {
	switch {
	case on.Schedule != nil && on.Schedule.Zone != "":
		return on.Schedule.When + " " + on.Schedule.Zone
	case on.Schedule != nil:
		return on.Schedule.When
	case on.Event != nil:
		return "event " + strings.Join(on.Event.Kinds, ", ")
	case on.Webhook != nil:
		return "webhook /hooks/" + on.Webhook.Path
	case on.Timer:
		return "timer"
	}
	return "by hand"
}

func (d *Daemon) loopRun(ctx context.Context, req wire.LoopRunRequest) (wire.LoopRunResult, error) {
	s, err := d.oneLoop(ctx, req.Name)
	if err != nil {
		return wire.LoopRunResult{}, err
	}
	if s.Signed != nil && s.Signed.Stopped != "" {
		return wire.LoopRunResult{}, fault.New(fault.Denied, "loop %s: %s", s.Name, s.Signed.Stopped)
	}
	start := d.triggers.Manual
	if req.Force {
		start = d.triggers.Force
	}
	id, err := start(ctx, s.Subject, req.Payload, byOperator)
	if fault.Is(err, fault.Conflict) && s.State == loops.Disabled {
		err = fault.New(fault.Conflict, "loop %s is disabled %s", s.Name, s.Reason).WithHint("ombud loop enable %s, or --force", s.Name)
	}
	return wire.LoopRunResult{RunID: id}, err
}

// loopSwitch pauses or resumes a loop's target.
func (d *Daemon) loopSwitch(do func(ctx context.Context, target, by string) (trigger.Standing, error)) func(context.Context, wire.LoopRequest) (wire.LoopResult, error) {
	return func(ctx context.Context, req wire.LoopRequest) (out wire.LoopResult, err error) {
		s, err := d.oneLoop(ctx, req.Name)
		if err != nil {
			return out, err
		}
		if _, err := do(ctx, s.Subject, byOperator); err != nil {
			return out, err
		}
		out.Loop, err = d.oneLoop(ctx, req.Name)
		return out, err
	}
}

func (d *Daemon) loopLogs(ctx context.Context, req wire.LoopLogsRequest) (out wire.LoopLogsResult, err error) {
	subject := req.Name
	if !strings.Contains(subject, ":") {
		subject = loops.Owner + ":" + subject
	}
	if req.Limit == 0 {
		req.Limit = 100
	}
	lines, err := d.kit.Lines(ctx, subject, req.RunID, req.After, req.Limit)
	if err != nil {
		return out, err
	}
	if len(lines) == 0 { // of what is gone there may be a log all the same, and runs
		if _, err := d.actorOf(subject); err != nil {
			return out, err
		}
	}
	for _, l := range lines {
		out.Lines = append(out.Lines, wire.LoopLine{Seq: l.Seq, RunID: l.Run, At: l.At, Level: l.Level, Text: l.Text})
	}
	return out, nil
}
