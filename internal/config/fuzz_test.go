package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

// FuzzLoad holds that no text stops the loader, that every refusal says where,
// and that what is accepted can be explained and holds no secret in the open.
func FuzzLoad(f *testing.F) {
	f.Add("")
	f.Add(Sample())
	for _, s := range []string{
		"store: sqlite\nturn: {steps: 3}\n", "a: [1\n", "? x\n: y\n", "&a a: *a\n", "<<: {a: 1}\n", "- - - a\n", "a: |\n  x\n", "%YAML 1.2\n---\na: 1\n...\n",
		"roles:\n  r: {parent: r, allow: [a, a]}\n", "models: {prices: {a/b: {input_usd: 1}}}", "\ufeffstore: sqlite", "store: 'a\n b'\r\n", "x: \"\\u0000\"", "store: !!binary x", "turn:\n# c\n  # d\n",
		"agents: {main: {instructions: sk-abcdefghijkl}}", "store: postgres://a:b@c/d", "turn: {steps: .inf, calls: .nan, timeout: 0b1}", "\"store\": >-\n  sqlite\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, yaml string) {
		lines := strings.Count(yaml, "\n") + 1
		l, err := load(yaml, Input{})
		if err == nil {
			for _, k := range l.Keys() {
				if _, err := l.Explain(k); err != nil {
					t.Fatal(err)
				}
			}
			if secretText.MatchString(fmt.Sprint(l.Config)) && secretText.MatchString(yaml) {
				t.Fatalf("a secret was taken: %v", l.Config)
			}
			return
		}
		e, ok := errors.AsType[*Error](err)
		if !ok || !fault.Is(err, fault.Config) || len(e.Problems) == 0 {
			t.Fatalf("%T %v", err, err)
		}
		for _, p := range e.Problems {
			if p.At.Kind != FromFile || p.At.Name != "c.yaml" || p.At.Line < 1 || p.At.Line > lines || p.At.Column < 1 || p.Msg == "" {
				t.Fatalf("no place in %+v", p)
			}
			if secretText.MatchString(p.String()) {
				t.Fatalf("a secret is shown: %s", p)
			}
		}
	})
}

// FuzzValues holds the same for the layers that are one line each.
func FuzzValues(f *testing.F) {
	f.Add("1s", "box:1")
	f.Add("postgres://a:b@c/d", "http://[::1]")
	f.Add("a,b,,a", "%%")
	f.Fuzz(func(t *testing.T, text, host string) {
		for _, e := range table() {
			if _, wild := sectionOf(e.path); wild {
				continue
			}
			_, err := Load(Input{
				Getenv: env(variable(e.path), text, "OLLAMA_HOST", host),
				Flags:  []Override{{"--set", "agents.main.tools", text}},
			})
			if err != nil && !fault.Is(err, fault.Config) {
				t.Fatal(err)
			}
		}
	})
}
