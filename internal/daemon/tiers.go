package daemon

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/remote"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/job"
	"github.com/ombud-run/ombud/internal/loops"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/pairing"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/wire"
)

// byOperator is who changes what only the operator socket can change.
const byOperator = "operator"

// openTiers constructs what connects below the operator: jobs, adapters and the
// socket of both; and what starts by itself.
func (d *Daemon) openTiers(kinds *run.Kinds, channels *outbox.Senders) error {
	d.jobs = job.New(job.Deps{
		DB: d.db, Vault: d.vault, Log: d.events, Runs: d.runs, Act: d.act, Tools: d.tools, Approvals: d.approvals, Budget: d.budget,
		Parent: d.authorityOf, Hide: d.hide, Logger: d.log,
	})
	d.pairing = pairing.New(d.db, d.vault, d.events, d.audit)
	d.remote = remote.New(remote.Deps{
		DB: d.db, Vault: d.vault, Log: d.events, Audit: d.audit, Conversations: d.agents, Senders: d.pairing, Channels: channels,
		Outbox: d.outbox, Logger: d.log,
	}, remote.Config{})
	d.openChannels(channels)
	// Jobs are meant to connect here: there is no Admit but the uid.
	d.agentServer = ipc.New(ipc.Config{Socket: d.o.Instance.AgentSocket(), HoldsLock: true, UID: os.Getuid(), Hide: d.hide.JSON}, d.agentMux(), d.log)
	d.openSchedules()
	return errors.Join(kinds.Add(d.jobs.Kind()), d.fillAsks(kinds), d.openMCPClients(kinds))
}

// agentMux is every method a job or an adapter can call. None of the operator's is
// among them.
func (d *Daemon) agentMux() *ipc.Mux {
	m := ipc.NewMux()
	ipc.Handle(m, wire.JobCall, d.jobCall)
	ipc.Handle(m, wire.JobTools, d.jobTools)
	ipc.Handle(m, wire.JobWhoami, d.jobWhoami)
	d.mcpAgentMethods(m)
	ipc.Handle(m, wire.AdapterDeliver, func(ctx context.Context, req wire.AdapterDeliverRequest) (wire.AdapterDeliverResult, error) {
		got, err := d.remote.Deliver(ctx, remote.Delivery(req))
		if err == nil {
			d.knowToken("adapter", req.Credential)
		}
		return wire.AdapterDeliverResult{EventID: got.Event, Duplicate: got.Duplicate, Addressed: got.Addressed}, err
	})
	ipc.Handle(m, wire.AdapterNext, d.adapterNext)
	ipc.Handle(m, wire.AdapterAck, func(ctx context.Context, req wire.AdapterAckRequest) (wire.Empty, error) {
		return wire.Empty{}, d.remote.Ack(ctx, remote.Settlement{
			Credential: req.Credential, Key: req.Key, Result: remote.Result(req.Result), Ref: req.Ref, Error: req.Error,
			RetryAfter: seconds(req.RetryAfterS),
		})
	})
	return m
}

