package cli

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) loopCmd() *cobra.Command {
	list := a.loopListCmd()
	return byDefault(a.noun(spec{
		use: "loop", short: "work that starts by itself, and how it does",
		example: "ombud loop\nombud loop show memory-upkeep\nombud loop run integration-health --wait\nombud loop disable budget-watch\nombud loop install hello-0.1.0.oloop\nombud loop new hello",
	}, append(append(a.loopAuthorCmds(), a.loopOperatorCmds()...), list, a.loopShowCmd(), a.loopRunCmd(), a.loopLogsCmd(),
		a.loopSwitchCmd("disable", "keep a loop from being started by anything", "disabled", a.loopDisable),
		a.loopSwitchCmd("enable", "let a disabled loop be started again", "enabled", a.loopEnable))...), list)
}

func (a *app) loopDisable(ctx context.Context, req wire.LoopRequest) (wire.LoopResult, error) {
	return a.client.LoopDisable(ctx, req)
}

func (a *app) loopEnable(ctx context.Context, req wire.LoopRequest) (wire.LoopResult, error) {
	return a.client.LoopEnable(ctx, req)
}

func (a *app) loopListCmd() *cobra.Command {
	return a.command(spec{
		use: "list", short: "loops, what starts them and how they do",
		long: `STATE is ok; idle before the first run; failing if the last run failed or is in doubt;
dark if the schedule has been quiet for more than three of its intervals; disabled by
ombud loop disable; or off by the configuration.`,
		example: "ombud loop list\nombud loop list --json",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.LoopList(ctx, wire.LoopListRequest{})
		if err != nil {
			return err
		}
		return a.show("loops/1", res, func(p *page) { loopsPage(p, res.Loops) })
	})
}

func loopsPage(p *page, list []wire.Loop) {
	t := table{head: []string{"NAME", "STATE", "STARTS", "NEXT", "LAST", "DOES"}}
	for _, l := range list {
		t.add(l.Name, loopState(p, l), strings.Join(l.Triggers, ", "), loopNext(p, l), loopLast(p, l), short(l.Description, 48))
	}
	p.table(t)
	for _, l := range list {
		if l.Reason != "" {
			p.line("%s is %s: %s", l.Name, l.State, oneLine(l.Reason))
		}
	}
}

func loopState(p *page, l wire.Loop) string {
	if l.State == "failing" || l.State == "dark" {
		return p.bad(l.State)
	}
	return l.State
}

func loopNext(p *page, l wire.Loop) string {
	if l.NextAt == 0 {
		return "-"
	}
	return p.clock(l.NextAt)
}

func loopLast(p *page, l wire.Loop) string {
	if l.Last == nil {
		return "-"
	}
	at := l.Last.CreatedAt
	if l.Last.EndedAt > 0 {
		at = l.Last.EndedAt
	}
	return l.Last.State + " " + p.clock(at)
}

func (a *app) loopShowCmd() *cobra.Command {
	return a.command(spec{
		use: "show NAME", short: "one loop: what it may do, its settings and its last run",
		example: "ombud loop show integration-health", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.LoopList(ctx, wire.LoopListRequest{Name: args[0]})
		if err != nil {
			return err
		}
		return a.show("loop/1", wire.LoopResult{Loop: res.Loops[0]}, func(p *page) { loopPage(p, res.Loops[0]) })
	})
}

func loopPage(p *page, l wire.Loop) {
	p.field("loop", l.Name)
	p.field("does", l.Description)
	state := loopState(p, l)
	if l.Reason != "" {
		state += ": " + oneLine(l.Reason)
	}
	p.field("state", state)
	p.field("starts", strings.Join(l.Triggers, ", "))
	p.field("next", loopNext(p, l))
	p.field("acts as", l.Subject+" by role "+l.Role+" (ombud caps list "+l.Subject+")")
	if l.Signed == nil {
		p.field("time", (time.Duration(l.TimeoutS)*time.Second).String()+" of work in one run")
	}
	if l.Signed != nil {
		signedPage(p, *l.Signed)
	}
	for _, s := range l.Settings {
		p.field("setting", s.Name+"="+oneLine(s.Value))
	}
	if l.Last != nil {
		p.field("last run", l.Last.ID+" "+loopLast(p, l))
	}
}

func (a *app) loopRunCmd() *cobra.Command {
	var payload string
	var wait bool
	var req wire.LoopRunRequest
	c := a.command(spec{
		use: "run NAME", short: "start a loop now",
		long: `The run stands in line behind one that is under way. With --wait the command ends when
the run does, with its error if it failed.`,
		example: "ombud loop run integration-health --wait\nombud loop run memory-upkeep",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		req.Name = args[0]
		if payload != "" {
			req.Payload = json.RawMessage(payload)
			if !strings.HasPrefix(strings.TrimSpace(payload), "{") || !json.Valid(req.Payload) {
				return fault.New(fault.Usage, "--payload is not a JSON object")
			}
		}
		if _, err := a.ensure(ctx); err != nil {
			return err
		}
		res, err := a.client.LoopRun(ctx, req)
		if err != nil {
			return err
		}
		if !wait {
			return a.show("loop-run/1", res, func(p *page) { p.line("started: ombud runs show %s", res.RunID) })
		}
		done, err := a.client.RunsWatch(ctx, wire.RunsWatchRequest{ID: res.RunID}, func(wire.RunNote) error { return nil })
		if err != nil {
			return untilInterrupted(ctx, err)
		}
		if err := runEnded(done.Run); err != nil {
			return err
		}
		return a.show("loop-run/1", res, func(p *page) { p.line("done: ombud runs show %s", res.RunID) })
	})
	c.Flags().StringVar(&payload, "payload", "", "what it is started with, a JSON object")
	c.Flags().BoolVar(&wait, "wait", false, "wait for the end of the run")
	c.Flags().BoolVar(&req.Force, "force", false, "also if it is disabled")
	return c
}

func (a *app) loopLogsCmd() *cobra.Command {
	var req wire.LoopLogsRequest
	c := a.command(spec{
		use: "logs NAME", short: "what a loop or a recipe wrote to its log, oldest first",
		example: "ombud loop logs memory-upkeep\nombud loop logs recipe:morning-briefing --limit 20",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		req.Name = args[0]
		res, err := a.client.LoopLogs(ctx, req)
		if err != nil {
			return err
		}
		return a.show("loop-logs/1", res, func(p *page) {
			for _, l := range res.Lines {
				level := l.Level
				if level == "warn" || level == "error" {
					level = p.bad(level)
				}
				p.line("%s %s %s", p.clock(l.At), level, oneLine(l.Text))
			}
			if len(res.Lines) == 0 {
				p.line("nothing was logged")
			}
		})
	})
	c.Flags().StringVar(&req.RunID, "run", "", "of this run only")
	c.Flags().Int64Var(&req.After, "after", 0, "lines behind this one (its seq)")
	limitFlag(c.Flags(), &req.Limit, 1000, "how many (default 100, at most 1000)")
	return c
}

func (a *app) loopSwitchCmd(verb, does, done string, do func(context.Context, wire.LoopRequest) (wire.LoopResult, error)) *cobra.Command {
	return a.command(spec{
		use: verb + " NAME", short: does, example: "ombud loop " + verb + " budget-watch", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := do(ctx, wire.LoopRequest{Name: args[0]})
		if err != nil {
			return err
		}
		return a.show("loop/1", res, func(p *page) {
			p.line("%s %s", done, res.Loop.Name)
			if res.Loop.State == "off" {
				p.line("it is off all the same: %s", oneLine(res.Loop.Reason))
			}
		})
	})
}
