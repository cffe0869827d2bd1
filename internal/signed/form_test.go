package signed

import (
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/signed/signedtest"
	"github.com/ombud-run/ombud/wasmloop"
)

// TestAManifestOfOursHoldsNothingThatIsOnlyText: what an operator reads is what it can mean.
func TestAManifestOfOursHoldsNothingThatIsOnlyText(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		capability := func(c string) func(*wasmloop.Manifest) {
			return func(m *wasmloop.Manifest) { m.Capabilities = append(m.Capabilities, c) }
		}
		lent := func(specs ...wasmloop.ToolSpec) func(*wasmloop.Manifest) {
			return func(m *wasmloop.Manifest) { m.Provides = specs }
		}
		for what, c := range map[string]struct {
			change func(*wasmloop.Manifest)
			want   string
		}{
			"a host with prose":      {capability("http:good.example\n - nothing else"), "class http"},
			"a memory with prose":    {capability("memory:a small scratchpad of its own"), "class memory"},
			"a tool with prose":      {capability("tool:app.push (only once)"), "class tool"},
			"a channel with prose":   {capability("channel:operator only"), "class channel"},
			"a secret with prose":    {capability("secret:Git Hub"), "class secret"},
			"a spend with prose":     {capability("spend:nothing"), "class spend"},
			"a port beyond all":      {capability("http:good.example:99999"), "http:good.example:99999"},
			"a schedule each 1s":     {func(m *wasmloop.Manifest) { m.Schedule = "@every 1s" }, "more than once a minute"},
			"a schedule of seconds":  {func(m *wasmloop.Manifest) { m.Schedule = "*/5 * * * * *" }, "more than once a minute"},
			"every event":            {func(m *wasmloop.Manifest) { m.Events = []string{"*"} }, "start itself"},
			"no kind of event":       {func(m *wasmloop.Manifest) { m.Events = []string{"Comms message"} }, "no kind of event"},
			"no path":                {func(m *wasmloop.Manifest) { m.Webhook = "/a b" }, "webhook: "},
			"capitals":               {func(m *wasmloop.Manifest) { m.Name = "Hello" }, "lower-case"},
			"a dot":                  {func(m *wasmloop.Manifest) { m.Name = "hello.world" }, "lower-case"},
			"a tool with a dot":      {lent(wasmloop.ToolSpec{Name: "b.c", Description: "d"}), "no name of a tool"},
			"a tool twice":           {lent(wasmloop.ToolSpec{Name: "b", Description: "d"}, wasmloop.ToolSpec{Name: "b", Description: "d"}), "twice"},
			"a version of two lines": {func(m *wasmloop.Manifest) { m.Version = "1\n2" }, "one line"},
		} {
			if _, err := s.Inspect(t.Context(), s.hand(hello(t, "1.0.0", c.change))); !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", what, err)
			}
		}
		good := func(m *wasmloop.Manifest) {
			m.Capabilities = []string{
				"http:*", "http:*.example.com", "http:127.0.0.1:8080", "memory:main", "memory:my-own_2:write", "tool:app.push", "channel:local:ada",
				"spend:5", "secret:github-token",
			}
			m.Schedule, m.Events, m.Webhook = "@every 1m", []string{"comms.message", "tool.*"}, "/hello/world"
		}
		if _, err := s.try(hello(t, "1.0.0", good), nil); err != nil {
			t.Error(err)
		}
	})
}

// TestAV1ManifestIsReadAsItIs, but for a name that another loop has in other letters.
func TestAV1ManifestIsReadAsItIs(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		odd := wasmloop.Manifest{Name: "My.Loop", Capabilities: []string{"memory:nexus:write:write", "http:a b"}, Schedule: "@every 1s", Events: []string{"*"}}
		if _, err := s.try(signedtest.V1(t, odd, signedtest.Module(""), "maker", ""), nil); err != nil {
			t.Error(err)
		}
		ours := wasmloop.Manifest{Name: "Memory-Upkeep"}
		if _, err := s.try(signedtest.V1(t, ours, signedtest.Module(""), "maker", ""), nil); !fault.Is(err, fault.Conflict) {
			t.Error(err)
		}
	})
}
