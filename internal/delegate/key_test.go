package delegate

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
)

// TestAProgramNeverHoldsItsKey: it has a token in its place, which is good where the key is
// as long as the program works.
func TestAProgramNeverHoldsItsKey(t *testing.T) {
	t.Parallel()
	const key = "sk-of-the-operator-1234567"
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Api-Key") != key || r.URL.Path != "/gate/v1/messages" {
				http.Error(w, r.URL.Path, http.StatusForbidden)
			}
		}))
		defer api.Close()
		h := open(t, d, func(c *Config) {
			c.Harnesses[0].Key, c.Harnesses[0].Variable, c.Harnesses[0].BaseURL = key, "ANTHROPIC_API_KEY", api.URL+"/gate"
		})
		asks := func(task child.Task) int {
			_, token, _ := strings.Cut(task.Env[0], "=")
			q, err := http.NewRequestWithContext(t.Context(), http.MethodPost, task.BaseURL+"/v1/messages", http.NoBody)
			if err != nil {
				t.Error(err)
				return 0
			}
			q.Header.Set("X-Api-Key", token)
			c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			resp, err := c.Do(q)
			if err != nil {
				t.Error(err)
				return 0
			}
			resp.Body.Close()
			return resp.StatusCode
		}
		h.stage.play(func(_ context.Context, task child.Task) (harness.Record, error) {
			if len(task.Env) != 1 || !strings.HasPrefix(task.Env[0], "ANTHROPIC_API_KEY=ombud-") || !task.Held || task.Stands || !strings.HasSuffix(task.BaseURL, "/gate") {
				t.Errorf("it is started with %q at %s", task.Env, task.BaseURL)
			}
			if way, lent := h.keys.Way(task.Owner.Run); !lent || !strings.Contains(task.BaseURL, way.Address) || !strings.Contains(api.URL, way.Host) {
				t.Errorf("%s reaches %+v", task.Owner.Run, way)
			}
			if got := asks(task); got != http.StatusOK {
				t.Errorf("while it works it is answered %d", got)
			}
			return done(task, "42", 1000), nil
		})
		for range 2 {
			if res := h.call(CallTool, callInput{Prompt: "what is it?", Harness: "claude"}); res.Status != act.OK {
				t.Fatalf("%+v", res)
			}
		}
		tasks := h.stage.started()
		if tasks[0].Env[0] == tasks[1].Env[0] {
			t.Error("both starts have one token")
		}
		for _, task := range tasks {
			if got := asks(task); got != http.StatusUnauthorized {
				t.Errorf("once it has ended, its token is answered %d", got)
			}
		}
		for _, target := range h.stage.probed() {
			if strings.Contains(strings.Join(target.Env, " "), key) || len(target.Env) != 1 || !target.Held {
				t.Errorf("it is asked for its login with %q", target.Env)
			}
		}
	})
}

// TestAKeyThatIsGoodNobodyKnowsWhereIsTheProgramsOwn, and that is told.
func TestAKeyThatIsGoodNobodyKnowsWhereIsTheProgramsOwn(t *testing.T) {
	t.Parallel()
	h := open(t, dbtest.SQLite(t), func(c *Config) {
		c.Harnesses = []Harness{
			{Name: "opencode", CLI: harness.OpenCode, Program: "/usr/bin/true", Model: "somebody/x", Key: "sk-1234567", Variable: "SOME_API_KEY"},
			{Name: "claude", CLI: harness.Claude, Program: "/usr/bin/true"},
			{Name: "pi", CLI: harness.Pi, Program: "/usr/bin/true", Model: "openrouter/x/y", Key: "sk-1234567", Variable: "OPENROUTER_API_KEY"},
		}
	})
	h.call(CallTool, callInput{Prompt: "x", Harness: "opencode"})
	h.call(CallTool, callInput{Prompt: "x", Harness: "claude"})
	h.call(CallTool, callInput{Prompt: "x", Harness: "pi"})
	for i, want := range []struct {
		env    string
		held   bool
		stands bool
	}{{"SOME_API_KEY=sk-1234567", false, false}, {"", false, false}, {"OPENROUTER_API_KEY=ombud-", true, true}} {
		task, target := h.stage.started()[i], h.stage.probed()[i]
		if got := strings.Join(task.Env, " "); !strings.HasPrefix(got, want.env) || want.env == "" && got != "" || task.Held != want.held || task.Stands != want.stands || (task.BaseURL != "") != want.held {
			t.Errorf("%s is started with %q at %q", task.CLI, got, task.BaseURL)
		}
		if got := strings.Join(target.Env, " "); strings.Contains(got, "1234567") != (want.env != "" && !want.held) || target.Held != want.held {
			t.Errorf("%s is asked with %q", target.CLI, got)
		}
		if x := h.Harnesses()[i]; x.KeyHeld() != want.held {
			t.Errorf("of %s it is told %v", x.Name, x.KeyHeld())
		}
	}
}
