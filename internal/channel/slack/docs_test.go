package slack

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// The manifest that people paste is one, and gives what the adapter uses.
func TestTheManifestOfTheDocs(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../../docs/channels/slack.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(doc), "   ```yaml\n")
	text, _, end := strings.Cut(rest, "   ```\n")
	if !ok || !end {
		t.Fatal("there is no manifest")
	}
	var m struct {
		Features struct {
			Home struct {
				Messages bool `yaml:"messages_tab_enabled"`
				ReadOnly bool `yaml:"messages_tab_read_only_enabled"`
			} `yaml:"app_home"`
		} `yaml:"features"`
		OAuth struct {
			Scopes struct {
				Bot []string `yaml:"bot"`
			} `yaml:"scopes"`
		} `yaml:"oauth_config"`
		Settings struct {
			Events struct {
				Bot []string `yaml:"bot_events"`
			} `yaml:"event_subscriptions"`
			Interactivity struct {
				On bool `yaml:"is_enabled"`
			} `yaml:"interactivity"`
			Socket bool `yaml:"socket_mode_enabled"`
		} `yaml:"settings"`
	}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "\n   ", "\n")[3:]), &m); err != nil {
		t.Fatal(err)
	}
	if !m.Settings.Socket || !m.Settings.Interactivity.On || !m.Features.Home.Messages || m.Features.Home.ReadOnly {
		t.Errorf("got %+v", m)
	}
	for _, kind := range []string{"channels", "groups", "im", "mpim"} {
		if !slices.Contains(m.Settings.Events.Bot, "message."+kind) || !slices.Contains(m.OAuth.Scopes.Bot, kind+":history") || !slices.Contains(m.OAuth.Scopes.Bot, kind+":read") {
			t.Errorf("%s cannot be heard, read or named", kind)
		}
	}
	if !slices.Contains(m.Settings.Events.Bot, "app_mention") {
		t.Error("no mentions")
	}
	for _, scope := range []string{"app_mentions:read", "chat:write", "users:read", "metadata.message:read"} {
		if !slices.Contains(m.OAuth.Scopes.Bot, scope) {
			t.Errorf("without %s", scope)
		}
	}
}
