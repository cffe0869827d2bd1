//go:build unix

package child

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
)

// program is a shell script that answers what a probe asks.
func program(t *testing.T, l *lab, script string) string {
	t.Helper()
	path := filepath.Join(l.dir, "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAProgramIsProbed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, script string
		cli          harness.Name
		env          []string
		base         string
		version      string
		login        Login
		untested     bool
	}{
		{"claude logged in", `case "$*" in --version) echo "2.1.332 (Claude Code)";; "auth status --json") echo '{"loggedIn":true,"authMethod":"api_key"}';; esac`, harness.Claude, nil, "", "2.1.332", LoginYes, false},
		{"claude not", `case "$*" in --version) echo "2.1.332 (Claude Code)";; *) echo '{"loggedIn":false}'; exit 1;; esac`, harness.Claude, nil, "", "2.1.332", LoginNo, false},
		{"codex logged in", `case "$*" in *--version*) echo "codex-cli 0.171.0";; *) echo "API key configured - ***" >&2;; esac`, harness.Codex, nil, "", "0.171.0", LoginYes, false},
		{"codex not", `case "$*" in *--version*) echo "codex-cli 0.171.0";; *) echo "Not logged in" >&2; exit 1;; esac`, harness.Codex, nil, "", "0.171.0", LoginNo, false},
		{"codex with a provider of ours", `echo "codex-cli 0.171.0"`, harness.Codex, []string{"X_API_KEY=k"}, "https://x.example/v1", "0.171.0", LoginYes, false},
		{"pi with a key", `case "$*" in *--version*) echo 1.6.0 >&2;; *) printf 'provider   model\nanthropic  x\n' >&2;; esac`, harness.Pi, nil, "", "1.6.0", LoginYes, false},
		{"pi without", `case "$*" in *--version*) echo 0.99.0 >&2;; *) echo "No models available." >&2;; esac`, harness.Pi, nil, "", "0.99.0", LoginNo, true},
		{"gemini with a key", `echo 0.61.0`, harness.Gemini, []string{"GEMINI_API_KEY=k"}, "", "0.61.0", LoginYes, false},
		{"gemini without", `echo 0.61.0`, harness.Gemini, nil, "", "0.61.0", LoginNo, false},
		{"opencode with a key", `case "$*" in *--version*) echo 1.18.33;; *) printf '0 credentials\n1 environment variable\n';; esac`, harness.OpenCode, nil, "", "1.18.33", LoginYes, false},
		{"opencode without", `case "$*" in *--version*) echo 1.18.33;; *) echo "0 credentials";; esac`, harness.OpenCode, nil, "", "1.18.33", LoginNo, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := setup(t)
			p, err := l.Probe(t.Context(), Target{CLI: c.cli, Program: program(t, l, c.script), State: l.state, Env: c.env, BaseURL: c.base})
			if err != nil || p.Version != c.version || p.Login != c.login || (len(p.Warning) > 0) != c.untested {
				t.Errorf("%+v, %v", p, err)
			}
		})
	}
}

func TestAProbeThatFindsNothing(t *testing.T) {
	t.Parallel()
	l := setup(t)
	if _, err := l.Probe(t.Context(), Target{CLI: harness.Claude, Program: program(t, l, `echo "I am something else"`), State: l.state}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("no version: %v", err)
	}
	if _, err := l.Probe(t.Context(), Target{CLI: harness.Claude, Program: filepath.Join(l.dir, "none"), State: l.state}); !fault.Is(err, fault.NotFound) {
		t.Errorf("no program: %v", err)
	}
	if _, err := l.Probe(t.Context(), Target{CLI: "aider", Program: "/bin/sh", State: l.state}); !fault.Is(err, fault.NotFound) {
		t.Errorf("no such CLI: %v", err)
	}
}

func TestAnAgentOfTheProtocolIsProbed(t *testing.T) {
	t.Parallel()
	l := setup(t)
	l.cfg.Linger = 300 * time.Millisecond // it does not end by itself
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.Probe(t.Context(), Target{CLI: harness.ACP, Program: exe, Args0: []string{"fake-cli", "acp-odd"}, State: l.state})
	if err != nil || p.Version != "9.9" || p.Login != LoginUnknown {
		t.Errorf("%+v, %v", p, err)
	}
}
