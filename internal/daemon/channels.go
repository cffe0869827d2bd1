package daemon

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/discord"
	"github.com/ombud-run/ombud/internal/channel/remote"
	"github.com/ombud-run/ombud/internal/channel/slack"
	"github.com/ombud-run/ombud/internal/channel/telegram"
	"github.com/ombud-run/ombud/internal/channel/whatsapp"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/loops"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/pairing"
	"github.com/ombud-run/ombud/internal/secret"
	"github.com/ombud-run/ombud/internal/wire"
)

// channelKinds are the chat networks this version knows.
func channelKinds() []channel.Kind {
	return []channel.Kind{telegram.Kind(), slack.Kind(), discord.Kind(), whatsapp.Kind(), whatsapp.CloudKind()}
}

// openChannels constructs the chat networks.
func (d *Daemon) openChannels(out *outbox.Senders) {
	d.channels = channel.New(channel.Deps{
		DB: d.db, Vault: d.vault, Log: d.events, Audit: d.audit, Agents: d.agents, Senders: d.pairing, Outbox: d.outbox, Out: out,
		Secrets: channelSecrets{d.secrets}, Kinds: channelKinds(), Environ: d.o.Environment.Programs(), Hide: d.hide.String, Held: d.hold.Held, Logger: d.log,
	}, channel.Config{})
}

// places are the conversations beyond this machine: the agents are there before the
// channels.
type places struct{ d *Daemon }

func (p places) Place(ctx context.Context, q db.Q, to string) (agent.Address, error) {
	if strings.HasPrefix(to, remote.Prefix) {
		return p.d.remote.Place(ctx, q, to)
	}
	return p.d.channels.Place(ctx, q, to)
}

func (p places) Told(ctx context.Context, q db.Q) ([]agent.Address, error) {
	return p.d.channels.Told(ctx, q)
}

func (p places) Operators(ctx context.Context, q db.Q, ad agent.Address) (bool, error) {
	return p.d.channels.Operators(ctx, q, ad)
}

// undelivered tells the conversation and the operator of a message that did not arrive, or
// may not have, in the commit that says so.
func (d *Daemon) undelivered(ctx context.Context, tx *db.Tx, it outbox.Item) error {
	return d.agents.UndeliveredTx(ctx, tx, it)
}

// channelSecrets keeps the secret parts of channels among the others.
type channelSecrets struct{ *secret.Secrets }

func (s channelSecrets) PutTx(ctx context.Context, tx *db.Tx, name, value string) error {
	_, err := s.SetTx(ctx, tx, secret.Setting{Name: name, Value: []byte(value)}, secret.ByOperator)
	return err
}

func (s channelSecrets) Hide(name, value string) { s.Secrets.Hide(name, []byte(value)) }

func (s channelSecrets) Get(ctx context.Context, name string) (string, error) {
	v, err := s.Resolve(ctx, name)
	return v.Reveal(), err
}

func (s channelSecrets) DropTx(ctx context.Context, tx *db.Tx, name string) error {
	_, err := s.RemoveTx(ctx, tx, name, secret.ByOperator)
	return err
}

// mountChannels lets networks call, also at paths that only some kinds have.
func (d *Daemon) mountChannels() {
	d.listener.Mount(channel.HookPrefix, d.channels)
	d.listener.Mount(commsPath, d.channels)
}

// commsPath begins the paths of programs that know no other than KARMAX's.
const commsPath = "/comms/"

