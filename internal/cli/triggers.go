package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) triggersCmd() *cobra.Command {
	var req wire.TriggersListRequest
	c := a.command(spec{
		use: "triggers", short: "what starts by itself, and by what: events, schedules, webhooks, timers",
		long: `Shows what can be started and what starts it, then each webhook: how a call proves who
sent it, with which secrets, when the last was taken and how many were refused, with why.
STARTED counts; PAUSED says how many triggers came meanwhile. docs/triggers.md tells how
to point GitHub, Slack and others at a webhook.`,
		example: "ombud triggers\nombud triggers --owner recipe\nombud triggers --json",
	}, func(ctx context.Context, _ []string) error {
		if req.Owner != "" && req.Owner != "recipe" && req.Owner != "loop" {
			return fault.New(fault.Usage, "--owner %q is nothing that owns triggers", req.Owner).WithHint("it is recipe or loop")
		}
		res, err := a.client.TriggersList(ctx, req)
		if err != nil {
			return err
		}
		return a.show("triggers/1", res, func(p *page) { triggersPage(p, res) })
	})
	c.Flags().StringVar(&req.Owner, "owner", "", "only those of recipe or loop")
	return c
}

func triggersPage(p *page, res wire.TriggersListResult) {
	if len(res.Targets) == 0 {
		p.line("nothing can be started")
		return
	}
	t := table{head: []string{"TARGET", "STARTED BY", "LAST", "STARTED"}}
	for _, x := range res.Targets {
		last := "-"
		if x.LastAt > 0 {
			last = p.clock(x.LastAt)
		}
		started := plural(x.Started, "time")
		if x.Paused {
			started = "paused, " + plural(x.Withheld, "trigger") + " came"
		}
		t.add(oneLine(x.Name), short(strings.Join(x.On, "; "), 60), last, started)
	}
	p.table(t)
	for _, x := range res.Targets {
		if x.Problem != nil {
			p.line("%s: %s", oneLine(x.Name), p.bad(oneLine(x.Problem.Message)))
		}
	}
	if len(res.Webhooks) > 0 {
		webhooksPage(p, res)
	}
}

func webhooksPage(p *page, res wire.TriggersListResult) {
	p.line("")
	switch {
	case res.Listener != "":
		p.line("webhooks on http://%s", res.Listener)
	case res.Problem != nil:
		p.line("%s", p.warn("no webhook can be called: "+oneLine(res.Problem.Message)))
	}
	t := table{head: []string{"WEBHOOK", "SCHEME", "SECRETS", "STARTS", "LAST", "TAKEN", "REFUSED"}}
	for _, w := range res.Webhooks {
		secrets, last, refused := strings.Join(w.Secrets, ", "), "-", "-"
		if secrets == "" {
			secrets = "-"
		}
		if w.SeenAt > 0 {
			last = p.clock(w.SeenAt)
		}
		if w.Refused > 0 {
			refused = plural(w.Refused, "call")
		}
		taken := plural(w.Accepted, "call")
		if w.Repeated > 0 {
			taken += ", " + plural(w.Repeated, "repeat")
		}
		t.add(w.Path, w.Scheme, secrets, oneLine(w.Target), last, taken, refused)
	}
	p.table(t)
	for _, w := range res.Webhooks {
		for _, name := range w.Missing {
			p.line("%s: %s", w.Path, p.bad("its secret "+name+" is not set: ombud secret set "+name))
		}
		if w.Scheme == "open" {
			p.line("%s: %s", w.Path, p.warn("anybody who can reach it can start it"))
		}
		if w.RefusedAt > 0 {
			p.line("%s: refused %s: %s", w.Path, p.clock(w.RefusedAt), oneLine(w.Refusal))
		}
	}
}