// operatorTiers are the operator's methods about them.
func (d *Daemon) operatorTiers(m *ipc.Mux) {
	d.scheduleMethods(m)
	d.loopMethods(m)
	d.signedMethods(m)
	d.recipeMethods(m)
	d.channelMethods(m)
	d.mcpOperatorMethods(m)
	d.serverMethods(m)
	ipc.Handle(m, wire.AdapterAdd, func(ctx context.Context, req wire.AdapterAddRequest) (wire.AdapterAddResult, error) {
		a, credential, err := d.remote.Add(ctx, req.Name, byOperator)
		d.knowToken("adapter", credential)
		return wire.AdapterAddResult{Adapter: d.wireAdapter(a), Credential: credential, Socket: d.o.Instance.AgentSocket()}, err
	})
	ipc.Handle(m, wire.AdapterList, func(ctx context.Context, _ wire.Empty) (out wire.AdapterListResult, err error) {
		list, err := d.remote.List(ctx)
		for _, a := range list {
			out.Adapters = append(out.Adapters, d.wireAdapter(a))
		}
		return out, err
	})
	ipc.Handle(m, wire.AdapterRemove, func(ctx context.Context, req wire.AdapterRemoveRequest) (wire.Empty, error) {
		return wire.Empty{}, d.remote.Remove(ctx, req.Name, byOperator)
	})
	ipc.Handle(m, wire.PairStart, d.pairStart)
	ipc.Handle(m, wire.PairList, func(ctx context.Context, _ wire.Empty) (out wire.PairListResult, err error) {
		list, err := d.pairing.List(ctx)
		for _, i := range list {
			out.Senders = append(out.Senders, wireSender(i))
		}
		return out, err
	})
	ipc.Handle(m, wire.PairAllow, func(ctx context.Context, req wire.PairAllowRequest) (wire.PairChangeResult, error) {
		s, err := d.senderOn(ctx, req)
		if err != nil {
			return wire.PairChangeResult{}, err
		}
		i, err := d.pairing.Allow(ctx, s, req.Name, byOperator)
		return wire.PairChangeResult{Sender: wireSender(i)}, err
	})
	ipc.Handle(m, wire.PairRemove, func(ctx context.Context, req wire.PairRemoveRequest) (wire.PairChangeResult, error) {
		i, err := d.pairing.Remove(ctx, req.ID, byOperator)
		return wire.PairChangeResult{Sender: wireSender(i)}, err
	})
}

func seconds(n int) time.Duration { return time.Duration(max(0, n)) * time.Second }

func (d *Daemon) wireAdapter(a remote.Adapter) wire.Adapter {
	i := d.adapterInfo(a)
	return wire.Adapter{
		Name: a.Name, Channel: i.Name, State: string(i.State), Reason: i.Reason, AddedAt: a.Added, AskedAt: a.Asked, HeardAt: a.Heard,
		SaidAt: a.Said, Waiting: a.Waiting,
	}
}

// adapterInfo is an adapter as a channel: all that is known of how it stands is when it
// last asked for messages.
func (d *Daemon) adapterInfo(a remote.Adapter) channel.Info {
	i := channel.Info{Name: a.Channel(), Kind: remote.Kind, Settings: a.Settings, Heard: a.Heard, Said: a.Said, Added: a.Added}
	var health loops.Health
	health, i.Reason = adapterHealth(a.Asked, a.Waiting, time.UnixMicro(d.db.Time()), d.began)
	switch {
	case d.hold.Held():
		i.State, i.Reason = channel.Held, "the instance is held: ombud restore release"
	case health == loops.Working:
		i.State = channel.Working
	case health == loops.NotConnected:
		i.State = channel.Connecting
	default:
		i.State = channel.Failing
	}
	return i
}

// channelInfo is a channel or an adapter.
func (d *Daemon) channelInfo(ctx context.Context, name string) (channel.Info, error) {
	adapter, is := strings.CutPrefix(name, remote.Prefix)
	if !is {
		return d.channels.Get(name)
	}
	a, err := d.remote.Get(ctx, adapter)
	return d.adapterInfo(a), err
}

// channelSet changes the settings of a channel or an adapter.
func (d *Daemon) channelSet(ctx context.Context, req wire.ChannelSetRequest) (channel.Info, error) {
	adapter, is := strings.CutPrefix(req.Name, remote.Prefix)
	switch {
	case !is:
		return d.channels.Set(ctx, channel.Change{Name: req.Name, Values: req.Values, Secrets: channelParts(req.Secrets)}, byOperator)
	case len(req.Secrets) > 0:
		return channel.Info{}, fault.New(fault.Invalid, "an adapter has no secrets here: its program keeps its own")
	}
	a, err := d.remote.Set(ctx, adapter, req.Values, byOperator)
	return d.adapterInfo(a), err
}

// notOfAdapter refuses what only a channel within the daemon can do.
func notOfAdapter(name string) error {
	if strings.HasPrefix(name, remote.Prefix) {
		return fault.New(fault.Invalid, "%s is a program of its own: start and stop it where it runs", name)
	}
	return nil
}

