package daemon

import (
	"context"
	"errors"
	"strings"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/loops"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
)

// openLoops constructs what loops and recipes work with, and the loops.
func (d *Daemon) openLoops(cfg config.Config, kinds *run.Kinds) error {
	d.kit = loops.Deps{
		DB: d.db, Vault: d.vault, Log: d.events, Runs: d.runs, Act: d.act, Agents: d.agents, Approvals: d.approvals, Blobs: d.blobs,
		Triggers: d.triggers, Held: d.grants, Usual: d.grants.Usual(), Hide: d.hide, Logger: d.log,
	}
	role, err := d.roles.Get(policy.RoleFirstParty)
	if err != nil {
		return err
	}
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

// shippedLoops are the loops that are compiled in.
func (d *Daemon) shippedLoops() []loops.Loop { return nil }

// actorOf is who a subject that works by itself is. NotFound if nobody.
func (d *Daemon) actorOf(subject string) (loops.Actor, error) {
	if strings.HasPrefix(subject, "recipe:") {
		return d.recipeWork.Actor(subject)
	}
	return d.loopSet.Actor(subject)
}

// startLoops lets the triggers know the loops.
func (d *Daemon) startLoops(ctx context.Context) error { return d.loopSet.StartTargets(ctx) }

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
