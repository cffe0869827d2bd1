//go:build unix

package laws

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/wire"
)

// hear starts a daemon with a listener and these recipes, and waits until they are on.
func (h *house) hear(recipes map[string]string) *process {
	h.t.Helper()
	for name, text := range recipes {
		h.write(filepath.Join(h.in.RecipeDir(), name+".yaml"), "ombud: recipe/v1\nname: "+name+"\n"+text)
	}
	p := h.spawn()
	h.until("the recipes", func() bool {
		list, err := h.client.RecipeList(h.t.Context())
		if err != nil {
			h.t.Fatal(err)
		}
		on := 0
		for _, r := range list.Recipes {
			if r.State == "on" {
				on++
			}
		}
		return on == len(recipes)
	})
	return p
}

// post calls a path of the listener and returns the status and what it says.
func (h *house) post(path, host, body string) (int, string) {
	h.t.Helper()
	list, err := h.client.TriggersList(h.t.Context(), wire.TriggersListRequest{})
	if err != nil || list.Listener == "" {
		h.t.Fatalf("no listener: %+v, %v", list.Problem, err)
	}
	r, err := http.NewRequestWithContext(h.t.Context(), http.MethodPost, "http://"+list.Listener+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	if host != "" {
		r.Host = host
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }() // it was read
	text, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// runsOf are the runs of a recipe.
func (h *house) runsOf(recipe string) (out []wire.Run) {
	h.t.Helper()
	list, err := h.client.RunsList(h.t.Context(), wire.RunsListRequest{Kind: "recipe"})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, r := range list.Runs {
		if r.Name == "recipe:"+recipe {
			out = append(out, r)
		}
	}
	return out
}

func (h *house) isDone(recipe string) bool {
	runs := h.runsOf(recipe)
	return len(runs) == 1 && runs[0].State == "completed"
}

func (h *house) begin(recipe string) {
	h.t.Helper()
	if _, err := h.client.RecipeRun(h.t.Context(), wire.RecipeRunRequest{Name: recipe}); err != nil {
		h.t.Fatal(err)
	}
}

const listening = "listen: {address: '127.0.0.1:0'}\n"

// TestLaw02WhatStartedWorkAndWhatSleepsOutlivesAKill kills a daemon right after it took a
// webhook (law 1) and while a recipe sleeps: the call is there once, and both go on.
func TestLaw02WhatStartedWorkAndWhatSleepsOutlivesAKill(t *testing.T) {
	t.Parallel()
	h := build(t, echoes, listening)
	p := h.hear(map[string]string{
		"hooked": "on: [{webhook: /hooks/in, verify: open}]\nsteps:\n  - log: called\n",
		"nap":    "on: {manual: true}\nsteps:\n  - sleep: 2s\n  - log: awake\n",
	})
	h.begin("nap")
	h.until("it to sleep", func() bool {
		runs := h.runsOf("nap")
		return len(runs) == 1 && runs[0].State != "queued" && runs[0].State != "running"
	})
	if code, text := h.post("/hooks/in", "", "a call"); code != http.StatusOK {
		t.Fatalf("answered %d: %s", code, text)
	}
	p.kill()

	h.spawn()
	h.until("the run of the call", func() bool { return h.isDone("hooked") })
	h.until("the one that slept", func() bool { return h.isDone("nap") })
	if calls := h.events("webhook.fired"); len(calls) != 1 || !strings.Contains(string(calls[0].Data), "a call") {
		t.Errorf("calls: %+v", calls)
	}
	h.proved()
}

// TestLaw07ARecipeThatIsStuckDelaysNoOther has one whose model never answers.
func TestLaw07ARecipeThatIsStuckDelaysNoOther(t *testing.T) {
	t.Parallel()
	h := build(t, "turns:\n  - match: stuck\n    steps: [{hang: true}]\n  - steps: [{text: noted}]", listening)
	h.hear(map[string]string{
		"stuck":  "on: {manual: true}\nsteps:\n  - gateway: stuck\n",
		"behind": "on: {manual: true}\nsteps:\n  - gateway: hello\n",
	})
	h.begin("stuck")
	h.until("it to be stuck", func() bool { return strings.Contains(h.read(filepath.Join(h.dir, "asked.log")), "stuck") })
	h.begin("behind")
	h.until("the other", func() bool { return h.isDone("behind") })
	if runs := h.runsOf("stuck"); len(runs) != 1 || runs[0].State != "running" {
		t.Errorf("the stuck one: %+v", runs)
	}
}

// TestLaw05TheListenerStartsNothingForWhoProvesNothing calls without a signature, under
// the name of another site, and what is no webhook.
func TestLaw05TheListenerStartsNothingForWhoProvesNothing(t *testing.T) {
	t.Parallel()
	h := build(t, echoes, listening)
	h.hear(map[string]string{
		"signed": "on: [{webhook: /hooks/signed, verify: github, secrets: [hook-key]}]\nsteps:\n  - log: started\n",
		"open":   "on: [{webhook: /hooks/open, verify: open}]\nsteps:\n  - log: started\n",
	})
	if _, err := h.client.SecretSet(t.Context(), wire.SecretSetRequest{Name: "hook-key", Value: []byte("a key that nobody who calls here has")}); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ path, host string }{
		{"/hooks/signed", ""}, {"/hooks/open", "site.example"}, {"/hooks/none", ""}, {"/", ""}, {"/rpc", ""},
	} {
		if code, text := h.post(x.path, x.host, "{}"); code < 400 {
			t.Errorf("%s as %q was answered %d: %s", x.path, x.host, code, text)
		}
	}
	if runs := append(h.runsOf("signed"), h.runsOf("open")...); len(runs) != 0 || len(h.events("webhook.fired")) != 0 {
		t.Errorf("started: %+v", runs)
	}
	if code, text := h.post("/hooks/open", "", "{}"); code != http.StatusOK { // the same, as it may be
		t.Errorf("answered %d: %s", code, text)
	}
	h.until("its run", func() bool { return h.isDone("open") })
}
