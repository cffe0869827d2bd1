package daemon

import (
	"context"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/trigger"
	"github.com/ombud-run/ombud/internal/wire"
)

// openTriggers constructs what can be started and what starts it.
func (d *Daemon) openTriggers() {
	d.triggers = trigger.New(d.db, d.vault, d.events, d.runs, d.schedules, trigger.Options{
		Held: d.hold.Refuse, Secrets: d.secrets, Tell: d.agents.NoticeTx, Logger: d.log,
	})
}

// triggerMethods are the operator's methods about them.
func (d *Daemon) triggerMethods(m *ipc.Mux) { ipc.Handle(m, wire.TriggersList, d.triggersList) }

func (d *Daemon) triggersList(ctx context.Context, req wire.TriggersListRequest) (out wire.TriggersListResult, err error) {
	targets, err := d.triggers.List(ctx, req.Owner)
	if err != nil {
		return out, err
	}
	routes, err := d.triggers.Routes(ctx)
	if err != nil {
		return out, err
	}
	listed := map[string]bool{}
	for _, s := range targets {
		listed[s.Name] = true
		out.Targets = append(out.Targets, wireTarget(s))
	}
	for _, r := range routes {
		if listed[r.Target] {
			out.Webhooks = append(out.Webhooks, wire.Webhook{
				Path: trigger.HooksPath + r.Path, Target: r.Target, Scheme: string(r.Scheme), Secrets: r.Secrets, Missing: r.Missing, Accepted: r.Accepted,
				Repeated: r.Repeated, Refused: r.Refused, SeenAt: r.SeenAt, RefusedAt: r.RefusedAt, Refusal: r.Refusal,
			})
		}
	}
	if d.listener == nil {
		out.Problem = problem(fault.Config, "listen.address is off")
		return out, nil
	}
	st := d.listener.State()
	if st.Open {
		out.Listener = st.Address
	} else if st.Problem != nil {
		out.Problem = problem(fault.ClassOf(st.Problem), st.Problem.Error())
	}
	return out, nil
}

func wireTarget(s trigger.Standing) wire.Target {
	out := wire.Target{
		Name: s.Name, Owner: s.Owner, Paused: s.Stopped(), PausedBy: s.PausedBy, Started: s.Started, LastRun: s.LastRun, LastAt: s.LastAt,
		Withheld: s.Withheld, WithheldAt: s.WithheldAt,
	}
	if s.Problem != nil {
		out.Problem = problem(fault.ClassOf(s.Problem), s.Problem.Error())
	}
	for _, on := range s.On {
		switch {
		case on.Event != nil:
			text := "event " + strings.Join(on.Event.Kinds, ", ")
			if len(on.Event.Where) > 0 {
				text += " with conditions"
			}
			out.On = append(out.On, text)
		case on.Schedule != nil:
			text := "schedule " + on.Schedule.When
			if on.Schedule.Zone != "" {
				text += " " + on.Schedule.Zone
			}
			out.On = append(out.On, text)
		case on.Webhook != nil:
			out.On = append(out.On, "webhook "+trigger.HooksPath+on.Webhook.Path)
		case on.Timer:
			out.On = append(out.On, "its timers")
		}
	}
	if len(out.On) == 0 {
		out.On = []string{"hand only"}
	}
	return out
}
