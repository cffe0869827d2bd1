package config

import (
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

func env(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(k string) string { return m[k] }
}

// load reads yaml as if it were the file c.yaml.
func load(yaml string, in Input) (*Loaded, error) {
	in.File = "c.yaml"
	in.read = func(string) ([]byte, error) { return []byte(yaml), nil }
	return Load(in)
}

func problems(t testing.TB, err error) []string {
	t.Helper()
	if !fault.Is(err, fault.Config) {
		t.Fatalf("class %q of %v", fault.ClassOf(err), err)
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("no problems in %v", err)
	}
	var out []string
	for _, p := range e.Problems {
		out = append(out, p.String())
	}
	return out
}

func TestNothingWrittenIsTheDefaults(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "config.yaml")
	l, err := Load(Input{File: missing})
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Vault: Vault{Source: "auto"},
		Log:   Log{slog.LevelInfo},
		Models: Models{
			Providers: map[string]Provider{
				"anthropic": {"https://api.anthropic.com", "ANTHROPIC_API_KEY", "", "claude-sonnet-4-6"},
				"openai":    {"https://api.openai.com/v1", "OPENAI_API_KEY", "", "gpt-5.6-sol"},
				"ollama":    {"http://127.0.0.1:11434/v1", "", "", ""},
			},
			Prices: map[string]Price{},
		},
		Agents:    map[string]Agent{"main": {Role: "assistant"}},
		Roles:     map[string]Role{},
		Loops:     map[string]Loop{},
		Recipes:   Recipes{Files: []string{}, Webhooks: map[string]string{}},
		Delegate:  Delegate{Admit: []string{}, Timeout: 30 * time.Minute, Quiet: 10 * time.Minute, Limit: Limit{true, 5e6}, CheckNetwork: NetworkNone},
		Harnesses: map[string]Harness{},
		Turn:      Turn{32, 64, 120 * time.Second},
		Approvals: Approvals{10 * time.Minute, 24 * time.Hour},
		Budget:    Budget{Limit{true, 10e6}, Limit{true, 100e6}, Limit{true, 1e6}},
		Tools: Tools{
			Shell: Shell{[]string{"cat", "date", "df", "du", "echo", "head", "ls", "pwd", "tail", "uname", "uptime", "wc"}, "none", []string{}},
			Web:   Web{AllowHosts: []string{}},
			FS:    FS{AllowSensitive: []string{}},
		},
		Confine: Confine{Enforce: "strict"},
		Listen:  Listen{Address: netip.MustParseAddrPort(DefaultListen), Hosts: []string{}},
	}
	if !reflect.DeepEqual(l.Config, want) {
		t.Errorf("got  %+v\nwant %+v", l.Config, want)
	}
}

