package daemon

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func recipeOf(t *testing.T, c *wire.Client, name string) (x wire.Recipe) {
	t.Helper()
	list, err := c.RecipeList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list.Recipes {
		if r.Name == name {
			return r
		}
	}
	return x
}

func writeRecipe(t *testing.T, o Options, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(o.Instance.RecipeDir(), "greet.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const greeting = "ombud: recipe/v1\nname: greet\non: {manual: true}\ninputs: {who: {required: true}}\nsteps:\n  - notify: {title: Hello, body: \"{{ .inputs.who }}\"}\n"

// A check of a file is told what the daemon holds its own files against.
func TestWhatARecipeCanReferToIsTold(t *testing.T) {
	t.Parallel()
	eachStore(t, "", func(t *testing.T, c *wire.Client, o Options) {
		writeRecipe(t, o, greeting)
		until(t, "the recipe", func() bool { return recipeOf(t, c, "greet").State == "on" })
		if _, err := c.SecretSet(t.Context(), wire.SecretSetRequest{Name: "hook-key", Value: []byte("a long enough value")}); err != nil {
			t.Fatal(err)
		}
		w, err := c.RecipeWorld(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		schemas := map[string]string{}
		for _, x := range w.Tools {
			schemas[x.Name] = string(x.Input)
		}
		if !strings.Contains(schemas["web.fetch"], "max_bytes") || schemas["delegate.ask"] != "" {
			t.Errorf("tools: %v", schemas)
		}
		if !slices.Contains(w.Recipes, "greet") || !slices.Contains(w.Secrets, "hook-key") || !slices.Contains(w.Loops, "memory-upkeep") || len(w.Kinds) == 0 {
			t.Errorf("recipes %q, secrets %q, loops %q, kinds %q", w.Recipes, w.Secrets, w.Loops, w.Kinds)
		}
	})
}

// A recipe is seen when its file comes, runs by hand, is switched off, survives a broken
// edit, and tells when what it is granted changes.
func TestARecipeLives(t *testing.T) {
	t.Parallel()
	eachStore(t, "", func(t *testing.T, c *wire.Client, o Options) {
		writeRecipe(t, o, greeting)
		until(t, "the recipe", func() bool { return recipeOf(t, c, "greet").State == "on" })
		ran, err := c.RecipeRun(t.Context(), wire.RecipeRunRequest{Name: "greet", Payload: json.RawMessage(`{"who":"Priya"}`)})
		if err != nil {
			t.Fatal(err)
		}
		until(t, "its end", func() bool {
			res, err := c.RunsGet(t.Context(), wire.RunsGetRequest{ID: ran.RunID})
			if err != nil || res.Run.State == "failed" {
				t.Fatal(res.Run, err)
			}
			return res.Run.State == "completed"
		})
		if _, err := c.RecipeRun(t.Context(), wire.RecipeRunRequest{Name: "greet"}); !fault.Is(err, fault.Invalid) {
			t.Errorf("without its input: %v", err)
		}
		if _, err := c.RecipeRun(t.Context(), wire.RecipeRunRequest{Name: "gret"}); !fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), "greet") {
			t.Errorf("another name: %v (%s)", err, fault.HintOf(err))
		}
		if err := os.WriteFile(filepath.Join(o.Instance.RecipeDir(), "bad.yaml"), []byte("ombud: recipe/v1\nname: bad\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		until(t, "the file that holds none", func() bool { return recipeOf(t, c, "").State == "broken" })
		if _, err := c.RecipeDisable(t.Context(), wire.RecipeRequest{Name: "bad"}); !fault.Is(err, fault.Config) || !strings.Contains(err.Error(), "nothing starts this recipe") {
			t.Errorf("one that never was good: %v", err)
		}
		if err := os.Remove(filepath.Join(o.Instance.RecipeDir(), "bad.yaml")); err != nil {
			t.Fatal(err)
		}
		off, err := c.RecipeDisable(t.Context(), wire.RecipeRequest{Name: "greet"})
		if err != nil || off.Recipe.State != "off" {
			t.Errorf("off: %+v %v", off, err)
		}
		if _, err := c.RecipeRun(t.Context(), wire.RecipeRunRequest{Name: "greet", Payload: json.RawMessage(`{"who":"x"}`)}); !fault.Is(err, fault.Conflict) {
			t.Errorf("while it is off: %v", err)
		}
		if on, err := c.RecipeEnable(t.Context(), wire.RecipeRequest{Name: "greet"}); err != nil || on.Recipe.State != "on" {
			t.Errorf("on: %+v %v", on, err)
		}
		writeRecipe(t, o, greeting+"stps: []\n")
		until(t, "the broken edit", func() bool { return recipeOf(t, c, "greet").State == "broken" })
		inbox, err := c.ApprovalsList(t.Context(), wire.ApprovalsListRequest{})
		if err != nil || !strings.Contains(strings.Join(inbox.Notices, "\n"), "the last good version of greet stays in use") {
			t.Errorf("inbox: %+v %v", inbox.Notices, err)
		}
		writeRecipe(t, o, greeting+"grants: [\"net.fetch:https://example.com/\"]\n")
		until(t, "the grant", func() bool { return len(recipeOf(t, c, "greet").Grants) == 1 })
		why, err := c.CapsWhy(t.Context(), wire.CapsWhyRequest{Subject: "recipe:greet", Scope: "net.fetch:https://example.com/x"})
		if err != nil || why.Decision != "allow" {
			t.Errorf("caps why: %+v %v", why, err)
		}
		shown, err := c.RecipeShow(t.Context(), wire.RecipeRequest{Name: "greet"})
		if err != nil || !strings.Contains(strings.Join(shown.Says, "\n"), "notify you") || !strings.HasPrefix(shown.Text, "ombud: recipe/v1") {
			t.Errorf("shown: %+v %v", shown, err)
		}
		told := false
		until(t, "the notice", func() bool {
			entries, err := c.AuditTail(t.Context(), wire.AuditTailRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries.Entries {
				told = told || e.Kind == "grant" && e.Subject == "recipe:greet"
			}
			return told
		})
	})
}

// A run goes on when the file of its recipe is gone, and so does what can be seen of it.
func TestTheLogOfARecipeIsThereWhenItsFileIsGone(t *testing.T) {
	t.Parallel()
	eachStore(t, "", func(t *testing.T, c *wire.Client, o Options) {
		writeRecipe(t, o, "ombud: recipe/v1\nname: greet\non: {manual: true}\nsteps:\n  - log: before\n  - wait_signal: go\n  - log: after\n")
		until(t, "the recipe", func() bool { return recipeOf(t, c, "greet").State == "on" })
		ran, err := c.RecipeRun(t.Context(), wire.RecipeRunRequest{Name: "greet"})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(o.Instance.RecipeDir(), "greet.yaml")); err != nil {
			t.Fatal(err)
		}
		until(t, "that it is gone", func() bool { return recipeOf(t, c, "greet").State == "" })
		if _, err := c.RunsSignal(t.Context(), wire.RunsSignalRequest{ID: ran.RunID, Name: "go"}); err != nil {
			t.Fatal(err)
		}
		until(t, "its log", func() bool {
			logs, err := c.LoopLogs(t.Context(), wire.LoopLogsRequest{Name: "recipe:greet"})
			if err != nil && !fault.Is(err, fault.NotFound) { // nothing was written yet
				t.Fatal(err)
			}
			return len(logs.Lines) == 2 && logs.Lines[1].Text == "after"
		})
		for _, name := range []string{"recipe:gret", "loop:gret", "gret"} {
			_, err := c.LoopLogs(t.Context(), wire.LoopLogsRequest{Name: name})
			if !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
				t.Errorf("%s: %v (%s)", name, err, fault.HintOf(err))
			}
		}
	})
}
