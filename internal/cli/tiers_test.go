//go:build unix

package cli

import (
	"context"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// cannedTiers answers for adapters and senders: there is the adapter tg, you in its
// direct chat 42, and Bob.
func cannedTiers(m *ipc.Mux) {
	tg := wire.Adapter{Name: "tg", Channel: "adapter:tg", AddedAt: noon, AskedAt: noon + 60_000_000, Waiting: 1}
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
	ipc.Handle(m, wire.PairStart, func(context.Context, wire.PairStartRequest) (wire.PairStartResult, error) {
		return wire.PairStartResult{Code: "ABCD-2345", ExpiresAt: time.Now().Add(10 * time.Minute).UnixMicro()}, nil
	})
	ipc.Handle(m, wire.PairList, answer[wire.Empty](wire.PairListResult{Senders: []wire.PairedSender{you, bob}}))
	ipc.Handle(m, wire.PairAllow, answer[wire.PairAllowRequest](wire.PairChangeResult{Sender: bob}))
	ipc.Handle(m, wire.PairRemove, answer[wire.PairRemoveRequest](wire.PairChangeResult{Sender: you}))
}
