package cli

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) delegateDropCmd() *cobra.Command {
	var req wire.DelegateDropRequest
	var older string
	c := a.command(spec{
		use: "drop [SESSION]", short: "forget a session and remove its worktree, or those nobody used for some time",
		long: `What its tasks told stays, their patches too. With --older, a worktree in which is what was
never applied is kept, unless --force.`,
		example: "ombud delegate drop ses_0197a3\nombud delegate drop --older 30d --dry-run", args: cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		if len(args) == 1 {
			req.SessionID = args[0]
		}
		age, err := parseAge(older)
		if err != nil {
			return err
		}
		switch req.OlderS = int64(age / time.Second); {
		case (req.SessionID == "") == (older == ""):
			return fault.New(fault.Usage, "name one session, or an age").WithHint("ombud delegate drop SESSION, or ombud delegate drop --older 30d; ombud delegate list shows both")
		case req.SessionID != "" && (req.Force || req.DryRun):
			return fault.New(fault.Usage, "--force and --dry-run are for --older")
		}
		res, err := a.client.DelegateDrop(ctx, req)
		if err != nil {
			return err
		}
		return a.show("delegate-drop/1", res, func(p *page) {
			if req.SessionID == "" {
				droppedPage(p, res.Older, older, req.DryRun)
				return
			}
			p.line("%s is forgotten", res.SessionID)
			if res.Worktree != "" {
				p.line("%s was removed", oneLine(res.Worktree))
			}
		})
	})
	f := c.Flags()
	f.StringVar(&older, "older", "", "all whose worktree nobody used for so long, such as 30d or 12h")
	f.BoolVar(&req.Force, "force", false, "also where something was never applied")
	f.BoolVar(&req.DryRun, "dry-run", false, "only show what would go")
	return c
}

// parseAge reads a duration, in days too.
func parseAge(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	if days, is := strings.CutSuffix(text, "d"); is {
		if n, err := strconv.ParseUint(days, 10, 15); err == nil && n > 0 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	} else if d, err := time.ParseDuration(text); err == nil && d >= time.Second {
		return d, nil
	}
	return 0, fault.New(fault.Usage, "%q is no age", text).WithHint("days or hours, such as 30d or 12h")
}

func droppedPage(p *page, list []wire.DelegateWorktree, older string, dry bool) {
	var gone, freed int64
	t := table{head: []string{"SESSION", "UNUSED FOR", "SIZE", "WHERE", ""}}
	for _, w := range list {
		verdict := "removed"
		switch {
		case w.Kept != "":
			verdict = p.warn("kept: " + short(w.Kept, 60))
		case dry:
			verdict = "would go"
		}
		if w.Kept == "" {
			gone, freed = gone+1, freed+w.Bytes
		}
		t.add(w.SessionID, p.age(w.UsedAt), size(w.Bytes), oneLine(w.Dir), verdict)
	}
	if len(list) == 0 {
		p.line("no worktree is older than %s", older)
		return
	}
	p.table(t)
	verb := "freed"
	if dry {
		verb = "would be freed"
	}
	p.line("%s of %d, %s %s", plural(gone, "worktree"), len(list), size(freed), verb)
}

// age is how long ago something was.
func (p *page) age(at int64) string { return span(p.now.Sub(time.UnixMicro(at)).Truncate(time.Second)) }

func worktreesTable(p *page, list []wire.DelegateWorktree) {
	if len(list) == 0 {
		return
	}
	var total int64
	t := table{head: []string{"WORKTREE OF", "UNUSED FOR", "SIZE", "WHERE"}}
	for _, w := range list {
		total += w.Bytes
		t.add(w.SessionID, p.age(w.UsedAt), size(w.Bytes), oneLine(w.Dir))
	}
	p.line("")
	p.table(t)
	p.line("%s", p.faint(size(total)+" in all; ombud delegate drop --older 30d removes what was applied and is older"))
}