func TestEveryKeyIsRead(t *testing.T) {
	t.Parallel()
	l, err := load(`
store: postgres://me@db/ombud
log: {level: debug}
models:
  main: local/qwen/3
  summary: anthropic
  providers:
    local:
      base_url: http://127.0.0.1:8080/v1/
      api_key_env: LOCAL_KEY
      model: qwen
  prices:
    local/qwen/3.5:
      input_usd: 0.000001
      output_usd: 1.50
      cache_read_usd: 0
agents:
  main:
    role: reader
    tools: [fs.read]
    instructions: |
      Be brief.
      Be kind.
  idle: {tools: []}
  eager: {tools: all}
roles:
  reader:
    parent: assistant
    allow: [fs.read]
    ask:
      - net.fetch:https://example.com/docs
    deny: ["shell.exec"]
  bare:
turn: {steps: 1, calls: 0, timeout: 1m30s}
approvals: {hold: 0s, expires: 1h}
budget: {day_usd: none, month_usd: 0, turn_usd: 0.25}
tools:
  fs: {root: /srv/work/, allow_sensitive: [/srv/work/.env]}
  shell: {allow: [git, /usr/bin/make], network: proxy, read: [/srv/tools]}
  web: {allow_hosts: [example.com, '*.example.org', '::1'], allow_private: true}
listen: {address: '0.0.0.0:443', hosts: [a.example], behind_proxy: true, tls_cert: /etc/c.pem, tls_key: /etc/k.pem, admin_token: 'secret:admin'}
`, Input{})
	if err != nil {
		t.Fatal(err)
	}
	c := l.Config
	for what, pair := range map[string][2]any{
		"store":     {c.Store.Postgres.Reveal(), "postgres://me@db/ombud"},
		"log":       {c.Log.Level, slog.LevelDebug},
		"main":      {c.Models.Main, ModelRef{"local", "qwen/3"}},
		"summary":   {c.Models.Summary, ModelRef{"anthropic", ""}},
		"provider":  {c.Models.Providers["local"], Provider{"http://127.0.0.1:8080/v1", "LOCAL_KEY", "", "qwen"}},
		"price":     {c.Models.Prices["local/qwen/3.5"], Price{1, 1_500_000, 0, 1}},
		"agent":     {c.Agents["main"], Agent{"reader", []string{"fs.read"}, "Be brief.\nBe kind.\n"}},
		"no tools":  {c.Agents["idle"], Agent{"assistant", []string{}, ""}},
		"all tools": {c.Agents["eager"], Agent{"assistant", nil, ""}},
		"role":      {c.Roles["reader"], Role{"assistant", []string{"fs.read"}, []string{"net.fetch:https://example.com/docs"}, []string{"shell.exec"}}},
		"bare role": {c.Roles["bare"], Role{"", []string{}, []string{}, []string{}}},
		"listen":    {c.Listen, Listen{netip.MustParseAddrPort("0.0.0.0:443"), []string{"a.example"}, true, "/etc/c.pem", "/etc/k.pem", "admin"}},
		"turn":      {c.Turn, Turn{1, 0, 90 * time.Second}},
		"approvals": {c.Approvals, Approvals{0, time.Hour}},
		"budget":    {c.Budget, Budget{Limit{}, Limit{true, 0}, Limit{true, 250_000}}},
		"tools":     {c.Tools, Tools{FS{"/srv/work", []string{"/srv/work/.env"}}, Shell{[]string{"git", "/usr/bin/make"}, "proxy", []string{"/srv/tools"}}, Web{[]string{"example.com", "*.example.org", "::1"}, true}}},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s: got %+v, want %+v", what, pair[0], pair[1])
		}
	}
}