func (d *Daemon) channelMethods(m *ipc.Mux) {
	ipc.Handle(m, wire.ChannelList, func(ctx context.Context, _ wire.Empty) (out wire.ChannelListResult, err error) {
		for _, i := range d.channels.List() {
			c, err := d.wireChannel(ctx, i)
			if err != nil {
				return out, err
			}
			out.Channels = append(out.Channels, c)
		}
		return out, nil
	})
	ipc.Handle(m, wire.ChannelKinds, func(context.Context, wire.Empty) (out wire.ChannelKindsResult, err error) {
		for _, k := range d.channels.Kinds() {
			kind := wire.ChannelKind{Name: k.Name, About: k.About}
			for _, p := range k.Needs {
				kind.Needs = append(kind.Needs, wire.ChannelPart(p))
			}
			out.Kinds = append(out.Kinds, kind)
		}
		return out, nil
	})
	ipc.Handle(m, wire.ChannelAdd, func(ctx context.Context, req wire.ChannelAddRequest) (wire.ChannelResult, error) {
		values := map[string]string{}
		for _, v := range req.Values {
			if err := d.knowsAgent(v.Name, v.Value); err != nil {
				return wire.ChannelResult{}, err
			}
			values[v.Name] = v.Value
		}
		i, err := d.channels.Add(ctx, channel.Adding{
			Name: req.Name, Kind: req.Kind, Values: values, Secrets: channelParts(req.Secrets), Uncheck: req.Unchecked,
		}, byOperator)
		return d.channelResult(ctx, i, err)
	})
	ipc.Handle(m, wire.ChannelSet, func(ctx context.Context, req wire.ChannelSetRequest) (wire.ChannelResult, error) {
		for _, v := range req.Values {
			name, value, _ := strings.Cut(v, "=")
			if err := d.knowsAgent(strings.TrimSpace(name), strings.TrimSpace(value)); err != nil {
				return wire.ChannelResult{}, err
			}
		}
		i, err := d.channelSet(ctx, req)
		return d.channelResult(ctx, i, err)
	})
	one := func(do func(ctx context.Context, name string) (channel.Info, error)) func(context.Context, wire.ChannelRequest) (wire.ChannelResult, error) {
		return func(ctx context.Context, req wire.ChannelRequest) (wire.ChannelResult, error) {
			i, err := do(ctx, req.Name)
			return d.channelResult(ctx, i, err)
		}
	}
	within := func(do func(ctx context.Context, name string) (channel.Info, error)) func(context.Context, wire.ChannelRequest) (wire.ChannelResult, error) {
		return one(func(ctx context.Context, name string) (channel.Info, error) {
			if err := notOfAdapter(name); err != nil {
				return channel.Info{}, err
			}
			return do(ctx, name)
		})
	}
	ipc.Handle(m, wire.ChannelShow, one(d.channelInfo))
	ipc.Handle(m, wire.ChannelTest, within(d.channels.Test))
	ipc.Handle(m, wire.ChannelPause, within(func(ctx context.Context, name string) (channel.Info, error) {
		return d.channels.Pause(ctx, name, byOperator)
	}))
	ipc.Handle(m, wire.ChannelResume, within(func(ctx context.Context, name string) (channel.Info, error) {
		return d.channels.Resume(ctx, name, byOperator)
	}))
	ipc.Handle(m, wire.Send, d.send)
	ipc.Handle(m, wire.SendState, d.sendState)
	ipc.Handle(m, wire.ChannelRemove, func(ctx context.Context, req wire.ChannelRequest) (wire.Empty, error) {
		return wire.Empty{}, d.channels.Remove(ctx, req.Name, byOperator)
	})
}

// knowsAgent refuses a setting that names an agent nobody configured: the default one, which
// may do more, would answer for it.
func (d *Daemon) knowsAgent(setting, value string) error {
	if names := d.agents.Names(); setting == "agent" && value != "" && !slices.Contains(names, value) {
		return fault.New(fault.Invalid, "no agent is called %q; there are: %s", value, strings.Join(names, ", ")).
			WithHint("agents are in the configuration: ombud config explain agents.main.role")
	}
	return nil
}

func channelParts(list []wire.ChannelSecret) map[string]string {
	out := map[string]string{}
	for _, s := range list {
		out[s.Part] = string(s.Value)
	}
	return out
}

func (d *Daemon) channelResult(ctx context.Context, i channel.Info, err error) (out wire.ChannelResult, _ error) {
	if err != nil {
		return out, err
	}
	out.Channel, err = d.wireChannel(ctx, i)
	return out, err
}

func (d *Daemon) wireChannel(ctx context.Context, i channel.Info) (wire.Channel, error) {
	set := i.Settings
	c := wire.Channel{
		Name: i.Name, Kind: i.Kind, State: string(i.State), Reason: i.Reason, SinceAt: i.Since, Account: i.Me.ID, Title: i.Me.Name,
		AddedAt: i.Added, HeardAt: i.Heard, SaidAt: i.Said, Agent: set.Agent, Strangers: string(set.Strangers), Quiet: set.Quiet,
		Away: set.Away, Rate: set.Rate, Stream: set.Stream, Notices: set.Notices, Limit: i.Caps.Limit, Buttons: i.Caps.Buttons, Hook: i.Hook,
	}
	if c.Rate == 0 {
		c.Rate = channel.DefaultRate
	}
	for _, name := range slices.Sorted(maps.Keys(set.Values)) {
		c.Values = append(c.Values, wire.ChannelValue{Name: name, Value: set.Values[name]})
	}
	var err error
	if c.Waiting, err = d.outbox.Waiting(ctx, i.Name); err != nil {
		return c, err
	}
	c.Groups, err = d.groups(ctx, i)
	return c, err
}

