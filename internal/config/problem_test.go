package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/fault"
)

func TestProblemsNameTheirPlaceAndTheNearestName(t *testing.T) {
	t.Parallel()
	scope := func(s string) error {
		if s == "fs.raed" {
			return errors.New(`unknown scope "fs.raed", did you mean "fs.read"?`)
		}
		return nil
	}
	tool := func(s string) error {
		if s != "fs.read" {
			return fmt.Errorf("no tool is called %q", s)
		}
		return nil
	}
	for name, c := range map[string]struct {
		yaml string
		want string // the whole text
	}{
		"unknown key":              {"turn:\n  stepz: 3\n", `c.yaml:2:3: unknown key "stepz" in turn; did you mean "steps"?`},
		"unknown heading":          {"\ntrun:\n  steps: 3\n", `c.yaml:2:1: unknown key "trun"; did you mean "turn"?`},
		"key of another heading":   {"timeout: 3s\n", `c.yaml:1:1: unknown key "timeout"; did you mean "turn.timeout"?`},
		"nothing near":             {"umbrella: x\n", `c.yaml:1:1: unknown key "umbrella"`},
		"the key itself":           {"models: {providers: {openai: {api_key: x}}}\n", "c.yaml:1:40: models.providers.openai.api_key: is not secret:NAME; keep the key by `ombud secret set NAME`, never in here"},
		"heading with a value":     {"turn: 3\n", `c.yaml:1:7: turn: is a heading, its keys go below it, such as "steps:"`},
		"names with a value":       {"roles: reader\n", `c.yaml:1:8: roles: is a heading, its keys go below it, such as "some-name:"`},
		"not a mapping":            {"- turn\n", `c.yaml:1:1: the file is a list of keys, such as "store:"`},
		"only a word":              {"hello\n", `c.yaml:1:1: the file is a list of keys, such as "store:"`},
		"no value":                 {"turn:\n  steps:\n", `c.yaml:2:3: turn.steps: has no value`},
		"null":                     {"store: ~\n", `c.yaml:1:1: store: has no value`},
		"a mapping as value":       {"store: {a: b}\n", `c.yaml:1:8: store: takes a plain text here, not something nested`},
		"a list as value":          {"store: [a]\n", `c.yaml:1:8: store: takes one value, not a list`},
		"a value as list":          {"tools: {shell: {allow: ls}}\n", `c.yaml:1:24: tools.shell.allow: takes a list: write [ls]`},
		"a nested list":            {"tools: {shell: {allow: [[ls]]}}\n", `c.yaml:1:25: tools.shell.allow: takes a plain text here, not something nested`},
		"twice in a list":          {"tools:\n  shell:\n    allow:\n      - ls\n      - ls\n", `c.yaml:5:9: tools.shell.allow: "ls" is in the list twice`},
		"a harness nobody knows":   {"harnesses: {claud: {model: x}}\n", `c.yaml:1:13: harnesses.claud: claud is no known program, so it needs acp, the command of an ACP agent; did you mean "claude"?`},
		"a route of nobody":        {"delegate: {admit: [cloud/x]}\n", `c.yaml:1:19: delegate.admit: no harness is called "cloud"`},
		"a route of stars":         {"delegate: {admit: ['claude/*x']}\n", `c.yaml:1:20: delegate.admit: "claude/*x" is not a route: HARNESS, HARNESS/MODEL or HARNESS/*`},
		"a command by its name":    {"harnesses: {mine: {acp: [agent]}}\n", `c.yaml:1:25: harnesses.mine.acp: begins with "agent", which is no absolute path of a program`},
		"a setting twice":          {"loops: {memory-upkeep: {set: ['merge=true', 'merge=false']}}\n", `c.yaml:1:45: loops.memory-upkeep.set: "merge" is set twice`},
		"no setting":               {"recipes: {webhooks: [x]}\n", `c.yaml:1:22: recipes.webhooks: "x" is not NAME=VALUE`},
		"empty in a list":          {"tools: {shell: {allow: [ls, '']}}\n", `c.yaml:1:29: tools.shell.allow: "" is empty or has spaces around it`},
		"key twice":                {"store: sqlite\nstore: sqlite\n", `c.yaml:2:1: store: is written twice, first in line 1`},
		"anchor":                   {"store: &x sqlite\n", `c.yaml:1:8: store: anchors and aliases are not supported; write the value out`},
		"tag":                      {"store: !!str sqlite\n", `c.yaml:1:8: store: tags are not supported; write the value out`},
		"merge":                    {"<<: {store: sqlite}\n", `c.yaml:1:1: this kind of key is not supported; write a plain name`},
		"two documents":            {"store: sqlite\n---\nstore: sqlite\n", `c.yaml:3:1: a second document starts; write one only`},
		"number":                   {"turn: {steps: many}\n", `c.yaml:1:15: turn.steps: "many" is not a whole number from 1 to 1000`},
		"number out of range":      {"turn: {steps: 0}\n", `c.yaml:1:15: turn.steps: "0" is not a whole number from 1 to 1000`},
		"hexadecimal":              {"turn: {steps: 0x10}\n", `c.yaml:1:15: turn.steps: "0x10" is not a whole number from 1 to 1000`},
		"duration":                 {"turn: {timeout: 120}\n", `c.yaml:1:17: turn.timeout: "120" is not a duration such as 90s, 10m or 24h`},
		"duration out of range":    {"turn: {timeout: 48h}\n", `c.yaml:1:17: turn.timeout: 48h is not between 1s and 24h`},
		"amount":                   {"budget: {day_usd: -1}\n", `c.yaml:1:19: budget.day_usd: "-1" is not an amount such as 2.50, up to 999999999`},
		"amount too fine":          {"budget: {day_usd: 0.0000001}\n", `c.yaml:1:19: budget.day_usd: "0.0000001" is finer than a millionth of a dollar`},
		"level":                    {"log: {level: wran}\n", `c.yaml:1:14: log.level: "wran" is not a level; did you mean "warn"?`},
		"bool":                     {"tools: {web: {allow_private: yes}}\n", `c.yaml:1:30: tools.web.allow_private: "yes" is neither true nor false`},
		"store":                    {"store: sqlit\n", `c.yaml:1:8: store: is neither sqlite nor postgres://user@host/database; did you mean "sqlite"?`},
		"relative root":            {"tools: {fs: {root: work}}\n", `c.yaml:1:20: tools.fs.root: "work" is neither an absolute path nor workspace`},
		"program with arguments":   {"tools: {shell: {allow: [ls -l]}}\n", `c.yaml:1:25: tools.shell.allow: "ls -l" is not the name of a program or an absolute path; arguments do not belong here`},
		"host with scheme":         {"tools: {web: {allow_hosts: ['https://a.b']}}\n", `c.yaml:1:29: tools.web.allow_hosts: "https://a.b" is not a host in lower case, such as example.com or *.example.com, without scheme, port and path`},
		"unknown provider":         {"models: {main: antropic/x}\n", `c.yaml:1:16: models.main: no provider is called "antropic"; did you mean "anthropic"?`},
		"no model":                 {"models: {main: openai/}\n", `c.yaml:1:16: models.main: "openai/" is neither provider/model, nor a provider, nor auto`},
		"provider without address": {"models:\n  providers:\n    mine: {model: x}\n", `c.yaml:3:5: models.providers.mine: needs base_url`},
		"bad address":              {"models: {providers: {mine: {base_url: example.com}}}\n", `c.yaml:1:39: models.providers.mine.base_url: is not an http or https address without user, query and fragment`},
		"builtin configured":       {"models: {providers: {builtin: {model: x}}}\n", `c.yaml:1:22: models.providers: "builtin" is built in and takes no configuration`},
		"price without model":      {"models: {prices: {gpt: {}}}\n", `c.yaml:1:19: models.prices: "gpt" is not provider/model`},
		"bad name":                 {"roles: {Reader: {}}\n", `c.yaml:1:9: roles: "Reader" is not a name of 1 to 32 of a-z, 0-9, - and _`},
		"unknown role":             {"agents: {main: {role: asistant}}\n", `c.yaml:1:23: agents.main.role: no role is called "asistant"; did you mean "assistant"?`},
		"unknown parent":           {"roles:\n  reader: {parent: writer}\n  writter: {}\n", `c.yaml:2:20: roles.reader.parent: no role is called "writer"; did you mean "writter"?`},
		"own parent":               {"roles: {reader: {parent: reader}}\n", `c.yaml:1:26: roles.reader.parent: the role is its own ancestor: reader → reader`},
		"scope in two lists":       {"roles:\n  r:\n    allow: [fs.read]\n    deny: [fs.read]\n", `c.yaml:4:12: roles.r.deny: "fs.read" is in roles.r.allow too`},
		"unknown scope":            {"roles:\n  r:\n    allow: [fs.write,\n     fs.raed]\n", `c.yaml:4:6: roles.r.allow: unknown scope "fs.raed", did you mean "fs.read"?`},
		"unknown tool":             {"agents: {main: {tools: [fs.read, nope]}}\n", `c.yaml:1:34: agents.main.tools: no tool is called "nope"`},
		"hold over expires":        {"approvals: {expires: 5m}\n", `c.yaml:1:22: approvals.hold: 10m0s is longer than approvals.expires, 5m0s`},
		"invalid YAML":             {"turn:\n  steps: [3\n", "c.yaml:2:10: this is not valid YAML: sequence end token ']' not found\n    2 |   steps: [3\n      |          ^"},
		"a tab":                    {"turn:\n\tsteps: 3\n", "c.yaml:2:1: this is not valid YAML: found character '\t' that cannot start any token\n    2 | \tsteps: 3\n      | ^"},
		"invalid UTF-8":            {"store: sqlite\nlog: \xff\n", `c.yaml:2:1: the line is not valid UTF-8`},
		"a NUL":                    {"store: \x00\n", `c.yaml:1:8: the line has a control character`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(c.yaml, Input{Scope: scope, Tool: tool})
			got := problems(t, err)
			if len(got) != 1 || got[0] != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if fault.Exit(err) != 78 || fault.HintOf(err) == "" {
				t.Errorf("exit %d, hint %q", fault.Exit(err), fault.HintOf(err))
			}
		})
	}
}

