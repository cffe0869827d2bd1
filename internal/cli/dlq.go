package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) dlqCmd() *cobra.Command {
	var req wire.DLQListRequest
	list := a.command(spec{
		use:     "list",
		short:   "events that a subscription gave up on, oldest first",
		example: "ombud dlq list\nombud dlq list --all --json",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.DLQList(ctx, req)
		if err != nil {
			return err
		}
		return a.show("dlq/1", res, func(p *page) { dlqPage(p, res.Letters) })
	})
	list.Flags().BoolVar(&req.All, "all", false, "replayed ones too")
	list.Flags().IntVar(&req.Limit, "limit", 0, "how many (default 100, at most 1000)")
	replay := a.command(spec{
		use:     "replay ID",
		short:   "hand a dead letter to its subscription again, out of order",
		example: "ombud dlq replay dlq_0197a3",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.DLQReplay(ctx, wire.DLQReplayRequest{ID: args[0]})
		if err != nil {
			return err
		}
		return a.show("dlq-replay/1", res, func(p *page) {
			p.line("replayed %s to %s", res.Letter.Event.ID, res.Letter.Subscription)
		})
	})
	return byDefault(a.noun(spec{
		use: "dlq", short: "dead letters: events nobody could handle",
		example: "ombud dlq\nombud dlq replay dlq_0197a3",
	}, list, replay), list)
}

func dlqPage(p *page, letters []wire.DeadLetter) {
	if len(letters) == 0 {
		p.line("no dead letters")
		return
	}
	for _, l := range letters {
		p.line("%s  %s", p.strong(oneLine(l.ID)), oneLine(l.Event.Kind+" "+l.Event.ID))
		p.field("  for", l.Subscription)
		p.problem("  error", l.Problem)
		p.field("  given up", fmt.Sprintf("%s after %s", p.clock(l.At), plural(int64(l.Attempts), "attempt")))
		if l.ReplayedAt > 0 {
			p.field("  replayed", p.clock(l.ReplayedAt))
		}
	}
}
