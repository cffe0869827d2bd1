package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) channelCmd() *cobra.Command {
	list := a.command(spec{use: "list", short: "chat networks and how they stand", example: "ombud channel list --json"}, a.channelList)
	return byDefault(a.noun(spec{
		use:   "channel",
		short: "chat networks: Telegram, Slack, Discord, WhatsApp, and your own",
		long: `What ombud hears and speaks through. Whoever writes is a stranger until you pair your own
chat or allow them, and a stranger is not answered. In a group ombud listens only if the
group is listed, and speaks only if it is named, answered or commanded there.`,
		example: "ombud channel add telegram\nombud channel pair telegram\nombud channel set telegram group=-100123:mention",
	}, list, a.channelKindsCmd(), a.channelAddCmd(), a.channelShowCmd(), a.channelSetCmd(),
		a.channelPairCmd(), a.channelAllowCmd(), a.channelPeopleCmd(), a.channelForgetCmd(), a.channelTestCmd(),
		a.channelSwitchCmd("pause", "keep a channel from hearing and saying anything", "paused", a.channelPause),
		a.channelSwitchCmd("resume", "end a pause", "goes on", a.channelResume),
		a.channelRemoveCmd()), list)
}

func (a *app) channelPause(ctx context.Context, req wire.ChannelRequest) (wire.ChannelResult, error) {
	return a.client.ChannelPause(ctx, req)
}

func (a *app) channelResume(ctx context.Context, req wire.ChannelRequest) (wire.ChannelResult, error) {
	return a.client.ChannelResume(ctx, req)
}

// channelsShown is the channels and the adapters that connect by themselves.
type channelsShown struct {
	Channels []wire.Channel `json:"channels"`
	External []wire.Adapter `json:"external"`
}

func (a *app) channelList(ctx context.Context, _ []string) error {
	res, err := a.client.ChannelList(ctx)
	if err != nil {
		return err
	}
	own, err := a.client.AdapterList(ctx)
	if err != nil {
		return err
	}
	return a.show("channels/1", channelsShown{res.Channels, own.Adapters}, func(p *page) {
		if len(res.Channels)+len(own.Adapters) == 0 {
			p.line("no channels")
			p.line("%s", p.faint("ombud channel add telegram connects one; ombud channel kinds tells which there are"))
			return
		}
		t := table{head: []string{"NAME", "KIND", "STATE", "AS", "HEARD", "SAID", "WAITING"}}
		for _, c := range res.Channels {
			t.add(c.Name, c.Kind, c.State, orDash(c.Title), clockOrDash(p, c.HeardAt), clockOrDash(p, c.SaidAt), fmt.Sprint(c.Waiting))
		}
		for _, x := range own.Adapters {
			t.add(x.Channel, "external", x.State, "-", clockOrDash(p, x.HeardAt), clockOrDash(p, x.SaidAt), fmt.Sprint(x.Waiting))
		}
		p.table(t)
		for _, c := range res.Channels {
			if c.Reason != "" {
				p.line("%s: %s", oneLine(c.Name), p.warn(oneLine(c.Reason)))
			}
		}
		for _, x := range own.Adapters {
			if x.Reason != "" {
				p.line("%s: %s", oneLine(x.Channel), p.warn(oneLine(x.Reason)))
			}
		}
	})
}

func clockOrDash(p *page, at int64) string {
	if at == 0 {
		return "-"
	}
	return p.clock(at)
}

func (a *app) channelKindsCmd() *cobra.Command {
	return a.command(spec{
		use: "kinds", short: "what kinds of channel there are, and what each needs", example: "ombud channel kinds",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.channelKinds(ctx)
		if err != nil {
			return err
		}
		return a.show("channel-kinds/1", res, func(p *page) {
			for _, k := range res.Kinds {
				p.line("%s  %s", p.strong(k.Name), k.About)
				for _, n := range k.Needs {
					what := n.About
					switch {
					case n.Default != "":
						what += " (" + n.Default + ")"
					case n.Optional:
						what += " (optional)"
					}
					p.line("  %-20s %s", n.Name, p.faint(oneLine(what)))
				}
			}
			p.line("%s", p.faint("ombud channel add --external NAME is for a program of your own: docs/channels/external.md"))
		})
	})
}