func TestLaterLayersWinAndSayWhoTheyAre(t *testing.T) {
	t.Parallel()
	yaml := "turn:\n  steps: 2\n  calls: 3\nlog:\n  level: warn\n"
	l, err := load(yaml, Input{
		Getenv: env("OMBUD_TURN_STEPS", "4", "OMBUD_LOG_LEVEL", "error", "OMBUD_TOOLS_SHELL_ALLOW", " ls, git ,"),
		Flags:  []Override{{"--steps", "turn.steps", "5"}, {"--set", "turn.steps", "6"}, {"--set", "agents.main.instructions", "be: kind"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]Explanation{
		"turn.steps":               {Value: "6", Source: "flag --set", Default: "32", Env: "OMBUD_TURN_STEPS"},
		"log.level":                {Value: "error", Source: "environment OMBUD_LOG_LEVEL", Default: "info", Env: "OMBUD_LOG_LEVEL"},
		"turn.calls":               {Value: "3", Source: "c.yaml:3:10", Default: "64", Env: "OMBUD_TURN_CALLS"},
		"turn.timeout":             {Value: "120s", Source: "default", Default: "120s", Env: "OMBUD_TURN_TIMEOUT"},
		"tools.shell.allow":        {Value: "[ls, git]", Source: "environment OMBUD_TOOLS_SHELL_ALLOW", Default: "[cat, date, df, du, echo, head, ls, pwd, tail, uname, uptime, wc]", Env: "OMBUD_TOOLS_SHELL_ALLOW"},
		"agents.main.instructions": {Value: `"be: kind"`, Source: "flag --set", Default: `""`},
	} {
		got, err := l.Explain(key)
		if err != nil || got.Doc == "" {
			t.Fatalf("%s: %+v, %v", key, got, err)
		}
		want.Key, want.Doc = key, got.Doc
		if got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	if l.Config.Turn != (Turn{6, 3, 120 * time.Second}) || !slices.Equal(l.Config.Tools.Shell.Allow, []string{"ls", "git"}) {
		t.Errorf("%+v", l.Config)
	}
	_, err = l.Explain("turn.step")
	if !fault.Is(err, fault.NotFound) || fault.HintOf(err) != `did you mean "turn.steps"?` {
		t.Errorf("%v, hint %q", err, fault.HintOf(err))
	}
}

func TestEveryKeyIsExplained(t *testing.T) {
	t.Parallel()
	l, err := load("roles: {reader: }\nloops: {memory-upkeep: }\nharnesses: {claude: }\nmodels: {prices: {a/b: {input_usd: 1, output_usd: 2}}}", Input{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range table() {
		if !slices.ContainsFunc(l.Keys(), func(k string) bool { return l.settings[k].entry.path == e.path }) {
			t.Errorf("%s is not among the keys", e.path)
		}
	}
	for _, k := range l.Keys() {
		if x, err := l.Explain(k); err != nil || x.Value == "" || x.Source == "" || x.Doc == "" {
			t.Errorf("%s: %+v, %v", k, x, err)
		}
	}
}

func TestOllamaHostMovesTheDefaultOnly(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"box":                   "http://box:11434/v1",
		"box:80":                "http://box:80/v1",
		":1234":                 "http://127.0.0.1:1234/v1",
		"0.0.0.0":               "http://127.0.0.1:11434/v1",
		"http://box":            "http://box:80/v1",
		"https://box/ollama/":   "https://box:443/ollama/v1",
		"[::1]:5":               "http://[::1]:5/v1",
		" http://127.0.0.1:77 ": "http://127.0.0.1:77/v1",
	} {
		l, err := Load(Input{Getenv: env("OLLAMA_HOST", host)})
		if err != nil {
			t.Errorf("%q: %v", host, err)
			continue
		}
		x, _ := l.Explain("models.providers.ollama.base_url")
		if got := l.Config.Models.Providers["ollama"].BaseURL; got != want || x.Source != "environment OLLAMA_HOST" {
			t.Errorf("%q: %s from %s, want %s", host, got, x.Source, want)
		}
	}
	l, err := load("models: {providers: {ollama: {base_url: 'http://mine/v1'}}}", Input{Getenv: env("OLLAMA_HOST", "box")})
	if err != nil || l.Config.Models.Providers["ollama"].BaseURL != "http://mine/v1" {
		t.Errorf("%v: what a person wrote for us lost", err)
	}
	if _, err := Load(Input{Getenv: env("OLLAMA_HOST", "ftp://x y")}); !fault.Is(err, fault.Config) || !strings.Contains(err.Error(), "environment OLLAMA_HOST") {
		t.Errorf("nonsense: %v", err)
	}
}

func TestUnreadableFileIsNotAnEmptyOne(t *testing.T) {
	t.Parallel()
	if _, err := Load(Input{File: t.TempDir()}); !fault.Is(err, fault.Config) {
		t.Errorf("a directory: %v", err)
	}
	_, err := Load(Input{File: "c.yaml", read: func(string) ([]byte, error) {
		return nil, &fs.PathError{Op: "open", Path: "c.yaml", Err: fs.ErrPermission}
	}})
	if !fault.Is(err, fault.Permission) {
		t.Errorf("not ours to read: %v", err)
	}
}

func TestMisspeltVariablesAreFound(t *testing.T) {
	t.Parallel()
	_, err := Load(Input{EnvNames: []string{"OMBUD_TRUN_STEPS", "OMBUD_HOME", "OMBUD_TEST_X", "OMBUD_TURN_STEPS", "PATH"}})
	want := []string{`environment OMBUD_TRUN_STEPS: no key has this variable; did you mean "OMBUD_TURN_STEPS"?`}
	if got := problems(t, err); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestSampleSaysTheDefaults(t *testing.T) {
	t.Parallel()
	sample := Sample()
	defaults, err := load(sample, Input{})
	if err != nil {
		t.Fatal(err)
	}
	var open strings.Builder
	for line := range strings.Lines(sample[strings.Index(sample, "\n\n"):]) {
		open.WriteString(strings.TrimPrefix(line, "# "))
	}
	l, err := load(open.String(), Input{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range table() {
		if !slices.ContainsFunc(l.Keys(), func(k string) bool {
			return l.settings[k].entry.path == e.path && l.settings[k].value.at.Kind == FromFile
		}) {
			t.Errorf("%s is not in the sample", e.path)
		}
	}
	delete(l.Config.Models.Prices, "openai/some-model")
	delete(l.Config.Roles, "reader")
	delete(l.Config.Loops, "memory-upkeep")
	delete(l.Config.Harnesses, "claude")
	if !reflect.DeepEqual(l.Config, defaults.Config) {
		t.Errorf("the sample says %+v\nthe defaults are %+v", l.Config, defaults.Config)
	}
}