// groups are the groups that are listed and those that were seen.
func (d *Daemon) groups(ctx context.Context, i channel.Info) (out []wire.ChannelGroup, err error) {
	seen, err := d.agents.GroupsOn(ctx, i.Name)
	if err != nil {
		return nil, err
	}
	for chat, mode := range i.Settings.Groups {
		out = append(out, wire.ChannelGroup{Chat: chat, Title: seen[chat], Mode: string(mode)})
	}
	for chat, title := range seen {
		if _, listed := i.Settings.Groups[chat]; !listed {
			out = append(out, wire.ChannelGroup{Chat: chat, Title: title, Mode: string(channel.Never)})
		}
	}
	slices.SortFunc(out, func(a, b wire.ChannelGroup) int { return strings.Compare(a.Chat, b.Chat) })
	return out, nil
}

// channelHealth is a channel as the watch over integrations sees it.
func channelHealth(i channel.Info) (loops.Health, string) {
	switch i.State {
	case channel.Working:
		return loops.Working, ""
	case channel.Degraded:
		return loops.Degraded, i.Reason
	case channel.Failing:
		return loops.Failing, i.Reason
	case channel.Paused:
		return loops.NotConnected, "it is paused: ombud channel resume " + i.Name
	}
	return loops.NotConnected, "it is " + string(i.State)
}

// senderOn is a user on a channel or through an adapter, as pairing knows them.
func (d *Daemon) senderOn(ctx context.Context, req wire.PairAllowRequest) (s pairing.Sender, err error) {
	if (req.Channel == "") == (req.Adapter == "") {
		return s, fault.New(fault.Invalid, "name a channel or an adapter")
	}
	if req.Adapter != "" {
		return pairing.Sender{Channel: remote.Prefix + req.Adapter, Account: req.Account, User: req.User}, d.knowsAdapter(ctx, req.Adapter)
	}
	i, err := d.channels.Get(req.Channel)
	if err != nil {
		return s, err
	}
	if req.Account == "" {
		req.Account = i.Me.ID
	}
	return pairing.Sender{Channel: i.Name, Account: req.Account, User: req.User}, nil
}

// send sends a message as the operator, who is asked nothing.
func (d *Daemon) send(ctx context.Context, req wire.SendRequest) (out wire.SendResult, err error) {
	if err := d.hold.Refuse(); err != nil {
		return out, err
	}
	cause := "send:" + req.Key
	if req.Key == "" {
		cause = id.New("send")
	}
	err = d.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		it, err := d.agents.SendTx(ctx, tx, agent.Sending{
			To: req.To, Text: req.Text, Cause: cause, By: agent.ToOperator, Label: label.Of(label.Operator, label.OperatorOnly), Repeat: true,
		})
		if err != nil {
			return err
		}
		out = wireSend(it)
		_, err = d.audit.AppendTx(ctx, tx, audit.Entry{Kind: "send", Actor: byOperator, Subject: it.Conversation, Outcome: "ok", Run: it.ID})
		return err
	})
	return out, err
}

// sendState waits for a message to go out.
func (d *Daemon) sendState(ctx context.Context, req wire.SendStateRequest) (out wire.SendResult, err error) {
	ctx, done := whileConnected(ctx)
	defer done()
	woken, stop := d.db.Watch("outbox")
	defer stop()
	over := time.NewTimer(min(seconds(req.WaitS), 5*time.Minute))
	defer over.Stop()
	for {
		it, err := d.outbox.Get(ctx, req.ItemID)
		if err != nil || it.State != outbox.Queued && it.State != outbox.Sending {
			return wireSend(it), err
		}
		select {
		case <-woken:
		case <-over.C:
			return wireSend(it), nil
		case <-ctx.Done():
			return wireSend(it), context.Cause(ctx)
		}
	}
}

func wireSend(it outbox.Item) wire.SendResult {
	return wire.SendResult{ItemID: it.ID, Conversation: it.Conversation, State: string(it.State), Ref: it.Ref, Error: it.Error}
}

var _ http.Handler = (*channel.Channels)(nil)
