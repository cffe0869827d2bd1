package cli

import (
	"fmt"
	"strings"

	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/wire"
)

func planPage(p *page, plan wire.DelegatePlanResult) {
	p.field("route", plan.Route+" ("+oneLine(plan.Why)+")")
	p.field("program", plan.Program+" "+oneLine(plan.Version))
	login := plan.Login
	if login == "no" {
		login = p.bad("no")
	}
	p.field("logged in", login)
	mode := "reads"
	if plan.Write {
		mode = "writes in a git worktree of its own"
		if !plan.Asks {
			mode += p.warn(", and asks nobody before it does")
		}
	}
	p.field("works in", oneLine(plan.Dir)+", "+mode)
	for _, s := range plan.Scopes {
		p.field("needs", fmt.Sprintf("%s (you: allow, agent main: %s)", oneLine(s.Scope), s.Agent))
	}
	limit := "nothing but the budgets"
	if plan.LimitMicroUSD > 0 {
		limit = money(plan.LimitMicroUSD, true)
	}
	p.field("limit", limit)
	estimate := "not known: none has run yet whose cost was told"
	if plan.Cost.Known > 0 {
		estimate = fmt.Sprintf("%s (median of the last %d, at most %s)", money(plan.Cost.MedianMicroUSD, true), plan.Cost.Known, money(plan.Cost.MostMicroUSD, true))
	}
	p.field("may cost", estimate)
	for _, w := range plan.Warnings {
		p.field("warning", p.warn(oneLine(w)))
	}
}

// delegationPage shows a delegation; whole adds what a glance does not need.
func delegationPage(p *page, res wire.DelegateShowResult, whole bool) {
	x := res.Delegation
	if whole {
		p.field("task", short(res.Task, 200))
	}
	p.field("run", x.RunID+" by "+routeOf(x)+" ("+oneLine(x.Why)+")")
	p.field("outcome", p.outcome(outcomeOf(x)))
	if whole && res.Error != "" { // else the command ends with it
		p.field("error", oneLine(res.Error))
	}
	if x.EndedAt > 0 {
		t := res.Tokens
		p.field("cost", fmt.Sprintf("%s; %d tokens in, %d out", costOf(x.MicroUSD, x.Priced, x.PossibleMicroUSD), t.Input+t.CacheRead+t.CacheWrite, t.Output))
	}
	p.field("session", x.SessionID)
	if x.Tries > 1 {
		p.field("started", fmt.Sprintf("%d times", x.Tries))
	}
	for _, t := range res.Permissions {
		p.field("asked", oneLine(t.Tool)+": "+t.Decision)
	}
	if whole {
		for _, t := range res.Tools {
			p.field("used", oneLine(t.Name)+" "+short(t.Input, 80)+": "+t.Outcome)
		}
	}
	changesPage(p, res)
	for _, n := range res.Notes {
		p.field("note", oneLine(n))
	}
	if res.Answer != "" {
		p.line("")
		for line := range strings.SplitSeq(strings.TrimRight(guard.CleanText(res.Answer), "\n"), "\n") {
			p.line("%s", strings.TrimRight(line, " \t\r"))
		}
	}
	if len(res.Files) > 0 {
		p.line("")
		p.line("%s", p.faint("ombud delegate diff "+x.RunID+" shows the patch, ombud delegate apply "+x.RunID+" puts it into "+oneLine(res.Repository)))
	}
}

// changesPage shows where a delegation wrote, what, and how that was checked.
func changesPage(p *page, res wire.DelegateShowResult) {
	if res.Worktree != "" {
		p.field("worktree", oneLine(res.Worktree))
	}
	for _, f := range res.Files {
		p.field("changed", oneLine(f.Path)+" "+changedLines(f))
	}
	for _, c := range res.Checks {
		verdict := "passed"
		if !c.OK {
			verdict = p.bad("failed") + ", " + oneLine(c.How)
		}
		p.field("check", oneLine(c.Command)+": "+verdict)
		if !c.OK && c.Output != "" {
			for line := range strings.SplitSeq(guard.CleanText(c.Output), "\n") {
				p.line("    %s", p.faint(line))
			}
		}
	}
}

// costOf is money of which a part may be not known, and bounded.
func costOf(micro int64, known bool, possible int64) string {
	switch text := money(micro, known); {
	case known || possible == 0:
		return text
	case micro == 0:
		return text + ", perhaps " + money(possible, true)
	default:
		return text + ", perhaps " + money(possible, true) + " more"
	}
}

func outcomeOf(x wire.Delegation) string {
	if x.Outcome == "" {
		return "at work"
	}
	return x.Outcome
}

func routeOf(x wire.Delegation) string {
	if x.Model == "" {
		return x.Harness
	}
	return x.Harness + "/" + oneLine(x.Model)
}

func changedLines(f wire.DelegateFile) string {
	if f.Added < 0 {
		return "(binary)"
	}
	return fmt.Sprintf("(+%d -%d)", f.Added, f.Removed)
}

func delegationsTable(p *page, list []wire.Delegation) {
	if len(list) == 0 {
		p.line("no task was given to a coding agent yet")
		return
	}
	t := table{head: []string{"RUN", "WHEN", "ROUTE", "FOR", "OUTCOME", "COST", "SESSION", "WHERE"}}
	for _, x := range list {
		cost := "-"
		if x.EndedAt > 0 {
			cost = money(x.MicroUSD, x.Priced)
		}
		t.add(x.RunID, p.clock(x.StartedAt), routeOf(x), x.Subject, outcomeOf(x), cost, x.SessionID, oneLine(x.Dir))
	}
	p.table(t)
}
