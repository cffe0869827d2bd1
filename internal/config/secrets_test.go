package config

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

const sekret = "s3kr3t/value+0001"

func loadWith(t *testing.T, file string, env map[string]string) (*Loaded, error) {
	t.Helper()
	return Load(Input{File: "config.yaml", Getenv: func(name string) string { return env[name] }, read: func(string) ([]byte, error) { return []byte(file), nil }})
}

func TestAKeyByReference(t *testing.T) {
	t.Parallel()
	l, err := loadWith(t, "models:\n  providers:\n    anthropic:\n      base_url: https://api.anthropic.com\n      api_key: secret:claude-key\n", nil)
	if err != nil || l.Config.Models.Providers["anthropic"].APIKey != "claude-key" {
		t.Fatalf("%+v, %v", l, err)
	}
	if e, err := l.Explain("models.providers.anthropic.api_key"); err != nil || e.Value != "secret:claude-key" || e.Default != "none" {
		t.Errorf("%+v, %v", e, err)
	}
	for why, file := range map[string]string{
		"the key itself":    "models:\n  providers:\n    x:\n      base_url: http://x\n      api_key: " + sekret,
		"a reference to it": "models:\n  providers:\n    x:\n      base_url: http://x\n      api_key: secret:" + sekret,
		"two keys":          "models:\n  providers:\n    x:\n      base_url: http://x\n      api_key: secret:a\n      api_key_env: KEY",
		"a list":            "models:\n  providers:\n    x:\n      base_url: http://x\n      api_key: [secret:a]",
	} {
		if _, err := loadWith(t, file, nil); !fault.Is(err, fault.Config) || strings.Contains(err.Error(), sekret) {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// Whatever a person wrote into the configuration, no view of it shows what a variable
// that it uses holds.
func TestNoViewShowsWhatTheEnvironmentHolds(t *testing.T) {
	t.Parallel()
	env := map[string]string{"MY_KEY": sekret, "OMBUD_STORE": "postgres://u:pass-word-0002@host/db", "OPENAI_API_KEY": "openai-key-0003"}
	file := "models:\n  providers:\n    x:\n      base_url: http://x\n      api_key_env: MY_KEY\n" +
		"agents:\n  main:\n    instructions: use " + url.QueryEscape(sekret) + " or openai-key-0003, pass-word-0002 or " + base64.StdEncoding.EncodeToString([]byte("u:"+sekret)) + "\n" +
		"tools:\n  web:\n    allow_hosts: [openai-key-0003]\n"
	l, err := loadWith(t, file, env)
	if err != nil {
		t.Fatal(err)
	}
	var all []Explanation
	for _, key := range l.Keys() {
		e, err := l.Explain(key)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	raw, err := json.Marshal(all)
	for _, bad := range []string{sekret, url.QueryEscape(sekret), "pass-word-0002", "openai-key-0003", base64.StdEncoding.EncodeToString([]byte("u:" + sekret))[4:16]} {
		if err != nil || strings.Contains(string(raw), bad) {
			t.Errorf("%q is in %s, %v", bad, raw, err)
		}
	}
	if !strings.Contains(string(raw), "[secret:MY_KEY]") || !strings.Contains(string(raw), "[secret:OPENAI_API_KEY]") {
		t.Errorf("%s", raw)
	}
	_, err = loadWith(t, "models:\n  main: "+sekret+" x\n  providers:\n    x:\n      base_url: http://x\n      api_key_env: MY_KEY\n"+"log:\n  level: "+sekret+"\n", env)
	if err == nil || strings.Contains(err.Error(), sekret) {
		t.Errorf("%v", err)
	}
}

func TestEachSecretOfTheEnvironment(t *testing.T) {
	t.Parallel()
	env := map[string]string{"MY_KEY": sekret, "ANTHROPIC_API_KEY": "a", "OMBUD_PASSPHRASE": "b", "PGPASSWORD": "c", "OTHER": "d"}
	l, err := loadWith(t, "store: postgres://u:e@host/db\nmodels:\n  providers:\n    x:\n      base_url: http://x\n      api_key_env: MY_KEY\n", env)
	if err == nil { // a password in the file is refused; the variable may hold one
		t.Fatalf("%+v", l)
	}
	env["OMBUD_STORE"] = "postgres://u:e@host/db"
	if l, err = loadWith(t, "models:\n  providers:\n    x:\n      base_url: http://x\n      api_key_env: MY_KEY\n", env); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	ReadEnvironment(func(name string) string { return env[name] }).EachSecret(l.Config, func(name, value string) {
		if value != "" {
			got[name] = value
		}
	})
	want := map[string]string{"MY_KEY": sekret, "ANTHROPIC_API_KEY": "a", "OMBUD_PASSPHRASE": "b", "PGPASSWORD": "c", "store": "e"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v", got)
	}
}
