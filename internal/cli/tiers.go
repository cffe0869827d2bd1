package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) adapterCmd() *cobra.Command {
	add := a.command(spec{
		use:   "add NAME",
		short: "make an adapter and show its credential, once",
		long: `An adapter is a process of its own that carries messages between ombud and a chat
network. It proves itself by the credential printed here, which is not kept and not
shown again. What a message may do depends on its sender: see ombud pair.`,
		example: "ombud adapter add telegram",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.AdapterAdd(ctx, wire.AdapterAddRequest{Name: args[0]})
		if err != nil {
			return err
		}
		return a.show("adapter-add/1", res, func(p *page) {
			p.field("adapter", res.Adapter.Name)
			p.field("credential", res.Credential)
			p.field("socket", res.Socket)
			p.line("%s", p.faint("give both to the adapter; the credential is not shown again"))
		})
	})
	list := a.command(spec{use: "list", short: "the adapters there are", example: "ombud adapter list --json"}, func(ctx context.Context, _ []string) error {
		res, err := a.client.AdapterList(ctx)
		if err != nil {
			return err
		}
		return a.show("adapters/1", res, func(p *page) { adaptersPage(p, res.Adapters) })
	})
	remove := a.command(spec{
		use: "remove NAME", short: "end an adapter and its credential", example: "ombud adapter remove telegram", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.AdapterRemove(ctx, wire.AdapterRemoveRequest{Name: args[0]})
		if err != nil {
			return err
		}
		return a.show("adapter-remove/1", res, func(p *page) { p.line("removed %s: its credential is good no longer", oneLine(args[0])) })
	})
	return byDefault(a.noun(spec{
		use: "adapter", short: "processes that carry messages of chat networks",
		example: "ombud adapter\nombud adapter add telegram",
	}, add, list, remove), list)
}

func adaptersPage(p *page, list []wire.Adapter) {
	if len(list) == 0 {
		p.line("no adapters")
		return
	}
	t := table{head: []string{"NAME", "ADDED", "LAST ASKED", "WAITING"}}
	for _, ad := range list {
		asked := "never"
		if ad.AskedAt > 0 {
			asked = p.clock(ad.AskedAt)
		}
		t.rows = append(t.rows, []string{ad.Name, p.clock(ad.AddedAt), asked, plural(int64(ad.Waiting), "message")})
	}
	p.table(t)
}

func (a *app) pairCmd() *cobra.Command {
	var startReq wire.PairStartRequest
	start := a.command(spec{
		use:   "start",
		short: "show a code that pairs a direct chat with you",
		long: `Send the code as "/pair CODE" from the direct chat that is to be yours. It is good
once and for ten minutes. There, reading is free and what changes something asks you
first; grants, levels, adapters and pairings change only here, never from a chat.`,
		example: "ombud pair start\nombud pair start --adapter telegram",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.PairStart(ctx, startReq)
		if err != nil {
			return err
		}
		return a.show("pair-start/1", res, func(p *page) {
			p.line("send this from the direct chat, within %s:", span(time.UnixMicro(res.ExpiresAt).Sub(p.now).Round(time.Minute)))
			p.line("  %s", p.strong("/pair "+oneLine(res.Code)))
		})
	})
	start.Flags().StringVar(&startReq.Adapter, "adapter", "", "the only adapter it is good on (default: any)")
	list := a.command(spec{
		use: "list", short: "who on chat networks is you, or known to you", example: "ombud pair list",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.PairList(ctx)
		if err != nil {
			return err
		}
		return a.show("senders/1", res, func(p *page) { sendersPage(p, res.Senders) })
	})
	remove := a.command(spec{
		use: "remove ID", short: "make somebody a stranger again", example: "ombud pair remove snd_0197a3", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.PairRemove(ctx, wire.PairRemoveRequest{ID: args[0]})
		if err != nil {
			return err
		}
		return a.show("pair-change/1", res, func(p *page) { p.line("%s is a stranger now", oneLine(senderName(res.Sender))) })
	})
	return byDefault(a.noun(spec{
		use: "pair", short: "who you are, and whom you know, on chat networks",
		example: "ombud pair start\nombud pair list",
	}, start, list, a.pairAllowCmd(), remove), list)
}

func (a *app) pairAllowCmd() *cobra.Command {
	var req wire.PairAllowRequest
	c := a.command(spec{
		use:   "allow ADAPTER USER",
		short: "list somebody as known, which makes them more than a stranger",
		long: `USER is the network's id of them, not a name: anybody can take a name. Somebody known
may use what a role gives to the tier semitrusted; nobody becomes you by this.`,
		example: "ombud pair allow telegram 10072 --account mybot --name Bob",
		args:    cobra.ExactArgs(2),
	}, func(ctx context.Context, args []string) error {
		req.Adapter, req.User = args[0], args[1]
		res, err := a.client.PairAllow(ctx, req)
		if err != nil {
			return err
		}
		return a.show("pair-change/1", res, func(p *page) { p.line("%s is %s", oneLine(senderName(res.Sender)), oneLine(res.Sender.Standing)) })
	})
	c.Flags().StringVar(&req.Account, "account", "", "your account on the network that they write to, as the adapter names it")
	c.Flags().StringVar(&req.Name, "name", "", "what you call them")
	return c
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
		p.line("%s", p.faint("ombud pair start shows a code for your own chat"))
		return
	}
	t := table{head: []string{"WHO", "USER", "CHANNEL", "CHAT", "SINCE", "ID"}}
	for _, s := range list {
		who := s.Name
		if s.Standing == "operator" {
			who = "you"
		}
		t.rows = append(t.rows, []string{who, s.User, s.Channel, s.Chat, p.clock(s.AddedAt), s.ID})
	}
	p.table(t)
}
