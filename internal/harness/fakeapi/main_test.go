package fakeapi

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// begin starts a server of its own with one run.
func begin(t *testing.T, sc Scenario) *Run {
	t.Helper()
	run := New(t).Run(sc)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return run
}

// ask is what a CLI sends, in each API, with a tool and without.
var ask = map[string]struct{ path, body, header string }{
	"anthropic": {"/v1/messages?beta=true", `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`, "x-api-key"},
	"responses": {"/v1/responses", `{"model":"m","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}]}`, "authorization"},
	"chat":      {"/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, "authorization"},
	"gemini":    {"/v1beta/models/m:generateContent", `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`, "x-goog-api-key"},
}

// post sends a request as it is written and returns status and body.
func post(t *testing.T, run *Run, path, key, header, body string) (int, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, run.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if header == "authorization" {
		key = "Bearer " + key
	}
	q.Header.Set(header, key)
	q.Header.Set("anthropic-version", "2023-06-01")
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	raw, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(raw)
}

// compact is JSON without its spaces.
func compact(text string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(text)) != nil {
		return text
	}
	return b.String()
}
