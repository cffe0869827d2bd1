package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) channelPeopleCmd() *cobra.Command {
	return a.command(spec{
		use: "people", short: "who on chat networks is you, or known to you", example: "ombud channel people",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.PairList(ctx)
		if err != nil {
			return err
		}
		return a.show("senders/1", res, func(p *page) { sendersPage(p, res.Senders) })
	})
}

func (a *app) channelForgetCmd() *cobra.Command {
	return a.command(spec{
		use: "forget ID", short: "make somebody a stranger again", example: "ombud channel forget snd_0197a3", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.PairRemove(ctx, wire.PairRemoveRequest{ID: args[0]})
		if err != nil {
			return err
		}
		return a.show("pair-change/1", res, func(p *page) { p.line("%s is a stranger now", oneLine(senderName(res.Sender))) })
	})
}

func senderName(s wire.PairedSender) string {
	if s.Name != "" {
		return s.Name + " (" + s.User + ")"
	}
	return s.User
}

func sendersPage(p *page, list []wire.PairedSender) {
	if len(list) == 0 {
		p.line("nobody: everybody on a chat network is a stranger")
		p.line("%s", p.faint("ombud channel pair shows a code for your own chat"))
		return
	}
	t := table{head: []string{"WHO", "USER", "CHANNEL", "CHAT", "SINCE", "ID"}}
	for _, s := range list {
		who := s.Name
		if s.Standing == "operator" {
			who = "you"
		}
		t.add(who, s.User, s.Channel, s.Chat, p.clock(s.AddedAt), s.ID)
	}
	p.table(t)
}