func TestAllProblemsAreToldAtOnceInOrder(t *testing.T) {
	t.Parallel()
	_, err := load("turn: {steps: x}\nlog: {levle: info}\nroles:\n  a: {parent: b}\n  b: {parent: a}\nstore: [x]\n", Input{
		Getenv: env("OMBUD_TURN_CALLS", "y"),
		Flags:  []Override{{"--set", "turn.timeot", "1s"}},
	})
	want := []string{
		`c.yaml:1:15: turn.steps: "x"`, `c.yaml:2:7: unknown key "levle"`, `c.yaml:4:15: roles.a.parent: the role`,
		`c.yaml:5:15: roles.b.parent: the role`, `c.yaml:6:8: store: takes one`,
		`flag --set: unknown key "turn.timeot"; did you mean "turn.timeout"?`, `environment OMBUD_TURN_CALLS: turn.calls: "y"`,
	}
	got := problems(t, err)
	if len(got) != len(want) {
		t.Fatalf("%d problems: %q", len(got), got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("problem %d is %q, want %q…", i, got[i], want[i])
		}
	}
	if !strings.HasPrefix(err.Error(), "7 problems in the configuration\n  c.yaml:1:15: ") {
		t.Errorf("%s", err)
	}
}

func TestManyProblemsAreCounted(t *testing.T) {
	t.Parallel()
	_, err := load(strings.Repeat("nothing_like_it: 1\n", 1)+strings.Repeat("x", 70)+": 1\n"+manyKeys(40), Input{})
	if got := len(problems(t, err)); got != 42 {
		t.Errorf("%d problems", got)
	}
	if !strings.HasSuffix(err.Error(), "\n  and 22 more") {
		t.Errorf("%s", err)
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "unheard_of_%d: 1\n", i)
	}
	return b.String()
}