func (a *app) channelKinds(ctx context.Context) (wire.ChannelKindsResult, error) {
	if _, err := a.ensure(ctx); err != nil {
		return wire.ChannelKindsResult{}, err
	}
	return a.client.ChannelKinds(ctx)
}

// channelAdding is what was said of a channel on the command line.
type channelAdding struct {
	name, external string
	values, files  []string
	unchecked      bool
}

func (a *app) channelAddCmd() *cobra.Command {
	var f channelAdding
	c := a.command(spec{
		use:   "add KIND",
		short: "connect a chat network",
		long: `Asks for what the kind needs, where it is not shown as it is typed, asks the network who
ombud is there, and connects. Without a terminal a secret is read from the file that
--file names, from standard input if one is missing, or is the secret channel.NAME.PART
that was set before. With --external NAME it makes an adapter instead: a program of your
own, which proves itself by the credential that is printed here, once.`,
		example: "ombud channel add telegram\nombud channel add slack --name work --file app_token=app.txt --file bot_token=bot.txt\nombud channel add --external signal",
		args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		switch {
		case f.external != "" && len(args) == 0:
			return a.externalAdd(ctx, f.external)
		case f.external != "":
			return fault.New(fault.Usage, "an external channel has no kind: ombud channel add --external %s", f.external)
		case len(args) == 0:
			return fault.New(fault.Usage, "a channel has a kind").WithHint("ombud channel kinds tells which there are")
		}
		return a.channelAdd(ctx, args[0], f)
	})
	c.Flags().StringVar(&f.name, "name", "", "what the channel is called (default: its kind)")
	c.Flags().StringVar(&f.external, "external", "", "make an adapter of this `name` for a program of your own")
	c.Flags().StringArrayVar(&f.values, "set", nil, "a setting, as `name=value`; may be given again")
	c.Flags().StringArrayVar(&f.files, "file", nil, "read a secret part from a file, as `part=path`; may be given again")
	c.Flags().BoolVar(&f.unchecked, "unchecked", false, "add it also if the network cannot be asked now")
	return c
}

