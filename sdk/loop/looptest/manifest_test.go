package looptest

import (
	"slices"
	"testing"

	"github.com/ombud-run/ombud/wasmloop"
)

// What the plain reader accepts it reads as ombud does.
func agree(t *testing.T, text string) {
	t.Helper()
	m, err := readManifest(text)
	if err != nil {
		return
	}
	want, err := wasmloop.ParseManifest([]byte(text))
	if err != nil {
		return // ombud refuses it, and says why
	}
	var provides []string
	for _, p := range want.Provides {
		provides = append(provides, p.Name)
	}
	if m.name != want.Name || !slices.Equal(m.host, want.Host) || !slices.Equal(m.tools, want.Tools) ||
		!slices.Equal(m.capabilities, want.Capabilities) || !slices.Equal(m.provides, provides) {
		t.Errorf("read as %+v\nand by ombud as %+v\nfrom %q", m, want, text)
	}
}

var manifests = []string{
	"name: a\nversion: 1\n",
	"name: \"a\" # b\nversion: '1'\nhost: [log, \"notify\"] # c\ntools:\n- a.b\n- c.d # e\ncapabilities:\n  - http:*.example.com\n  - 'memory:main:write'\n",
	"name: a\nversion: 1\nprovides:\n  - name: look\n    description: |\n      name: no\n    parameters:\n      type: object\n      properties:\n        name: {type: string}\n  - description: d\n    name: other\n",
	"name: a\nversion: 1\ndescription: >\n  host: [x]\n  tools: y\nhost: []\nschedule: \"@every 1h\"\n",
	"name: a\nversion: 1\nhost:\n  - log\n  -  notify\nevents: [a, b]\nwebhook: /a\nmemory_mb: 32\n",
}

func TestThePlainReaderReadsAsOmbudDoes(t *testing.T) {
	t.Parallel()
	for _, text := range manifests {
		if _, err := readManifest(text); err != nil {
			t.Errorf("%v: %q", err, text)
		}
		agree(t, text)
	}
	for _, text := range []string{
		"", "version: 1", "name: a\nname: b", "name: a\nhost: *x", "name: a\nhost: [a", "name: a\nhost: [a,\n b]", "name: a\nhost: b",
		"name: a\nhost:\n  x", "name: a\nhost:\n- a: b", "name: a\nhost: [yes]", "name: a\nprovides: [{name: b}]", "name: a\n\thost: [b]", "- a", "--- x",
		"name: a\nhost:\n- 1", "name: a\nhost: [\"a\\n\"]", "name: a\nprovides:\n  -  name: b", "name: a\nprovides:\n  name: b",
	} {
		if m, err := readManifest(text); err == nil {
			t.Errorf("%q is read as %+v", text, m)
		}
	}
}

func FuzzReadManifest(f *testing.F) {
	for _, text := range manifests {
		f.Add(text)
	}
	f.Fuzz(agree)
}
