//go:build unix

package cli

import (
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/wire"
)

// cannedTriggers answers with a recipe that GitHub starts, one that is paused, and a
// webhook without its secret.
func cannedTriggers(m *ipc.Mux) {
	ipc.Handle(m, wire.TriggersList, answer[wire.TriggersListRequest](wire.TriggersListResult{
		Targets: []wire.Target{
			{Name: "loop:door", Owner: "loop", On: []string{"event door.opened", "webhook /hooks/door"}, Paused: true, PausedBy: "operator", Withheld: 3, WithheldAt: noon},
			{Name: "recipe:deploy", Owner: "recipe", On: []string{"webhook /hooks/github"}, Started: 2, LastRun: "run_1", LastAt: noon},
		},
		Webhooks: []wire.Webhook{
			{Path: "/hooks/door", Target: "loop:door", Scheme: "open", Accepted: 1, SeenAt: noon},
			{Path: "/hooks/github", Target: "recipe:deploy", Scheme: "github", Secrets: []string{"gh-new", "gh-old"}, Missing: []string{"gh-new"},
				Accepted: 2, Repeated: 1, Refused: 4, SeenAt: noon, RefusedAt: noon, Refusal: "the signature is another"},
		},
		Listener: "127.0.0.1:7331",
	}))
}