func (a *app) channelAdd(ctx context.Context, kind string, f channelAdding) error {
	kinds, err := a.channelKinds(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(kinds.Kinds, func(k wire.ChannelKind) bool { return k.Name == kind })
	if at < 0 {
		var names []string
		for _, k := range kinds.Kinds {
			names = append(names, k.Name)
		}
		return fault.New(fault.NotFound, "no channel of kind %q; there are: %s", kind, strings.Join(names, ", ")).WithHint("ombud channel kinds")
	}
	req := wire.ChannelAddRequest{Kind: kind, Name: f.name, Unchecked: f.unchecked}
	if err := a.channelParts(ctx, kinds.Kinds[at], f, &req); err != nil {
		return err
	}
	res, err := a.client.ChannelAdd(ctx, req)
	if err != nil {
		return err
	}
	return a.show("channel/1", res, func(p *page) {
		p.line("connected %s as %s", p.strong(oneLine(res.Channel.Name)), oneLine(titleOf(res.Channel)))
		if res.Channel.Hook != "" {
			p.line("its network calls %s of the listener (ombud status tells its port)", oneLine(res.Channel.Hook))
		}
		p.line("%s", p.faint("ombud channel pair "+oneLine(res.Channel.Name)+" makes your own chat yours; nobody else is answered until you say so"))
	})
}

func titleOf(c wire.Channel) string {
	switch {
	case c.Title != "" && c.Account != "":
		return c.Title + " (" + c.Account + ")"
	case c.Account != "":
		return c.Account
	}
	return "whoever its network says"
}

// channelParts gathers what a kind needs: from flags, from files, from a person, from
// standard input. A required secret that is nowhere is left to what is stored.
func (a *app) channelParts(ctx context.Context, k wire.ChannelKind, f channelAdding, req *wire.ChannelAddRequest) error {
	given := map[string]bool{}
	for _, v := range f.values {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			return fault.New(fault.Usage, "--set takes name=value, not %q", v)
		}
		given[name] = true
		req.Values = append(req.Values, wire.ChannelValue{Name: name, Value: value})
	}
	for _, v := range f.files {
		part, path, ok := strings.Cut(v, "=")
		if !ok {
			return fault.New(fault.Usage, "--file takes part=path, not %q", v)
		}
		value, err := a.secretValue(ctx, part, path)
		if err != nil {
			return err
		}
		given[part] = true
		req.Secrets = append(req.Secrets, wire.ChannelSecret{Part: part, Value: value})
	}
	person := isTerminal(a.stdin) && !a.json
	for _, n := range k.Needs {
		if given[n.Name] || n.Default != "" || n.Optional {
			continue
		}
		switch {
		case n.Secret && person:
			a.note("%s: %s", n.Name, n.About)
			value, err := a.secretValue(ctx, n.Name, "")
			if err != nil {
				return err
			}
			req.Secrets = append(req.Secrets, wire.ChannelSecret{Part: n.Name, Value: value})
		case n.Secret:
			value, err := a.pipedSecret()
			if err != nil {
				return err
			}
			if len(value) > 0 {
				req.Secrets = append(req.Secrets, wire.ChannelSecret{Part: n.Name, Value: value})
			}
		case person:
			req.Values = append(req.Values, wire.ChannelValue{Name: n.Name, Value: a.asker().line(n.Name + " (" + n.About + "):")})
		}
	}
	return nil
}

// pipedSecret is the next line of standard input, none at its end.
func (a *app) pipedSecret() ([]byte, error) {
	const longest = 8 << 10
	var line []byte
	one := make([]byte, 1)
	for len(line) <= longest {
		n, err := a.stdin.Read(one)
		if n == 1 && one[0] == '\n' {
			return []byte(strings.TrimSpace(string(line))), nil
		}
		line = append(line, one[:n]...)
		if err == io.EOF {
			return []byte(strings.TrimSpace(string(line))), nil
		}
		if err != nil {
			return nil, fault.New(fault.Unavailable, "read standard input: %w", err)
		}
	}
	return nil, fault.New(fault.Invalid, "a line of standard input has more than %d bytes", longest)
}

func (a *app) externalAdd(ctx context.Context, name string) error {
	if _, err := a.ensure(ctx); err != nil {
		return err
	}
	res, err := a.client.AdapterAdd(ctx, wire.AdapterAddRequest{Name: name})
	if err != nil {
		return err
	}
	return a.show("adapter-add/1", res, func(p *page) {
		p.field("channel", res.Adapter.Channel)
		p.field("credential", res.Credential)
		p.field("socket", res.Socket)
		p.line("%s", p.faint("give both to your program; the credential is not shown again"))
		p.line("%s", p.faint("ombud channel pair adapter:"+oneLine(name)+" makes your own chat yours; nobody else is answered until you say so"))
	})
}

func (a *app) channelShowCmd() *cobra.Command {
	return a.command(spec{
		use: "show NAME", short: "one channel, with the groups that were seen", example: "ombud channel show telegram", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.ChannelShow(ctx, wire.ChannelRequest{Name: args[0]})
		if err != nil {
			return err
		}
		return a.show("channel/1", res, func(p *page) { channelPage(p, res.Channel) })
	})
}

