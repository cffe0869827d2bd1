//go:build unix

package laws

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// TestLaw05ACodingAgentReachesNothingThatWasNotGranted lets a client of the Model Context
// Protocol try every call of every tool, granted nothing, then one thing after the other:
// it never does more than what was granted, and what no such client can hold is refused
// though it was granted.
func TestLaw05ACodingAgentReachesNothingThatWasNotGranted(t *testing.T) {
	t.Parallel()
	h := build(t, "turns:\n  - steps: [{text: x}]", "tools:\n  shell:\n    allow: [sh]\n")
	h.live()
	h.write(h.file("a.txt"), "a")
	added, err := h.client.MCPClientAdd(t.Context(), wire.MCPClientRequest{Name: "claude"})
	if err != nil {
		t.Fatal(err)
	}
	agent := wire.NewAgentClient(h.in.AgentSocket())
	tryAll := func() (allowed []string) {
		t.Helper()
		for _, text := range everyCall {
			var c struct {
				Tool  string          `json:"tool"`
				Input json.RawMessage `json:"input"`
			}
			raw, err := yaml.YAMLToJSON([]byte(text))
			if err == nil {
				err = json.Unmarshal(raw, &c)
			}
			if err != nil {
				t.Fatal(text, err)
			}
			res, err := agent.MCPCall(t.Context(), wire.MCPCallRequest{Token: added.Token, Tool: c.Tool, Input: c.Input})
			if err != nil {
				t.Fatal(c.Tool, err)
			}
			if res.Status == "refused" && (res.Class == fault.Denied || res.Class == fault.NotFound) {
				continue
			}
			allowed = append(allowed, c.Tool)
		}
		slices.Sort(allowed)
		return slices.Compact(allowed)
	}
	if got := tryAll(); len(got) > 0 {
		t.Errorf("granted nothing it reached %v", got)
	}
	if list, err := agent.MCPTools(t.Context(), wire.MCPTokenRequest{Token: added.Token}); err != nil || len(list.Tools) > 0 {
		t.Errorf("it is offered %+v, %v", list, err)
	}
	for scope, want := range map[string]string{
		"time.read":    "time.now",
		"memory.read":  "memory.list memory.recall result.read",
		"memory.write": "memory.remember", // to forget by a query is to read, too
		"shell.exec":   "",                // never given in this tier
		"fs.write":     "",
		"spend":        "",
		"loop":         "",
		"channel":      "",
	} {
		res, err := h.client.CapsGrant(t.Context(), wire.CapsGrantRequest{Subject: "mcp:claude", Scope: scope})
		if err != nil {
			t.Fatal(scope, err)
		}
		if got := strings.Join(tryAll(), " "); got != want {
			t.Errorf("granted %s it reached %q, want %q", scope, got, want)
		}
		if _, err := h.client.CapsRevoke(t.Context(), wire.CapsRevokeRequest{ID: res.Grant.ID}); err != nil {
			t.Fatal(err)
		}
	}
	if h.read(h.file("a.txt")) != "a" || h.read(h.file("b.txt")) != "" || h.read(h.file("c.txt")) != "" {
		t.Error("something was done")
	}
}
