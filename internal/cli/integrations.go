package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) integrationsCmd() *cobra.Command {
	var req wire.IntegrationsRequest
	c := a.command(spec{
		use: "integrations", short: "how everything stands that ombud depends on",
		long: `Models, tool processes, channels and webhooks, as the loop integration-health found them
last; it looks every 15 minutes and tells you of each change once. --check looks now.`,
		example: "ombud integrations\nombud integrations --check --json",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.IntegrationsList(ctx, req)
		if err != nil {
			return err
		}
		return a.show("integrations/1", res, func(p *page) { integrationsPage(p, res.Integrations) })
	})
	c.Flags().BoolVar(&req.Check, "check", false, "look at all of them now")
	return c
}

func integrationsPage(p *page, list []wire.Integration) {
	if len(list) == 0 {
		p.line("nothing was looked at yet: ombud integrations --check")
		return
	}
	t := table{head: []string{"NAME", "KIND", "STATE", "SINCE", "CHECKED", "WHY"}}
	for _, i := range list {
		state := i.State
		if state == "failing" || state == "degraded" {
			state = p.bad(state)
		}
		t.add(oneLine(i.Name), i.Kind, state, p.clock(i.SinceAt), p.clock(i.CheckedAt), short(oneLine(i.Reason), 80))
	}
	p.table(t)
}
