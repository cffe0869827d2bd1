package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) costCmd() *cobra.Command {
	var days int
	c := a.command(spec{
		use:     "cost",
		short:   "what was spent, by day and model",
		long:    "Calls whose price is unknown are counted and said to be so, never taken for free.",
		example: "ombud cost\nombud cost --days 30 --json",
	}, func(ctx context.Context, _ []string) error {
		const most = 366
		if days < 1 || days > most {
			return fault.New(fault.Usage, "--days %d is not between 1 and %d", days, most)
		}
		res, err := a.client.CostReport(ctx, wire.CostReportRequest{Days: days})
		if err != nil {
			return err
		}
		return a.show("cost/1", res, func(p *page) { costPage(p, res) })
	})
	const week = 7
	c.Flags().IntVar(&days, "days", week, "how many days up to today")
	return c
}

func costPage(p *page, res wire.CostReportResult) {
	t := table{head: []string{"DAY", "MODEL", "CALLS", "IN", "OUT", "COST"}}
	for _, d := range res.Days {
		date := d.Date
		for _, m := range d.Models {
			t.add(append([]string{date, modelLine(wire.Model{Provider: m.Provider, Model: m.Model})}, costCells(m.Cost)...)...)
			date = ""
		}
	}
	if len(t.rows) == 0 {
		p.line("nothing was spent")
		return
	}
	t.add(append([]string{"total", ""}, costCells(res.Total)...)...)
	p.table(t)
	if n := res.Total.Unpriced; n > 0 {
		p.line("%s", p.warn(plural(n, "call")+" of unknown price; set one under models.prices in the configuration"))
	}
}

func costCells(c wire.Cost) []string {
	in := c.InputTokens + c.CacheReadTokens + c.CacheWriteTokens
	return []string{fmt.Sprint(c.Calls), fmt.Sprint(in), fmt.Sprint(c.OutputTokens), money(c.MicroUSD, c.Unpriced == 0)}
}