func channelPage(p *page, c wire.Channel) {
	p.field("channel", c.Name+" ("+c.Kind+")")
	state := c.State
	if c.SinceAt > 0 {
		state += " since " + p.clock(c.SinceAt)
	}
	p.field("state", state)
	if c.Reason != "" {
		p.field("because", c.Reason)
	}
	p.field("as", titleOf(c))
	if c.Hook != "" {
		p.field("called at", c.Hook)
	}
	for _, v := range c.Values {
		p.field(v.Name, v.Value)
	}
	p.field("strangers", map[string]string{
		"": "are not answered", "ignore": "are not answered", "groups": "are answered in the groups that are listed", "all": "are answered",
	}[c.Strangers])
	if c.Quiet != "" {
		p.field("quiet", c.Quiet)
	}
	if c.Away {
		p.field("away", "what nobody waits for is kept back")
	}
	p.field("rate", fmt.Sprintf("%d messages a minute to one chat", c.Rate))
	if c.Notices {
		p.field("notices", "what you are told is also told in your paired chats")
	}
	if c.Stream {
		p.field("stream", "answers to you are shown as they are written")
	}
	if c.Waiting > 0 {
		p.field("waiting", plural(c.Waiting, "message"))
	}
	if len(c.Groups) == 0 {
		return
	}
	t := table{head: []string{"GROUP", "TITLE", "ADDRESSED BY"}}
	for _, g := range c.Groups {
		t.add(g.Chat, orDash(g.Title), g.Mode)
	}
	p.table(t)
	p.line("%s", p.faint("ombud channel set "+oneLine(c.Name)+" group=ID:mention lists a group"))
}

func (a *app) channelSetCmd() *cobra.Command {
	var files []string
	c := a.command(spec{
		use:   "set NAME SETTING=VALUE...",
		short: "change the settings of a channel, at once",
		long: `agent=NAME                 who answers
strangers=ignore|groups|all  who is answered beside those you allowed: nobody, members of
                           listed groups, everybody
group=CHAT:MODE            addressed there by mention (a name, a reply, a command), always
                           or never; group=CHAT: takes it off the list
quiet="22:00-07:00 ZONE"   when what nobody waits for is kept back; quiet= for never
away=on|off                keep it back until this is off
rate=N                     messages a minute to one chat; each part of a long answer counts
notices=on|off             tell in your paired chats, too, what you are told in the conversation main
stream=on|off              show answers to you as they are written
and what the kind is set up with (ombud channel kinds). --file PART=PATH replaces a secret.
An adapter is adapter:NAME; it has all of these but stream.`,
		example: "ombud channel set telegram group=-1001234:mention strangers=groups\nombud channel set slack quiet=\"22:00-07:00 Europe/Berlin\"",
		args:    cobra.MinimumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		req := wire.ChannelSetRequest{Name: args[0], Values: args[1:]}
		for _, v := range files {
			part, path, ok := strings.Cut(v, "=")
			if !ok {
				return fault.New(fault.Usage, "--file takes part=path, not %q", v)
			}
			value, err := a.secretValue(ctx, part, path)
			if err != nil {
				return err
			}
			req.Secrets = append(req.Secrets, wire.ChannelSecret{Part: part, Value: value})
		}
		if len(req.Values)+len(req.Secrets) == 0 {
			return fault.New(fault.Usage, "nothing is to be changed").WithHint("ombud channel set --help")
		}
		res, err := a.client.ChannelSet(ctx, req)
		if err != nil {
			return err
		}
		return a.show("channel/1", res, func(p *page) { channelPage(p, res.Channel) })
	})
	c.Flags().StringArrayVar(&files, "file", nil, "read a secret part from a file, as `part=path`")
	return c
}

