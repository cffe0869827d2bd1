package anthropic

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/model/modeltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, s *modeltest.Server) model.Provider {
	t.Helper()
	p, err := New(Config{Key: modeltest.Key, KeyHint: "the key comes from ANTHROPIC_API_KEY", BaseURL: s.URL, Model: "claude-test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestConforms(t *testing.T) {
	t.Parallel()
	modeltest.Conform(t, open)
}

func ask() model.Request {
	return model.Request{Messages: []model.Message{model.Text(model.User, "hi")}, Tools: []model.ToolSpec{{Name: "time.now"}}}
}

func TestSignedReasoningIsGivenBack(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t,
		modeltest.Step{Thinking: "the user wants the <time>", Calls: []modeltest.Call{{Name: "time_now", Args: "{}"}}},
		modeltest.Step{Text: "noon"})
	p, req := open(t, s), ask()
	shown := ""
	out, err := p.Generate(t.Context(), req, func(d model.Delta) { shown += d.Text })
	if err != nil || len(out.Opaque) != 1 || out.Text != "" || shown != "" {
		t.Fatalf("%+v, %v; %q was shown", out, err, shown)
	}
	req.Messages = append(req.Messages, out.Message(), model.Results(model.ToolResult{CallID: out.Calls[0].ID, Text: "12:00"}))
	if out, err = p.Generate(t.Context(), req, nil); err != nil || out.Text != "noon" {
		t.Fatalf("%+v, %v", out, err)
	}
	if body := string(s.Requests()[1].Body); !strings.Contains(body, `"signature"`) {
		t.Errorf("no reasoning in %s", body)
	}
}

func TestCacheTokensAreCountedOnce(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t, modeltest.Step{Text: "x", Usage: modeltest.Usage{Input: 100, Output: 5, CacheRead: 30, CacheWrite: 50}})
	out, err := open(t, s).Generate(t.Context(), ask(), nil)
	if want := (model.Usage{Input: 20, Output: 5, CacheRead: 30, CacheWrite: 50}); err != nil || out.Usage != want {
		t.Errorf("%+v, %v", out.Usage, err)
	}
}

func TestStopReasons(t *testing.T) {
	t.Parallel()
	for wire, want := range map[string]model.StopReason{
		"end_turn": model.StopEnd, "stop_sequence": model.StopEnd, "max_tokens": model.StopMaxTokens,
		"model_context_window_exceeded": model.StopMaxTokens, "refusal": model.StopRefusal, "tool_use": model.StopCalls,
	} {
		out, err := open(t, modeltest.New(t, modeltest.Step{Text: "x", Stop: wire})).Generate(t.Context(), ask(), nil)
		if err != nil || out.Stop != want {
			t.Errorf("%s: %s, %v", wire, out.Stop, err)
		}
	}
}

func TestAWrongKeyTellsWhereItComesFrom(t *testing.T) {
	t.Parallel()
	s := modeltest.New(t)
	p, err := New(Config{Key: "wrong", KeyHint: "the key comes from ANTHROPIC_API_KEY", BaseURL: s.URL, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err = p.Generate(t.Context(), ask(), nil); !fault.Is(err, fault.Denied) || fault.HintOf(err) != "the key comes from ANTHROPIC_API_KEY" {
		t.Errorf("%v, hint %q", err, fault.HintOf(err))
	}
}

func TestTheEnvironmentIsNotRead(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "from-the-environment")
	t.Setenv("ANTHROPIC_AUTH_TOKEN", "from-the-environment")
	t.Setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
	t.Setenv("ANTHROPIC_CUSTOM_HEADERS", "x-stray: from-the-environment")
	s := modeltest.New(t, modeltest.Step{Text: "x"})
	if _, err := open(t, s).Generate(t.Context(), ask(), nil); err != nil {
		t.Fatal(err)
	}
	for name, values := range s.Requests()[0].Header {
		if strings.Contains(strings.Join(values, " "), "from-the-environment") {
			t.Errorf("%s: %v", name, values)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{{Model: "m"}, {Key: "k"}, {Key: "k", Model: "m", BaseURL: "api.example.com"}, {Key: "k", Model: "m", BaseURL: "ftp://x"}, {Key: "k", Model: "m", BaseURL: "http://%zz"}} {
		if _, err := New(c); !fault.Is(err, fault.Config) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
