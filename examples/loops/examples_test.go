// Package loops_test builds the example loops and runs them in the sandbox.
package loops_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/wasmloop"
)

// host is a kit with answers of a kind that each example understands, which writes down
// what it is asked to do.
type host struct {
	wasmloop.DurableKit // what no example calls
	mu                  sync.Mutex
	did                 []string
	notes               map[string]string
	set                 map[string]string
	onAsk               func() string
}

func (h *host) note(format string, args ...any) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.did = append(h.did, fmt.Sprintf(format, args...))
	return nil
}

func (h *host) Config(key string) string       { return h.set[key] }
func (h *host) Notify(t, b string) error       { return h.note("notify %s: %s", t, b) }
func (h *host) Remind(t, due, n string) error  { return h.note("remind %s %s", t, due) }
func (h *host) Propose(t, s, a string) error   { return h.note("propose %s: %s", t, a) }
func (h *host) Fence(text, from string) string { return "[" + text + "]" }
func (h *host) ShortGet(g, k string) (string, bool, error) {
	v, there := h.notes[g+"/"+k]
	return v, there, nil
}

func (h *host) ShortSet(g, k, v string, _ int) error {
	h.notes[g+"/"+k] = v
	return nil
}

func (h *host) Summarize(_ context.Context, prompt string) (string, error) {
	return "summary of " + prompt[strings.Index(prompt, "["):], nil
}
func (h *host) Ask(context.Context, string) (string, error)            { return h.onAsk(), nil }
func (h *host) Progress(context.Context, string, int, int)             {}
func (h *host) Log(context.Context, string, string, map[string]string) {}
func (h *host) HTTP(_ context.Context, _, url string, _ map[string]string, _ string) (string, int, error) {
	if strings.HasPrefix(url, "https://api.open-meteo.com/") {
		return `{"daily":{"time":["a","2026-08-11"],"temperature_2m_min":[1,-1],"wind_gusts_10m_max":[1,1],"precipitation_sum":[0,0]}}`, 200, nil
	}
	return `{"tag_name":"v2","html_url":"https://a/v2","body":"notes"}`, 200, nil
}

type all struct{}

func (all) Allow(context.Context, string, string) error { return nil }

func runner(t *testing.T, name string, h *host) *wasmloop.Runner {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(name, "loop.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := wasmloop.ParseManifest(text)
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != name {
		t.Errorf("%s is called %s", name, m.Name)
	}
	out := filepath.Join(t.TempDir(), "loop.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", out, ".")
	cmd.Dir = name
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	module, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	r, err := wasmloop.NewRunner(t.Context(), &wasmloop.Artifact{Manifest: m, Module: module}, wasmloop.Options{Namespace: "main", Kit: h, Grants: all{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func TestTheExamplesRunInTheSandbox(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set   map[string]string
		notes map[string]string
		ask   func(*wasmloop.Runner) string
		want  []string
	}{
		"hello":         {set: map[string]string{"who": "Ada"}, want: []string{"notify hello: hello Ada"}},
		"release-watch": {set: map[string]string{"repos": "golang/go"}, notes: map[string]string{"seen/golang/go": "v1"}, want: []string{"notify golang/go v2: summary of [notes]\nhttps://a/v2"}},
		"weather-watch": {
			set:  map[string]string{"latitude": "1", "longitude": "2"},
			want: []string{"notify weather of 2026-08-11: down to -1 °C: bring in what must not freeze"},
		},
		"evening-review": {
			ask: func(r *wasmloop.Runner) string {
				said, err := r.InvokeTool(t.Context(), "open", map[string]any{"title": "seeds", "action": "order"}, time.Minute)
				return fmt.Sprint(said, err)
			},
			want: []string{"propose seeds: order", "notify the day: it is proposed; do not do it before it is accepted<nil>"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := &host{set: c.set, notes: c.notes}
			if h.notes == nil {
				h.notes = map[string]string{}
			}
			r := runner(t, name, h)
			h.onAsk = func() string { return c.ask(r) }
			if err := r.Run(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(h.did, c.want) {
				t.Errorf("it did %q, want %q", h.did, c.want)
			}
			for _, p := range r.ProvidedTools() {
				if !json.Valid(p.Parameters) {
					t.Errorf("the parameters of %s are no JSON", p.Name)
				}
			}
		})
	}
}