func TestSecretsInTheFileAreRefusedAndNeverShown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ yaml, secret, at string }{
		"a key where its name goes": {"models:\n  providers:\n    openai:\n      api_key_env: sk-proj-Abc123456789\n", "Abc123456789", "c.yaml:4:20: "},
		"a key in a comment":        {"# sk-ant-api03-Abc123456789\nstore: sqlite\n", "Abc123456789", "c.yaml:1:3: "},
		"a key under a wrong name":  {"models: {providers: {openai: {api_key: sk-Abc123456789}}}\n", "Abc123456789", "c.yaml:1:40: "},
		"a key in broken YAML":      {"store: [sk-Abc123456789\n", "Abc123456789", "c.yaml:1:9: "},
		"a key as a key":            {"sk-Abc123456789: 1\n", "Abc123456789", "c.yaml:1:1: "},
		"a token":                   {"agents: {main: {instructions: use ghp_Abc1234567890123456 for it}}\n", "Abc123456789", "c.yaml:1:35: "},
		"a database password":       {"store: postgres://me:Hunter2@db/ombud\n", "Hunter2", "c.yaml:1:"},
		"a password parameter":      {"store: postgres:///ombud?user=me&password=Hunter2\n", "Hunter2", "c.yaml:1:"},
		"a password in an address":  {"models: {providers: {mine: {base_url: 'http://me:Hunter2@host/v1'}}}\n", "Hunter2", "c.yaml:1:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(c.yaml, Input{})
			all := problems(t, err)
			if !slices.ContainsFunc(all, func(s string) bool {
				return strings.HasPrefix(s, c.at) && strings.Contains(s, "looks like a secret")
			}) {
				t.Errorf("%q", all)
			}
			if strings.Contains(err.Error(), c.secret) {
				t.Errorf("it is repeated: %s", err)
			}
		})
	}
	_, err := load("models: {providers: {openai: {api_key_env: 'Some Key Of No Known Shape'}}}\n", Input{})
	if got := problems(t, err); len(got) != 1 || strings.Contains(got[0], "Shape") || !strings.Contains(got[0], "write the name") {
		t.Errorf("%q", got)
	}
	if _, err := load("agents: {main: {instructions: the risk-free task-list of the desk-top}}\n", Input{}); err != nil {
		t.Errorf("ordinary words: %v", err)
	}
}

