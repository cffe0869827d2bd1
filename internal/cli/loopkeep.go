package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) loopRemoveCmd() *cobra.Command {
	return a.command(spec{
		use: "remove NAME", short: "take an installed loop away, with all it may do",
		long: `It takes effect at once. Runs that are under way can do nothing any more. Its notes and its
log stay; what you have set of it does not.`,
		example: "ombud loop remove hello", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		if _, err := a.client.LoopRemove(ctx, wire.LoopRequest{Name: args[0]}); err != nil {
			return err
		}
		return a.show("loop-removed/1", wire.LoopRequest{Name: args[0]}, func(p *page) { p.line("removed %s", args[0]) })
	})
}

func (a *app) loopSetCmd() *cobra.Command {
	var unset []string
	var timeout time.Duration
	var webhook string
	var c *cobra.Command
	c = a.command(spec{
		use: "set NAME [KEY=VALUE…]", short: "set what an installed loop reads, how long it may work, and its webhook",
		long: `KEY=VALUE is what the loop reads by its host function config. It sees what is there, so no
secret belongs there: a loop names a secret, and never sees it. A webhook answers nobody
until you say who may call it: the name of a secret that calls are signed with, or open
for anybody.`,
		example: "ombud loop set hello greeting=hej\nombud loop set hello --unset greeting --timeout 5m\nombud loop set hello --webhook hook-key\nombud loop set hello --webhook off",
		args:    cobra.MinimumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		req := wire.LoopSetRequest{Name: args[0], Unset: unset}
		for _, pair := range args[1:] {
			key, value, ok := strings.Cut(pair, "=")
			if !ok {
				return fault.New(fault.Usage, "%q is not KEY=VALUE", pair)
			}
			req.Set = append(req.Set, wire.LoopSetting{Name: key, Value: value})
		}
		if c.Flags().Changed("timeout") {
			if timeout%time.Second != 0 {
				return fault.New(fault.Usage, "--timeout is in whole seconds, not %s", timeout)
			}
			s := int64(timeout / time.Second)
			req.TimeoutS = &s
		}
		if c.Flags().Changed("webhook") {
			if webhook == "off" {
				webhook = ""
			}
			req.Webhook = &webhook
		}
		if len(req.Set)+len(req.Unset) == 0 && req.TimeoutS == nil && req.Webhook == nil {
			return fault.New(fault.Usage, "there is nothing to set").WithHint("%s --help", c.CommandPath())
		}
		res, err := a.client.LoopSet(ctx, req)
		if err != nil {
			return err
		}
		return a.show("loop/1", res, func(p *page) { loopPage(p, res.Loop) })
	})
	c.Flags().StringSliceVar(&unset, "unset", nil, "forget this key")
	c.Flags().DurationVar(&timeout, "timeout", 0, "how long one run may work; 0 for the usual 12 minutes")
	c.Flags().StringVar(&webhook, "webhook", "", "the name of a secret, open, or off")
	return c
}

func (a *app) loopVerifyCmd() *cobra.Command {
	return a.command(spec{
		use: "verify [NAME]", short: "whether installed loops are what you approved",
		long: `Reads each loop back from the store and holds it against what was approved: its file byte
for byte, its manifest, its signatures, and whether a key was revoked since. Exit code 5
if one is not.`,
		example: "ombud loop verify\nombud loop verify hello", args: cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		var req wire.LoopVerifyRequest
		if len(args) > 0 {
			req.Name = args[0]
		}
		res, err := a.client.LoopVerify(ctx, req)
		if err != nil {
			return err
		}
		err = a.show("loop-verify/1", res, func(p *page) {
			for _, l := range res.Loops {
				if l.Problem == nil {
					p.line("%s %s is what was approved", l.Name, l.Version)
				} else {
					p.line("%s", p.bad(p.clean(oneLine(l.Name+" "+l.Version+": "+l.Problem.Message))))
				}
				for _, n := range l.Notes {
					p.line("  %s", p.warn("note: "+p.clean(oneLine(n))))
				}
			}
			if len(res.Loops) == 0 {
				p.line("no signed loop is installed")
			}
		})
		if err != nil {
			return err
		}
		for _, l := range res.Loops {
			if l.Problem != nil {
				return fault.New(fault.Verification, "%s is not what was approved, or not to be run any more", l.Name).
					WithHint("it starts nothing as long as that is so; ombud loop install puts a good one in its place")
			}
		}
		return nil
	})
}
