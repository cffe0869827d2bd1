package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) eventsCmd() *cobra.Command {
	return a.noun(spec{
		use:     "events",
		short:   "the event log",
		example: "ombud events tail\nombud events list --kind \"run.*\" --limit 20",
	}, a.eventsTailCmd(), a.eventsListCmd())
}

func (a *app) eventsTailCmd() *cobra.Command {
	var req wire.EventsTailRequest
	var after int64
	var c *cobra.Command
	c = a.command(spec{
		use:     "tail",
		short:   "follow the log until Ctrl-C",
		example: "ombud events tail\nombud events tail --after 0 --kind \"comms.*\" --json",
	}, func(ctx context.Context, _ []string) error {
		if c.Flags().Changed("after") {
			req.After = &after
		}
		_, err := a.client.EventsTail(ctx, req, func(e wire.Event) error {
			if a.json {
				return a.writeJSON("event/1", e)
			}
			return a.show("event/1", e, func(p *page) { p.event(e) })
		})
		return untilInterrupted(ctx, err)
	})
	c.Flags().Int64Var(&after, "after", 0, "begin behind this position (default: at the end)")
	c.Flags().StringSliceVar(&req.Kinds, "kind", nil, "only these kinds; \"prefix.*\" for a family")
	c.Flags().StringVar(&req.Stream, "stream", "", "only this stream")
	c.Flags().Int64Var(&req.IdleS, "idle", 0, "end after so many `seconds` without an event")
	return c
}

// untilInterrupted is the result of what only ends when the person ends it.
func untilInterrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return nil
	}
	return err
}

// lastOf is the position behind which the last events begin: as many as asked for, or 50.
func lastOf(head int64, limit int) int64 {
	const defaultLast, most = 50, 1000
	if limit <= 0 {
		limit = defaultLast
	}
	return max(0, head-int64(min(limit, most)))
}

func (a *app) eventsListCmd() *cobra.Command {
	var req wire.EventsListRequest
	var c *cobra.Command
	c = a.command(spec{
		use:     "list",
		short:   "a piece of the log, the last 50 events unless --after is given",
		example: "ombud events list\nombud events list --after 100 --limit 20\nombud events list --stream run:run_0197a3c05b0c",
	}, func(ctx context.Context, _ []string) error {
		if !c.Flags().Changed("after") && req.Stream == "" && len(req.Kinds) == 0 {
			head, err := a.client.EventsList(ctx, wire.EventsListRequest{Limit: 1})
			if err != nil {
				return err
			}
			req.After = lastOf(head.Head, req.Limit)
		}
		res, err := a.client.EventsList(ctx, req)
		if err != nil {
			return err
		}
		return a.show("events/1", res, func(p *page) {
			if len(res.Events) == 0 {
				p.line("no events")
			}
			for _, e := range res.Events {
				p.event(e)
			}
		})
	})
	c.Flags().Int64Var(&req.After, "after", 0, "begin behind this position")
	c.Flags().StringSliceVar(&req.Kinds, "kind", nil, "only these kinds; \"prefix.*\" for a family")
	c.Flags().StringVar(&req.Stream, "stream", "", "only this stream")
	limitFlag(c.Flags(), &req.Limit, 1000, "how many (default 100, without --after 50; at most 1000)")
	return c
}

// streamWidth is what the name of a conversation's stream takes.
const streamWidth = 52

// event writes one event on one line: what a person looks for stands in columns.
func (p *page) event(e wire.Event) {
	p.line("%s  %s  %s%s%s", p.faint(fmt.Sprintf("%8d", e.Position)), p.clock(e.At), pad(oneLine(e.Kind), 20),
		pad(oneLine(e.Stream), streamWidth), p.faint(oneLine(e.Actor)))
}
