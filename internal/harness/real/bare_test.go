//go:build harness

package real

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/fakeapi"
)

// hand runs a program as one would by hand, without walls.
type hand struct {
	cli       harness.Name
	run       *fakeapi.Run
	home, dir string
	more      []string // arguments
}

// play reads what the program prints.
func (h *hand) play(t testing.TB, prompt string) harness.Record {
	t.Helper()
	path, args, _ := program(t, h.cli)
	more, env := byHand(t, h.cli, h.run, h.home)
	more = append(slices.Clone(h.more), more...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append(append(args, more...), prompt)...)
	cmd.Dir = h.dir
	cmd.Env = append(env, "HOME="+h.home, "PATH="+os.Getenv("PATH"), "TERM=dumb", "LANG=C.UTF-8")
	cmd.WaitDelay = time.Second
	adapter, err := harness.ByName(h.cli)
	if err != nil {
		t.Fatal(err)
	}
	dec := adapter.Decoder("")
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = dec, &stderr
	if err := confine.Start(cmd); err != nil {
		t.Fatal(err)
	}
	_ = confine.Wait(cmd) // how it ended is in its state
	return dec.Close(harness.Exit{Code: cmd.ProcessState.ExitCode(), Stderr: stderr.String()})
}

// byHand are the arguments and the environment that lead a program to the fake API.
func byHand(t testing.TB, cli harness.Name, run *fakeapi.Run, home string) (args, env []string) {
	t.Helper()
	write := func(name, text string) {
		path := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	switch cli {
	case harness.Claude:
		return []string{"-p", "--output-format", "stream-json", "--verbose"}, []string{
			"ANTHROPIC_BASE_URL=" + run.URL, "ANTHROPIC_API_KEY=" + run.Key, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
			"CLAUDE_CODE_MAX_RETRIES=2", "ENABLE_TOOL_SEARCH=false",
		}
	case harness.Codex:
		provider := `model_providers.fake={name="fake",base_url="` + run.URL + `/v1",env_key="FAKE_KEY",wire_api="responses",request_max_retries=2,stream_max_retries=2}`
		return []string{
			"exec", "--json", "--skip-git-repo-check", "-s", "read-only", "-m", codexModel, "-c", "analytics.enabled=false",
			"--disable", "plugins", "--disable", "apps", "-c", "model_provider=fake", "-c", provider,
		}, []string{"FAKE_KEY=" + run.Key}
	case harness.OpenCode:
		config := fmt.Sprintf(`{
			"autoupdate": false, "share": "disabled", "model": "anthropic/lab-1", "small_model": "anthropic/lab-1", "enabled_providers": ["anthropic"],
			"provider": {"anthropic": {"options": {"baseURL": %q, "apiKey": "{env:FAKE_KEY}"}, "models": {"lab-1": {"name": "lab-1"}}}}
		}`, run.URL+"/v1")
		return []string{"run", "--format", "json", "--pure"}, []string{
			"OPENCODE_CONFIG_CONTENT=" + config, "FAKE_KEY=" + run.Key, "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1",
			"OPENCODE_DISABLE_DEFAULT_PLUGINS=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1",
		}
	case harness.Gemini:
		write(".gemini/settings.json", `{
			"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": false},
			"general": {"enableAutoUpdate": false}
		}`)
		return []string{"--skip-trust", "-m", "gemini-2.5-flash", "-o", "stream-json", "-p"}, []string{
			"GEMINI_API_KEY=" + run.Key, "GOOGLE_GEMINI_BASE_URL=" + run.URL, "GEMINI_CLI_NO_RELAUNCH=1",
		}
	case harness.Pi:
		write(".pi/agent/models.json", fmt.Sprintf(`{"providers": {"lab": {
			"baseUrl": %q, "api": "anthropic-messages", "apiKey": "$FAKE_KEY", "models": [{"id": "lab-1"}]
		}}}`, run.URL))
		return []string{"--mode", "json", "--provider", "lab", "--model", "lab-1", "--no-session"}, []string{"FAKE_KEY=" + run.Key, "PI_OFFLINE=1"}
	}
	t.Fatalf("nobody runs %s by hand here", cli)
	return nil, nil
}

const codexModel = "gpt-5.5"

// TestTheFakeIsEnoughForEachProgram runs each as one would by hand: what the other
// tests see is the adapters', not the API's.
func TestTheFakeIsEnoughForEachProgram(t *testing.T) {
	t.Parallel()
	for _, cli := range []harness.Name{harness.Claude, harness.Codex, harness.OpenCode, harness.Gemini, harness.Pi} {
		t.Run(string(cli), func(t *testing.T) {
			run := fakeapi.New(t).Run(fakeapi.Plain())
			h := hand{cli: cli, run: run, home: t.TempDir(), dir: t.TempDir()}
			rec := h.play(t, "say something")
			if rec.Outcome != harness.Completed || rec.Text != fakeapi.Text {
				t.Errorf("%+v", rec)
			}
			turns := run.Turns()
			if len(turns) != 1 || turns[0].System == "" || len(turns[0].Tools) == 0 {
				t.Fatalf("asked %d times: %+v", len(turns), turns)
			}
			for _, q := range run.Requests() {
				t.Logf("%s %s: %d", q.Method, q.Path, q.Status)
				if q.Status != 200 || q.Leaked {
					t.Errorf("%s %s: %d, leaked %v", q.Method, q.Path, q.Status, q.Leaked)
				}
			}
			t.Logf("%s offers %q, prompts %q", cli, turns[0].Names(), turns[0].Prompts)
		})
	}
}
