//go:build unix

package daemon

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/harness/keyproxy"
	"github.com/ombud-run/ombud/internal/redact"
)

// TestWhatACodingAgentReaches: where ombud has its key its API is reached through ombud
// alone, at the one port of this machine where that listens.
func TestWhatACodingAgentReaches(t *testing.T) {
	t.Parallel()
	way := keyproxy.Way{Address: "127.0.0.1:4711", Host: "api.anthropic.com"}
	local := keyproxy.Way{Address: "127.0.0.1:4711", Host: "127.0.0.1:4000"}
	plain := config.Harness{}
	for name, c := range map[string]struct {
		harness config.Harness
		only    []string // tools.web.allow_hosts
		way     *keyproxy.Way
		yes, no []string
	}{
		"its own login":        {plain, nil, nil, []string{"https://api.anthropic.com", "https://example.com"}, []string{"http://127.0.0.1:4711", "http://10.0.0.1"}},
		"held":                 {plain, nil, &way, []string{"http://127.0.0.1:4711", "https://example.com"}, []string{"https://api.anthropic.com", "http://api.anthropic.com", "http://127.0.0.1:4712", "http://localhost:4711", "http://10.0.0.1"}},
		"held, some hosts":     {plain, []string{"docs.example.com"}, &way, []string{"http://127.0.0.1:4711", "https://docs.example.com"}, []string{"https://api.anthropic.com", "https://example.com", "http://127.0.0.1:80"}},
		"held, and configured": {config.Harness{Hosts: []string{"*.anthropic.com"}}, nil, &way, []string{"https://api.anthropic.com", "http://127.0.0.1:4711"}, []string{"http://127.0.0.1:80"}},
		"held, hosts of ours":  {config.Harness{Hosts: []string{"10.0.0.1:8080"}}, []string{"docs.example.com"}, &way, []string{"http://10.0.0.1:8080", "http://127.0.0.1:4711"}, []string{"https://api.anthropic.com", "http://10.0.0.1"}},
		"held, of a gateway":   {config.Harness{BaseURL: "http://127.0.0.1:4000/v1"}, nil, &local, []string{"http://127.0.0.1:4711"}, []string{"http://127.0.0.1:4000"}},
		"a gateway":            {config.Harness{BaseURL: "http://127.0.0.1:4000/v1"}, nil, nil, []string{"http://127.0.0.1:4000", "https://api.anthropic.com"}, []string{"http://127.0.0.1:4711"}},
	} {
		cfg := config.Config{Harnesses: map[string]config.Harness{"claude": c.harness}, Tools: config.Tools{Web: config.Web{AllowHosts: c.only}}}
		reach, err := harnessesReach(cfg)
		if err != nil {
			t.Fatal(err)
		}
		e, err := reach["claude"].egress()
		if c.way != nil {
			e, err = reach["claude"].held(*c.way)
		}
		if err != nil {
			t.Fatal(err)
		}
		for want, list := range map[bool][]string{true: c.yes, false: c.no} {
			for _, text := range list {
				u, err := url.Parse(text)
				if err != nil {
					t.Fatal(err)
				}
				if err := e.CheckURL(u); (err == nil) != want {
					t.Errorf("%s: %s: %v", name, text, err)
				}
			}
		}
	}
}

// TestTheKeyOfACodingAgentIsHidden: a program that is given it can print it.
func TestTheKeyOfACodingAgentIsHidden(t *testing.T) {
	t.Parallel()
	const key = "AIza-of-a-coding-agent-1234567"
	o := options(t, "")
	o.Environment = config.ReadEnvironment(func(name string) string {
		if name == "GEMINI_API_KEY" {
			return key
		}
		return ""
	})
	d := within(t, o, nil)
	if shown := d.hide.String("it says " + key); strings.Contains(shown, key) {
		t.Errorf("shown is %q", shown)
	}
	h, err := d.delegations.Harness("gemini")
	if err != nil || h.Key != key || h.KeyFrom() != "the variable GEMINI_API_KEY" {
		t.Errorf("its key is from %q, %v", h.KeyFrom(), err)
	}
}

// TestACodingAgentWhoseReachCannotBeMadeReachesNothing, and not everything.
func TestACodingAgentWhoseReachCannotBeMadeReachesNothing(t *testing.T) {
	t.Parallel()
	d := &Daemon{log: slog.New(slog.DiscardHandler), keys: keyproxy.New(keyproxy.Config{Hide: redact.New()})}
	e := d.agentEgress(harnessReach{hosts: []string{"no host at all/"}}, "run_1")
	for _, text := range []string{"https://example.com", "https://api.anthropic.com", "http://127.0.0.1"} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if e.CheckURL(u) == nil {
			t.Errorf("%s is reached", text)
		}
	}
}
