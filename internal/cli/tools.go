package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) toolsCmd() *cobra.Command {
	list := a.command(spec{
		use:     "list",
		short:   "tools and what the default agent may do with them",
		example: "ombud tools list\nombud tools list --json",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.ToolsList(ctx)
		if err != nil {
			return err
		}
		return a.show("tools/1", res, func(p *page) {
			toolsPage(p, res.Tools)
			if len(res.Processes) > 0 {
				p.line("")
				processTable(p, res.Processes)
			}
		})
	})
	return byDefault(a.noun(spec{
		use: "tools", short: "what can be done, and who may",
		example: "ombud tools\nombud tools test weather",
	}, a.toolsAddCmd(), list, a.toolsRemoveCmd(), a.toolsTestCmd()), list)
}

func toolsPage(p *page, tools []wire.Tool) {
	t := table{head: []string{"TOOL", "ACCESS", "EFFECT", "WHAT IT DOES"}}
	for _, tl := range tools {
		effect := tl.Kind
		switch {
		case tl.Irreversible:
			effect = "irreversible"
		case tl.ReadOnly:
			effect = "reads"
		}
		access, what := tl.Access, tl.Description
		if tl.Quarantined != "" {
			access, what = "quarantined", tl.Quarantined
		}
		first, _, _ := strings.Cut(what, ". ")
		t.add(tl.Name, access, effect, short(first, 72))
	}
	const accessColumn = 1
	t.tint = func(row, col int, cell string) string {
		if col != accessColumn {
			return cell
		}
		switch {
		case tools[row].Quarantined != "" || tools[row].Access == "deny":
			return p.bad(cell)
		case tools[row].Access == "allow":
			return p.good(cell)
		}
		return p.warn(cell)
	}
	p.table(t)
}
