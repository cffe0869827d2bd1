package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) memoryCmd() *cobra.Command {
	var list wire.MemoryListRequest
	listCmd := a.command(spec{
		use:     "list",
		short:   "what is remembered, newest first",
		example: "ombud memory list --kind fact",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.MemoryList(ctx, list)
		if err != nil {
			return err
		}
		return a.show("memory/1", res, func(p *page) { memoryPage(p, res) })
	})
	listCmd.Flags().StringVar(&list.Kind, "kind", "", "fact, episode or profile")
	limitFlag(listCmd.Flags(), &list.Limit, 1000, "how many (default 100, at most 1000)")
	listCmd.Flags().StringVar(&list.Before, "before", "", "go on behind this id")
	var limit int
	search := a.command(spec{
		use:     "search WORDS…",
		short:   "recall, as the agent would",
		example: "ombud memory search boiler code",
		args:    cobra.MinimumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.MemorySearch(ctx, wire.MemorySearchRequest{Query: strings.Join(args, " "), Limit: limit})
		if err != nil {
			return err
		}
		return a.show("memory/1", res, func(p *page) { memoryPage(p, res) })
	})
	limitFlag(search.Flags(), &limit, 100, "how many (default 10, at most 100)")
	return byDefault(a.noun(spec{
		use: "memory", short: "what is remembered and where it came from",
		example: "ombud memory\nombud memory search boiler",
	}, listCmd, search), listCmd)
}

func memoryPage(p *page, res wire.MemoryResult) {
	if len(res.Facts) == 0 {
		p.line("nothing")
	} else {
		t := table{head: []string{"WHEN", "KIND", "FROM", "TEXT", "ID"}}
		for _, f := range res.Facts {
			text := short(f.Text, 72)
			if f.Pinned {
				text = "* " + text
			}
			t.add(p.clock(f.At), f.Kind, short(f.Source, 20), text, f.ID)
		}
		p.table(t)
	}
	if res.Index != "" {
		p.line("%s", p.faint("index: "+res.Index))
	}
}
