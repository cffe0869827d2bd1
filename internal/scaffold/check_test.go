package scaffold

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/wasmloop"
)

func TestWhatIsWrongWithAManifestIsSaid(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"name: a\nversion: 1":                                                                       "",
		"name: -a\nversion: 1":                                                                      "name: ",
		"name: A\nversion: 1":                                                                       "lower-case",
		"name: a.b\nversion: 1":                                                                     "name: ",
		"name: a\nversion: 1\nschedule: \"@every 1s\"":                                              "more than once a minute",
		"name: a\nversion: 1\nschedule: \"*/5 * * * * *\"":                                          "more than once a minute",
		"name: a\nversion: 1\nevents: [\"*\"]":                                                      "would start itself",
		"name: a\nversion: 1\nwebhook: \"/a b\"":                                                    "webhook: ",
		"name: a\nversion: 1\nwebhook: /a/b":                                                        "",
		"name: a\nversion: 1\ncapabilities: [\"http:good.example\\n - nothing else\"]":              "capabilities: ",
		"name: a\nversion: 1\ncapabilities: [\"memory:a small scratchpad of its own\"]":             "class memory",
		"name: a\nversion: 1\nmemory_mb: 5000":                                                      "memory_mb: 5000",
		"name: a\nversion: 1\nschedule: at dawn":                                                    "schedule: ",
		"name: a\nversion: 1\nschedule: \"0 7 * * *\"":                                              "",
		"name: a\nversion: 1\nschedule: \"0 0 7 * * *\"":                                            "",
		"name: a\nversion: 1\nevents: [Comms]":                                                      "events: ",
		"name: a\nversion: 1\nevents: [comms.message, tool.*]":                                      "",
		"name: a\nversion: 1\ncapabilities: [http]":                                                 "capabilities: ",
		"name: a\nversion: 1\ncapabilities: [file:x]":                                               "capabilities: ",
		"name: a\nversion: 1\nhost: [shortset]":                                                     `is it "short_set"?`,
		"name: a\nversion: 1\nhost: [recall]\ncapabilities: [\"memory:main:write\"]":                "recall needs memory:main",
		"name: a\nversion: 1\nhost: [recall, remember]\ncapabilities: [\"memory:*\"]":               "",
		"name: a\nversion: 1\nhost: [ask]":                                                          "ask needs tool:agent.ask",
		"name: a\nversion: 1\nhost: [ask]\ncapabilities: [\"tool:*\"]":                              "",
		"name: a\nversion: 1\nhost: [notify]\ncapabilities: [\"tool:app.*\"]":                       "",
		"name: a\nversion: 1\nhost: [notify]\ncapabilities: [\"tool:ap*\", \"memory:app.push\"]":    "class tool",
		"name: a\nversion: 1\nhost: [http]\ncapabilities: [\"http:a.example\"]":                     "",
		"name: a\nversion: 1\nhost: [tool]":                                                         "no tool is named",
		"name: a\nversion: 1\ntools: [time.now]":                                                    `function "tool"`,
		"name: a\nversion: 1\nhost: [step_begin]":                                                   "needed together",
		"name: a\nversion: 1\nprovides:\n- name: a.b\n  description: d":                             "no name of a tool",
		"name: a\nversion: 1\nprovides:\n- name: b\n  description: d\n- name: b\n  description: d":  "twice",
		"name: a\nversion: 1\nprovides:\n- name: b":                                                 "no description",
		"name: a\nversion: 1\nprovides:\n- name: b\n  description: d\n  parameters: {type: array}":  "of type object",
		"name: a\nversion: 1\nprovides:\n- name: b\n  description: d\n  parameters: {type: object}": "",
	} {
		m, err := wasmloop.ParseManifest([]byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := strings.Join(Check(m), "\n"); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// What is let through can be signed, and is read back as it was written.
func FuzzManifest(f *testing.F) {
	for _, from := range Examples() {
		files, err := Project{Name: "mine", From: from}.files()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(files["loop.yaml"])
	}
	f.Add([]byte("name: a\nversion: '1'\nhost: &x [log]\ntools: *x\nprovides:\n  - {name: b, description: \"\\u2028<\", parameters: {type: object, enum: [1.0e3, null, ~]}}\n"))
	priv := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	module := []byte("\x00asm\x01\x00\x00\x00")
	sum := sha256.Sum256(module)
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := wasmloop.ParseManifest(text)
		if err != nil || len(Check(m)) > 0 {
			return
		}
		m.Publisher, m.SHA256 = wasmloop.EncodeKey(priv.Public().(ed25519.PublicKey)), hex.EncodeToString(sum[:])
		data, err := wasmloop.Pack(m, module, []wasmloop.Signature{wasmloop.Sign(&m, wasmloop.RolePublisher, priv)})
		if err != nil {
			t.Fatalf("%q is in order and cannot be packed: %v", text, err)
		}
		a, _, err := wasmloop.VerifyBytes(data, wasmloop.Trust{AllowCommunity: true})
		if err != nil {
			t.Fatalf("%q was signed and does not verify: %v", text, err)
		}
		was, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if is, err := json.Marshal(a.Manifest); err != nil || !bytes.Equal(was, is) {
			t.Fatalf("%s was signed, and %s is read", was, is)
		}
	})
}
