//go:build unix

package cli

import (
	"context"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// cannedChannels answers for adapters and senders: there is the adapter tg, you in its
// direct chat 42, and Bob.
func cannedChannels(m *ipc.Mux) {
	tg := wire.Adapter{Name: "tg", Channel: "adapter:tg", State: "working", AddedAt: noon, AskedAt: noon + 60_000_000, SaidAt: noon, Waiting: 1}
	you := wire.PairedSender{ID: "snd_1", Standing: "operator", Channel: "adapter:tg", User: "1001", Chat: "42", AddedAt: noon}
	bob := wire.PairedSender{ID: "snd_2", Standing: "known", Channel: "adapter:tg", User: "7", Name: "Bob", AddedAt: noon}
	ipc.Handle(m, wire.AdapterAdd, func(_ context.Context, req wire.AdapterAddRequest) (wire.AdapterAddResult, error) {
		if req.Name == "tg" {
			return wire.AdapterAddResult{}, fault.New(fault.Conflict, "there is an adapter tg").WithHint("remove it first to give it a new credential")
		}
		return wire.AdapterAddResult{Adapter: wire.Adapter{Name: req.Name}, Credential: req.Name + ".c0ffee", Socket: "/run/agent.sock"}, nil
	})
	ipc.Handle(m, wire.AdapterList, answer[wire.Empty](wire.AdapterListResult{Adapters: []wire.Adapter{tg}}))
	ipc.Handle(m, wire.AdapterRemove, answer[wire.AdapterRemoveRequest](wire.Empty{}))
	tele := wire.Channel{
		Name: "telegram", Kind: "telegram", State: "degraded", Reason: "Telegram does not answer", Account: "777", Title: "@mybot", AddedAt: noon,
		HeardAt: noon, Waiting: 2, Strangers: "ignore", Rate: 20, Limit: 4096, Buttons: true, Quiet: "22:00-07:00 Europe/Berlin",
		Groups: []wire.ChannelGroup{{Chat: "-1001", Title: "Team", Mode: "mention"}, {Chat: "-1002", Title: "Noise", Mode: "never"}},
	}
	ipc.Handle(m, wire.ChannelList, answer[wire.Empty](wire.ChannelListResult{Channels: []wire.Channel{tele}}))
	ipc.Handle(m, wire.ChannelKinds, answer[wire.Empty](wire.ChannelKindsResult{Kinds: []wire.ChannelKind{{
		Name: "telegram", About: "a bot of Telegram", Needs: []wire.ChannelPart{
			{Name: "token", About: "from @BotFather", Secret: true}, {Name: "api_url", About: "of the Bot API", Default: "https://api.telegram.org"},
		},
	}}}))
	ipc.Handle(m, wire.ChannelAdd, func(_ context.Context, req wire.ChannelAddRequest) (wire.ChannelResult, error) {
		if len(req.Secrets) != 1 || req.Secrets[0].Part != "token" || string(req.Secrets[0].Value) != "123:abc" {
			return wire.ChannelResult{}, fault.New(fault.Invalid, "a channel of kind telegram needs its token: from @BotFather")
		}
		return wire.ChannelResult{Channel: tele}, nil
	})
	channel := answer[wire.ChannelRequest](wire.ChannelResult{Channel: tele})
	ipc.Handle(m, wire.ChannelShow, channel)
	ipc.Handle(m, wire.ChannelTest, channel)
	ipc.Handle(m, wire.ChannelPause, channel)
	ipc.Handle(m, wire.ChannelResume, channel)
	ipc.Handle(m, wire.ChannelRemove, answer[wire.ChannelRequest](wire.Empty{}))
	ipc.Handle(m, wire.ChannelSet, answer[wire.ChannelSetRequest](wire.ChannelResult{Channel: tele}))
	ipc.Handle(m, wire.Send, func(_ context.Context, req wire.SendRequest) (wire.SendResult, error) {
		return wire.SendResult{ItemID: "obx_1" + req.Key, State: "queued"}, nil
	})
	ipc.Handle(m, wire.SendState, func(_ context.Context, req wire.SendStateRequest) (wire.SendResult, error) {
		switch req.ItemID {
		case "obx_1late":
			return wire.SendResult{ItemID: req.ItemID, State: "queued", Error: "the network is down"}, nil
		case "obx_1left":
			return wire.SendResult{ItemID: req.ItemID, State: "skipped"}, nil
		}
		return wire.SendResult{ItemID: req.ItemID, State: "uncertain", Error: "the connection broke"}, nil
	})
	ipc.Handle(m, wire.PairStart, func(context.Context, wire.PairStartRequest) (wire.PairStartResult, error) {
		return wire.PairStartResult{Code: "ABCD-2345", ExpiresAt: time.Now().Add(10 * time.Minute).UnixMicro()}, nil
	})
	eve := wire.PairedSender{ID: "snd_3", Standing: "known", Channel: "adapter:tg", User: "9\n9", Name: "E\x1b[31mve\nyou", AddedAt: noon} // who chose her name herself
	ipc.Handle(m, wire.PairList, answer[wire.Empty](wire.PairListResult{Senders: []wire.PairedSender{you, bob, eve}}))
	ipc.Handle(m, wire.PairAllow, answer[wire.PairAllowRequest](wire.PairChangeResult{Sender: bob}))
	ipc.Handle(m, wire.PairRemove, answer[wire.PairRemoveRequest](wire.PairChangeResult{Sender: you}))
}
