package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) dlqCmd() *cobra.Command {
	list := a.dlqListCmd()
	return byDefault(a.noun(spec{
		use: "dlq", short: "dead letters: events, runs and deliveries that were given up",
		example: "ombud dlq\nombud dlq show dead_0197a3\nombud dlq replay dead_0197a3\nombud dlq drop dead_0197a3 --note \"sent it by hand\"",
	}, list, a.dlqShowCmd(), a.dlqReplayCmd(), a.dlqDropCmd()), list)
}

// letterSources are what can give something up.
var letterSources = []string{"subscription", "run", "delivery"}

// faultClasses are the classes an error has.
func faultClasses() (out []string) {
	for _, c := range fault.Codes() {
		out = append(out, string(c.Class))
	}
	return out
}

func (a *app) dlqListCmd() *cobra.Command {
	var req wire.DLQListRequest
	var since time.Duration
	c := a.command(spec{
		use:     "list",
		short:   "what was given up, oldest first",
		example: "ombud dlq list\nombud dlq list --source run --name recipe --since 24h\nombud dlq list --all --json",
	}, func(ctx context.Context, _ []string) error {
		if req.Source != "" && !slices.Contains(letterSources, req.Source) {
			return fault.New(fault.Usage, "--source %q is none of %s", req.Source, strings.Join(letterSources, ", "))
		}
		if req.Class != "" && !slices.Contains(faultClasses(), req.Class) {
			return fault.New(fault.Usage, "--class %q is none of %s", req.Class, strings.Join(faultClasses(), ", "))
		}
		if since < 0 {
			return fault.New(fault.Usage, "--since %s: it is how long ago, for example 24h", since)
		}
		if since > 0 {
			req.Since = time.Now().Add(-since).UnixMicro()
		}
		res, err := a.client.DLQList(ctx, req)
		if err != nil {
			return err
		}
		return a.show("dlq/1", res, func(p *page) { dlqPage(p, res) })
	})
	c.Flags().BoolVar(&req.All, "all", false, "those that were replayed or dropped too")
	c.Flags().StringVar(&req.Source, "source", "", strings.Join(letterSources[:2], ", ")+" or "+letterSources[2])
	c.Flags().StringVar(&req.Name, "name", "", "of one subscription, kind of run or channel")
	c.Flags().StringVar(&req.Class, "class", "", "of one class of error, such as timeout")
	c.Flags().DurationVar(&since, "since", 0, "given up in this time, such as 24h")
	c.Flags().StringVar(&req.After, "after", "", "go on behind this letter")
	limitFlag(c.Flags(), &req.Limit, 1000, "how many (default 100, at most 1000)")
	return c
}

func (a *app) dlqShowCmd() *cobra.Command {
	return a.command(spec{
		use: "show ID", short: "one dead letter, and how to go on", example: "ombud dlq show dead_0197a3", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.DLQShow(ctx, wire.DLQRequest{ID: args[0]})
		if err != nil {
			return err
		}
		return a.show("dlq-show/1", res, func(p *page) {
			letterPage(p, res.Letter)
			for _, w := range res.Letter.WaysToGoOn {
				p.field("  "+w.Command, w.Does)
			}
		})
	})
}

func (a *app) dlqReplayCmd() *cobra.Command {
	var req wire.DLQReplayRequest
	c := a.command(spec{
		use:     "replay ID",
		short:   "have it done again: an event handled, a run go on, a message sent",
		example: "ombud dlq replay dead_0197a3\nombud dlq replay dead_0197a3 --fresh",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		req.ID = args[0]
		res, err := a.client.DLQReplay(ctx, req)
		if err != nil {
			return err
		}
		return a.show("dlq-replay/1", res, func(p *page) { p.line("%s", replayed(res.Letter)) })
	})
	c.Flags().BoolVar(&req.Fresh, "fresh", false, "of a run: begin a new one instead of going on from its recorded steps")
	c.Flags().StringVar(&req.Note, "note", "", "why, for the record")
	return c
}

func (a *app) dlqDropCmd() *cobra.Command {
	var req wire.DLQDropRequest
	c := a.command(spec{
		use: "drop ID", short: "lay a dead letter to rest: nothing more is done about it",
		example: "ombud dlq drop dead_0197a3 --note \"sent it by hand\"", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		req.ID = args[0]
		res, err := a.client.DLQDrop(ctx, req)
		if err != nil {
			return err
		}
		return a.show("dlq-drop/1", res, func(p *page) { p.line("dropped %s", res.Letter.ID) })
	})
	c.Flags().StringVar(&req.Note, "note", "", "why, for the record")
	return c
}

// replayed says what a replay has set going.
func replayed(l wire.DeadLetter) string {
	switch l.Source {
	case "run":
		if l.RunID != l.Ref {
			return fmt.Sprintf("begun anew as %s: ombud runs show %s", l.RunID, l.RunID)
		}
		return fmt.Sprintf("%s goes on: ombud runs show %s", l.Ref, l.Ref)
	case "delivery":
		return fmt.Sprintf("%s is sent again", l.Ref)
	}
	return fmt.Sprintf("replayed %s to %s", l.Ref, oneLine(l.Name))
}

func dlqPage(p *page, res wire.DLQListResult) {
	if len(res.Letters) == 0 {
		p.line("no dead letters")
		return
	}
	for _, l := range res.Letters {
		letterPage(p, l)
	}
	if res.Next != "" {
		p.line("more: ombud dlq list --after %s", res.Next)
	}
}

func letterPage(p *page, l wire.DeadLetter) {
	what := l.Source + " " + l.Name + ": " + l.Ref
	if l.Title != "" && l.Title != l.Name {
		what += " (" + l.Title + ")"
	}
	p.line("%s  %s", p.strong(oneLine(l.ID)), oneLine(what))
	p.problem("  error", l.Problem)
	given := fmt.Sprintf("%s after %s", p.clock(l.At), plural(int64(l.Attempts), "attempt"))
	if l.FirstAt > 0 && l.FirstAt < l.At {
		given += ", the first failed " + p.clock(l.FirstAt)
	}
	p.field("  given up", given)
	if l.Cause != "" {
		p.field("  cause", l.Cause)
	}
	if l.State != "waiting" {
		p.field("  "+l.State, fmt.Sprintf("%s by %s", p.clock(l.SettledAt), oneLine(l.SettledBy)))
	}
	if l.RunID != "" && l.RunID != l.Ref {
		p.field("  as", l.RunID)
	}
}