func TestDatabasePasswordOfTheEnvironmentIsTakenAndHidden(t *testing.T) {
	t.Parallel()
	const dsn = "postgres://me:Hunter2@db/ombud"
	l, err := Load(Input{Getenv: env("OMBUD_STORE", dsn)})
	if err != nil {
		t.Fatal(err)
	}
	x, err := l.Explain("store")
	if err != nil || x.Value != "postgres://me:(hidden)@db/ombud" {
		t.Errorf("%+v, %v", x, err)
	}
	if l.Config.Store.Postgres.Reveal() != dsn {
		t.Error("not the address given")
	}
	if s := fmt.Sprintf("%v %+v %#v", l.Config, l.Config, l.Config); strings.Contains(s, "Hunter2") {
		t.Errorf("printed: %s", s)
	}
	_, err = Load(Input{Getenv: env("OMBUD_STORE", "mysql://me:Hunter2@db/x")})
	if got := problems(t, err); strings.Contains(got[0], "Hunter2") {
		t.Errorf("%q", got)
	}
}

func TestEnvironmentNeverPrintsItsSecrets(t *testing.T) {
	t.Parallel()
	e := ReadEnvironment(env("ANTHROPIC_API_KEY", "topsecret", "MY_KEY", " topsecret\n"))
	var log bytes.Buffer
	l := slog.New(slog.NewTextHandler(&log, nil))
	l.Info("environment", "env", e, "key", e.AnthropicAPIKey, "nested", struct{ E Environment }{e})
	js, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	out := log.String() + string(js)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		out += fmt.Sprintf(verb, e) + fmt.Sprintf(verb, e.AnthropicAPIKey) + fmt.Sprintf(verb, &e) + fmt.Sprintf(verb, []any{e})
	}
	if strings.Contains(out, "topsecret") || strings.Contains(out, fmt.Sprintf("%x", "topsecret")) {
		t.Errorf("printed: %s", out)
	}
	if !strings.Contains(e.String(), "ANTHROPIC_API_KEY is set, OPENAI_API_KEY is not set") {
		t.Error(e.String())
	}
	if k := e.Key(Provider{APIKeyEnv: "MY_KEY"}); k.Reveal() != "topsecret" || e.Key(Provider{}).Set() {
		t.Error("the configured key is not found, or one is found without a name")
	}
}

func TestNearestForgivesOneSlip(t *testing.T) {
	t.Parallel()
	var keys []string
	for _, e := range table() {
		keys = append(keys, e.path)
	}
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom(keys).Draw(t, "key")
		i := rapid.IntRange(0, len(key)-2).Draw(t, "at")
		slip := map[string]string{
			"none":    key,
			"missing": key[:i] + key[i+1:],
			"extra":   key[:i] + "q" + key[i:],
			"other":   key[:i] + "q" + key[i+1:],
			"swapped": key[:i] + key[i+1:i+2] + key[i:i+1] + key[i+2:],
		}
		how := rapid.SampledFrom([]string{"none", "missing", "extra", "other", "swapped"}).Draw(t, "slip")
		if d := distance(key, slip[how]); d > 1 || d != distance(slip[how], key) {
			t.Fatalf("%q to %q is %d", key, slip[how], d)
		}
		if near := nearest(slip[how], keys); distance(near, slip[how]) > 1 {
			t.Fatalf("%q is near %q", slip[how], near)
		}
	})
	if near := nearest("listen", keys); near != "" {
		t.Errorf("listen is near %q", near)
	}
}

func TestAmountsAreExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := MicroUSD(rapid.Int64Range(0, 999_999_999_999_999).Draw(t, "micro"))
		got, err := parseMicro(want.String())
		if err != nil || got != want {
			t.Fatalf("%d is written %s and read %d, %v", want, want, got, err)
		}
	})
}

func TestDeepOrHugeFilesAreRefused(t *testing.T) {
	t.Parallel()
	n := maxFile - 100
	for name, yaml := range map[string]string{
		"brackets":    strings.Repeat("[", n),
		"braces":      strings.Repeat("{a: ", n/4),
		"dashes":      strings.Repeat("- ", n/2),
		"questions":   strings.Repeat("? ", n/2),
		"anchors":     strings.Repeat("&a ", n/3),
		"tags":        strings.Repeat("!a ", n/3),
		"colons":      strings.Repeat("a: ", n/3),
		"stairs":      stairs(700),
		"too long":    strings.Repeat("#", maxFile+1),
		"mixed":       "a: " + strings.Repeat("[{a: ", n/5),
		"quote":       "a: \"" + strings.Repeat("x", n),
		"many values": "roles:\n" + strings.Repeat("  - a\n", n/6),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(yaml, Input{})
			problems(t, err)
		})
	}
}

func stairs(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}
