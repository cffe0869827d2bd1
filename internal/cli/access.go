package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) accessCmd() *cobra.Command {
	var subject string
	show := a.command(spec{
		use:     "show",
		short:   "the levels in force",
		example: "ombud access show",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.AccessShow(ctx, wire.AccessShowRequest{Subject: subject})
		return a.showAccess(res, err)
	})
	var area string
	set := a.command(spec{
		use:   "set LEVEL",
		short: "set how much is done without asking",
		long: `A level can only ask more than the role does: manual, assisted, supervised or
autonomous. With --area it holds for one area of work (fs, net, memory, …); "default"
takes it back.`,
		example: "ombud access set supervised\nombud access set manual --area fs\nombud access set default --area fs",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.AccessSet(ctx, wire.AccessSetRequest{Subject: subject, Level: args[0], Area: area})
		return a.showAccess(res, err)
	})
	set.Flags().StringVar(&area, "area", "", "one area of work only")
	reach := a.command(spec{
		use:   "scope PRESET",
		short: "set how far into the machine it may reach",
		long: `sandbox: paths in the workspace, and no program is run. workspace: paths in the
workspace. home: paths in your home directory. full: every path. It writes limits,
which only take away: what the role does not give, full does not give either.
"default" removes them.`,
		example: "ombud access scope sandbox\nombud access scope default",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.AccessScope(ctx, wire.AccessScopeRequest{Subject: subject, Preset: args[0]})
		return a.showAccess(res, err)
	})
	c := byDefault(a.noun(spec{
		use: "access", short: "how much is done without asking, and how far it reaches",
		example: "ombud access\nombud access set assisted\nombud access scope workspace",
	}, show, set, reach), show)
	for _, sub := range []*cobra.Command{show, set, reach} {
		sub.Flags().StringVar(&subject, "subject", "", "whose (default agent:main)")
	}
	return c
}

func (a *app) showAccess(res wire.Access, err error) error {
	if err != nil {
		return err
	}
	return a.show("access/1", res, func(p *page) { accessPage(p, res) })
}

func accessPage(p *page, res wire.Access) {
	p.line("%s", p.strong(oneLine(res.Subject)))
	level := res.Level
	if res.Usual {
		level += " (default)"
	}
	p.field("level", level)
	for _, ar := range res.Areas {
		p.field("  "+oneLine(ar.Area), ar.Level)
	}
	reach := res.Preset
	if reach == "" {
		reach = "as its role says"
	}
	p.field("reach", reach)
	nothing := int64(0)
	for _, g := range res.Limits {
		if g.Grants == "nothing" {
			nothing++
			continue
		}
		p.field("  "+g.Effect, oneLine(g.Scope))
	}
	if nothing > 0 {
		p.line("  %s", p.faint(plural(nothing, "limit")+" without effect: its role gives no more; see ombud caps list "+oneLine(res.Subject)))
	}
	p.line("")
	for _, l := range res.Levels {
		p.field(l.Level, l.Doc)
	}
}