func (a *app) channelPairCmd() *cobra.Command {
	return a.command(spec{
		use:   "pair [NAME]",
		short: "show a code that makes a direct chat yours",
		long: `Send the code from the direct chat that is to be yours. It is good once and for ten
minutes. There, reading is free and what changes something asks you first; grants, levels,
channels and pairings change only here, never from a chat.`,
		example: "ombud channel pair telegram", args: cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		var req wire.PairStartRequest
		if len(args) == 1 {
			if name, ok := strings.CutPrefix(args[0], "adapter:"); ok {
				req.Adapter = name
			} else {
				req.Channel = args[0]
			}
		}
		res, err := a.client.PairStart(ctx, req)
		if err != nil {
			return err
		}
		return a.show("pair-start/1", res, func(p *page) {
			p.line("send this from the direct chat, within %s:", span(time.UnixMicro(res.ExpiresAt).Sub(p.now).Round(time.Minute)))
			p.line("  %s", p.strong("pair "+oneLine(res.Code)))
		})
	})
}

func (a *app) channelAllowCmd() *cobra.Command {
	var req wire.PairAllowRequest
	c := a.command(spec{
		use:   "allow NAME USER",
		short: "list somebody as known: they are answered",
		long: `USER is the network's id of them, not a name: anybody can take a name. Somebody known may
use what a role gives to the tier semitrusted; nobody becomes you by this. ombud channel people
shows who is known, ombud channel forget makes them strangers again.`,
		example: "ombud channel allow telegram 10072 --name Bob",
		args:    cobra.ExactArgs(2),
	}, func(ctx context.Context, args []string) error {
		req.Channel, req.User = args[0], args[1]
		if name, ok := strings.CutPrefix(args[0], "adapter:"); ok {
			req.Channel, req.Adapter = "", name
		}
		res, err := a.client.PairAllow(ctx, req)
		if err != nil {
			return err
		}
		return a.show("pair-change/1", res, func(p *page) { p.line("%s is %s", oneLine(senderName(res.Sender)), oneLine(res.Sender.Standing)) })
	})
	c.Flags().StringVar(&req.Account, "account", "", "your account on the network that they write to, if it is not the channel's")
	c.Flags().StringVar(&req.Name, "name", "", "what you call them")
	return c
}

func (a *app) channelTestCmd() *cobra.Command {
	return a.command(spec{
		use: "test NAME", short: "ask a network who ombud is there, now", example: "ombud channel test slack", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.ChannelTest(ctx, wire.ChannelRequest{Name: args[0]})
		if err != nil {
			return err
		}
		return a.show("channel/1", res, func(p *page) {
			p.line("%s answers: ombud is %s; the channel is %s", oneLine(res.Channel.Kind), oneLine(titleOf(res.Channel)), oneLine(res.Channel.State))
		})
	})
}

func (a *app) channelSwitchCmd(use, short, done string, do func(context.Context, wire.ChannelRequest) (wire.ChannelResult, error)) *cobra.Command {
	return a.command(spec{
		use: use + " NAME", short: short, example: "ombud channel " + use + " telegram", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := do(ctx, wire.ChannelRequest{Name: args[0]})
		if err != nil {
			return err
		}
		return a.show("channel/1", res, func(p *page) { p.line("%s %s", oneLine(res.Channel.Name), done) })
	})
}

func (a *app) channelRemoveCmd() *cobra.Command {
	return a.command(spec{
		use:   "remove NAME",
		short: "end a channel and forget its secrets",
		long:  `What is still to be sent through it fails and is shown by ombud dlq. Its conversations stay.`, example: "ombud channel remove telegram",
		args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		var res wire.Empty
		var err error
		if name, ok := strings.CutPrefix(args[0], "adapter:"); ok {
			res, err = a.client.AdapterRemove(ctx, wire.AdapterRemoveRequest{Name: name})
		} else {
			res, err = a.client.ChannelRemove(ctx, wire.ChannelRequest{Name: args[0]})
		}
		if err != nil {
			return err
		}
		return a.show("channel-remove/1", res, func(p *page) { p.line("removed %s", oneLine(args[0])) })
	})
}