func wireSender(i pairing.Identity) wire.PairedSender {
	return wire.PairedSender{
		ID: i.ID, Standing: string(i.Standing), Channel: i.Channel, Account: i.Account, User: i.User, Name: i.Name, Chat: i.Chat, AddedAt: i.Added,
	}
}

func (d *Daemon) knowsAdapter(ctx context.Context, name string) error {
	_, err := d.remote.Get(ctx, name)
	return err
}

func (d *Daemon) pairStart(ctx context.Context, req wire.PairStartRequest) (wire.PairStartResult, error) {
	on := ""
	if req.Adapter != "" {
		if err := d.knowsAdapter(ctx, req.Adapter); err != nil {
			return wire.PairStartResult{}, err
		}
		on = remote.Prefix + req.Adapter
	}
	if req.Channel != "" {
		if _, err := d.channels.Get(req.Channel); err != nil {
			return wire.PairStartResult{}, err
		}
		on = req.Channel
	}
	c, err := d.pairing.Start(ctx, on, byOperator)
	return wire.PairStartResult{Code: c.Text, ExpiresAt: c.Expires}, err
}

func (d *Daemon) adapterNext(ctx context.Context, req wire.AdapterNextRequest) (out wire.AdapterNextResult, err error) {
	ctx, done := whileConnected(ctx)
	defer done()
	list, err := d.remote.Next(ctx, req.Credential, req.Account, req.Limit, seconds(req.WaitS))
	if err == nil {
		d.knowToken("adapter", req.Credential)
	}
	for _, o := range list {
		out.Messages = append(out.Messages, wire.AdapterOutgoing(o))
	}
	return out, err
}

// whileConnected is a context that ends also when the client is gone: what it only
// waits for need not be waited for then.
func whileConnected(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	gone := ipc.Gone(ctx)
	go func() { // ends with the call
		select {
		case <-gone:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func (d *Daemon) jobCall(ctx context.Context, req wire.JobCallRequest) (wire.JobCallResult, error) {
	ctx, done := whileConnected(ctx)
	defer done()
	ans, err := d.jobs.Call(ctx, job.Request{Token: req.Token, Tool: req.Tool, Input: req.Input, Key: req.Key, Wait: seconds(req.WaitS)})
	res := ans.Result
	return wire.JobCallResult{
		RunID: ans.Run, Status: string(res.Status), Class: res.Class, Tool: res.Tool, Text: res.Text, Cut: res.Cut, BlobID: res.Blob,
		Approval: res.Approval, Label: res.Label.String(), Duplicate: ans.Duplicate,
	}, err
}

func (d *Daemon) jobTools(ctx context.Context, req wire.JobTokenRequest) (out wire.JobToolsResult, err error) {
	offers, err := d.jobs.Offers(ctx, req.Token)
	for _, o := range offers {
		out.Tools = append(out.Tools, wire.JobTool(o))
	}
	return out, err
}

func (d *Daemon) jobWhoami(ctx context.Context, req wire.JobTokenRequest) (wire.JobWhoamiResult, error) {
	j, err := d.jobs.Verify(ctx, req.Token)
	if err != nil {
		return wire.JobWhoamiResult{}, err
	}
	out := wire.JobWhoamiResult{
		ID: j.ID, Subject: j.Subject, RunID: j.Run, Conversation: j.Conversation, Tier: j.Tier().String(), Role: j.Role(),
		Label: j.Label().String(), CallsLeft: j.Left(), ExpiresAt: j.Expires,
	}
	for _, r := range j.Rules() {
		out.Rules = append(out.Rules, r.String())
	}
	return out, nil
}

// askInChat puts a question into the remote chat it came from, if that is the
// operator's own. The inbox has every question, whatever chat it came from.
func (d *Daemon) askInChat(ctx context.Context, tx *db.Tx, a approval.Approval) error {
	if a.Conversation == "" {
		return nil
	}
	conv, err := d.agents.ConversationIn(ctx, tx, a.Conversation)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil || conv.Address.Channel == agent.Local("").Channel {
		return err
	}
	_, err = d.pairing.OperatorChat(ctx, tx, conv.Address.Channel, conv.Address.Account, conv.Address.Chat)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.agents.AskTx(ctx, tx, a)
}
