package scaffold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/wasmloop"
)

// compiler finds node and the compiler that scripts/setup-tests.sh has npm fetch.
func compiler(t *testing.T) (node, asc string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err == nil {
		asc, err = filepath.Abs("../../sdk/assemblyscript/node_modules/assemblyscript/bin/asc.js")
	}
	if err == nil {
		_, err = os.Stat(asc)
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the compiler of AssemblyScript is missing: %v", err)
		}
		t.Skipf("the compiler of AssemblyScript is missing (sh scripts/setup-tests.sh): %v", err)
	}
	return node, asc
}

// asHost is a kit that writes down what it is asked to do.
type asHost struct {
	wasmloop.DurableKit // what the guest does not call
	did                 []string
	notes               map[string]string
}

func (h *asHost) note(format string, args ...any) error {
	h.did = append(h.did, fmt.Sprintf(format, args...))
	return nil
}

func (h *asHost) Config(key string) string { return map[string]string{"who": "Ada"}[key] }
func (h *asHost) Notify(t, b string) error { return h.note("notify %s: %s", t, b) }
func (h *asHost) Fence(text, from string) string {
	return "[" + from + ": " + text + "]"
}

func (h *asHost) Ask(_ context.Context, prompt string) (string, error) {
	return strings.Repeat("a\t", 50_000), h.note("ask %s", prompt)
}

func (h *asHost) HTTP(_ context.Context, method, url string, headers map[string]string, _ string) (string, int, error) {
	return "line\n\"quoted\" \\ \u00e9\u0001", 203, h.note("%s %s %v", method, url, headers)
}

func (h *asHost) ShortSet(g, k, v string, ttl int) error {
	h.notes[g+"/"+k] = v
	return h.note("keep %s %s %q %d", g, k, v, ttl)
}

func (h *asHost) ShortGet(g, k string) (string, bool, error) {
	v, there := h.notes[g+"/"+k]
	return v, there, nil
}

func (h *asHost) After(_ context.Context, id string, d time.Duration, payload json.RawMessage) error {
	return h.note("after %s %s %s", id, d, payload)
}

func (h *asHost) Log(_ context.Context, level, text string, _ map[string]string) {
	_ = h.note("%s %s", level, text)
}

type granted struct{}

func (granted) Allow(context.Context, string, string) error { return nil }

// guestIn compiles a project and makes a runner of it.
func guestIn(t *testing.T, dir string, m wasmloop.Manifest, h *asHost) *wasmloop.Runner {
	t.Helper()
	node, asc := compiler(t)
	cmd := exec.Command(node, asc, "--config", "asconfig.json", "--outFile", "guest.wasm", "--optimizeLevel", "0", "--shrinkLevel", "0")
	cmd.Dir = dir
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	module, err := os.ReadFile(filepath.Join(dir, "guest.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := wasmloop.NewRunner(t.Context(), &wasmloop.Artifact{Manifest: m, Module: module}, wasmloop.Options{Namespace: "main", Kit: h, Grants: granted{}})
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

func TestAProjectInAssemblyScriptIsBuiltAndRun(t *testing.T) {
	t.Parallel()
	compiler(t)
	dir := filepath.Join(t.TempDir(), "mine")
	if err := Make(dir, Project{Name: "mine", Lang: AssemblyScript}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "loop.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := wasmloop.ParseManifest(text)
	if err != nil || len(Check(m)) > 0 {
		t.Fatal(err, Check(m))
	}
	h := &asHost{}
	if err := guestIn(t, dir, m, h).Run(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	if want := []string{"info hello to Ada, by manual", "notify hello: hello Ada"}; !slices.Equal(h.did, want) {
		t.Errorf("it did %q", h.did)
	}
}

func TestAGuestInAssemblyScriptDoesWhatTheKitSays(t *testing.T) {
	t.Parallel()
	compiler(t)
	dir := filepath.Join(t.TempDir(), "guest")
	if err := Make(dir, Project{Name: "guest", Lang: AssemblyScript}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/guest/index.ts")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "assembly", "index.ts"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	h := &asHost{notes: map[string]string{}}
	r := guestIn(t, dir, wasmloop.Manifest{
		Name: "guest", Version: "1", Host: []string{"trigger", "write_log", "http", "ask", "fence", "short_set", "short_get", "notify", "tool", "after"},
		Tools: []string{"time.now"}, Capabilities: []string{"http:a.example"}, Provides: []wasmloop.ToolSpec{{Name: "double"}}, MemoryMB: 16,
	}, h)
	if err := r.RunTriggered(t.Context(), time.Minute, "event", map[string]any{"n": 7, "deep": []any{-1.5, "\u2028", nil, true}}); err != nil {
		t.Fatal(err, h.did)
	}
	want := []string{
		"info guest by event with {\"deep\":[-1.5,\"\u2028\",null,true],\"n\":7}",
		"GET https://a.example/x map[Accept:text/plain]",
		"ask [a \"page\": line\n\"quoted\" \\ \u00e9\u0001]",
		`keep g k "v\n203" 60`,
		"notify ü€😀: 100000 v\n203",
		"warn the manifest does not name the tool shell.exec",
		"after again 1h0m0s {\"list\":[1.5,true,null]}",
	}
	if !slices.Equal(h.did, want) {
		t.Errorf("it did %q\nwant   %q", h.did, want)
	}
	for input, want := range map[int]string{21: `{"twice":42}`, -1: `{"error":"too small"}`} {
		if got, err := r.InvokeTool(t.Context(), "double", map[string]any{"n": input}, time.Minute); err != nil || got != want {
			t.Errorf("%q %v", got, err)
		}
	}
	h.did = nil
	err = r.RunTriggered(t.Context(), time.Minute, "manual", map[string]any{"fail": true})
	if !errors.Is(err, wasmloop.ErrTrapped) || !slices.Equal(h.did, []string{"error as it was told"}) {
		t.Errorf("%v %q", err, h.did)
	}
}
