package karmax

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/recipe"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/trigger"
)

var testNow = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// public are the five recipes that KARMAX publishes, as they are.
func public(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("testdata/recipes/*.yaml")
	if err != nil || len(paths) != 5 {
		t.Fatalf("recipes: %v %v", paths, err)
	}
	files := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(path)] = string(text)
	}
	return files
}

func TestThePublicRecipesAreInOrder(t *testing.T) {
	t.Parallel()
	for name, text := range public(t) {
		r, problems := recipe.Read(name, []byte(text), testNow, Recipe)
		if err := recipe.Fault(problems); err != nil {
			t.Error(err)
			continue
		}
		if r.Name+".yaml" != name || !r.Foreign || !r.Enabled || len(r.On) != 1 || r.On[0].Schedule == nil || len(r.Warnings) != 0 {
			t.Errorf("%s: %+v", name, r)
		}
		if trial := r.Try(t.Context(), "schedule", nil, nil); trial.Error != "" || len(trial.Steps) == 0 {
			t.Errorf("%s: %+v", name, trial)
		}
		if code, err := r.Eject(); err != nil || len(code) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The five run on both stores, and do what they say.
func TestThePublicRecipesRun(t *testing.T) {
	t.Parallel()
	each(t, public(t), func(t *testing.T, h *house) {
		list, err := h.times.List(t.Context(), "recipe")
		if err != nil || len(list) != 5 {
			t.Fatalf("targets: %d %v", len(list), err)
		}
		h.good(t, "daily-briefing", "{}")
		h.good(t, "hot-sync", "{}")
		h.good(t, "profile-refresh", "{}")
		if asked := h.have(&h.asked); len(asked) != 3 || !strings.HasPrefix(asked[0], "Write the operator's morning briefing.") ||
			!strings.Contains(asked[1], "ACTIVE MEMORY-CAPTURE") || !strings.Contains(asked[2], "ABOUT_ME") {
			t.Errorf("asked: %q", asked)
		}
		if told := h.have(&h.told); len(told) != 1 || !strings.Contains(told[0], "Morning briefing") || !strings.Contains(told[0], "an answer") {
			t.Errorf("told: %q", told)
		}
		h.good(t, "hn-digest", "{}")
		h.good(t, "tech-news", "{}")
		if tasks := h.have(&h.tasks); len(tasks) != 2 || !strings.HasPrefix(tasks[0], "Read the current Hacker News front page") {
			t.Errorf("tasks: %q", tasks)
		}
		if told := h.have(&h.told); len(told) != 2 || !strings.Contains(told[1], "☕ Hacker News") || !strings.Contains(told[1], "a fine digest") {
			t.Errorf("told: %q", told)
		}
		if facts := h.facts(t); len(facts) != 1 || facts[0] != "Tech news digest: a fine digest" {
			t.Errorf("facts: %q", facts)
		}
		h.mu.Lock()
		h.report = "" // a coding agent that refused and ended well
		h.mu.Unlock()
		rec := h.good(t, "hn-digest", "{}")
		if steps := h.steps(t, rec.ID); !slices.Contains(steps, "1-notify-else-0-log") || len(h.have(&h.told)) != 2 {
			t.Errorf("steps: %q", steps)
		}
	})
}

// titles are the last words of what the operator was told, in order.
func (h *house) titles() string {
	var out []string
	for _, text := range h.have(&h.told) {
		words := strings.Fields(text)
		out = append(out, words[len(words)-1])
	}
	return strings.Join(out, " ")
}

func (h *house) facts(t *testing.T) (out []string) {
	t.Helper()
	list, err := h.mem.List(t.Context(), "main", 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		out = append(out, f.Text)
	}
	return out
}

func TestEachLeniencyIsAWarning(t *testing.T) {
	t.Parallel()
	text := `name: lenient
version: 1
naem: x
on: {schedule: "30 8 * * *", evnt: x, webhook: /x}
grants: ["foo:bar", "caps.write", "http:api.example.com"]
steps:
  - notify: {title: "{{ .gone }}", urgency: high}
  - ask: ""
  - ask: a
    as: a
  - ask: b
    as: a
`
	r, problems := recipe.Read("x.yaml", []byte(text), testNow, Recipe)
	if err := recipe.Fault(problems); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, w := range r.Warnings {
		all.WriteString(w.String() + "\n")
	}
	for _, want := range []string{
		`x.yaml:2:1: the key "version" is not known`, `did you mean "name"?`, `the trigger "evnt" is not known and starts nothing`, "is not mounted as it stands",
		`the grant "foo:bar" grants nothing`, `the grant "caps.write" grants nothing: no recipe changes authority`, `notify has no key "urgency"`, "ask has no text",
		`"a" is the result of the step in line 9 too`,
	} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("nothing says %q in\n%s", want, all.String())
		}
	}
	if got := r.Scopes(); !slices.Contains(got, "net.fetch:https://api.example.com") || !slices.Contains(got, "net.post:https://api.example.com") {
		t.Errorf("scopes: %q", got)
	}
	r, problems = recipe.Read("x.yaml", []byte("on: {webhook: /x}\nsteps: [{log: x}]\nname: late\n"), testNow, Recipe)
	if err := recipe.Fault(problems); err != nil || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0].String(), "recipes.webhooks: [late=SECRET], or late=open") {
		t.Errorf("a name that comes after the webhook: %v %v", r, err)
	}
	_, problems = recipe.Read("x.yaml", []byte("name: a\non: {schedule: '@daily'}\nsteps:\n  - log: '{{ .gone }}'\n"), testNow, Recipe)
	if err := recipe.Fault(problems); err != nil {
		t.Fatal(err)
	}
}

func TestWhatKarmaxRefusesIsRefused(t *testing.T) {
	t.Parallel()
	begin := "name: a\non: {manual: true}\nsteps:\n"
	for text, want := range map[string]string{
		"on: {manual: true}\nsteps: [{log: x}]":            "needs a name",
		"name: a b\non: {manual: true}\nsteps: [{log: x}]": "has a space",
		"name: a/b\non: {manual: true}\nsteps: [{log: x}]": "has a space, / or",
		"name: a\nsteps: [{log: x}]":                       "nothing starts this recipe",
		"name: a\non: {manual: false}\nsteps: [{log: x}]":  "nothing starts this recipe",
		"name: a\non: {schedule: x}\nsteps: [{log: x}]":    "schedule",
		"name: a\non: {manual: true}\nsteps: []":           "at least one step",
		begin + "  - notfy: x":                             `did you mean "notify"?`,
		begin + "  - {ask: x, log: y}":                     "has ask and log",
		begin + "  - {notify: x, as: y}":                   "no result",
		begin + "  - {ask: x, else: [{log: y}]}":           "else without a when",
		begin + "  - http: {url: x, headers: {A: b}}":      "write each header flat",
		begin + "  - http: {method: GET}":                  "http needs url",
		begin + "  - send: {to: x}":                        "send needs text",
		begin + "  - sleep: soon":                          "no length of time",
		begin + "  - log: \"{{ .x\"":                       "cannot be read",
		begin + "  - parallel: {}":                         "is a verb of ombud's own format",
	} {
		_, problems := recipe.Read("x.yaml", []byte(text), testNow, Recipe)
		if err := recipe.Fault(problems); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// KARMAX: a sleep of a minute or more did not wait, and when its timer fired the whole
// recipe ran again from step 0, for ever.
func TestDefect1SleepWaitsAndStartsNothingAgain(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a.yaml": "name: a\non: {manual: true}\nsteps:\n  - notify: before\n  - sleep: 90m\n  - notify: after\n",
		"b.yaml": "name: b\non: {manual: true}\nsteps:\n  - notify: one\n  - sleep: 30ms\n  - notify: two\n"}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		dir := shelf(t, files)
		open := func() *house {
			return openHouse(t.Context(), d, dir, func(args ...any) { t.Helper(); t.Fatal(args...) })
		}
		h := open()
		id := h.start(t, "a", "{}")
		waits := func() bool {
			rec, _, err := h.runs.Get(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			left := time.Duration(rec.NextAt-d.Time()) * time.Microsecond
			return rec.State == run.Waiting && rec.Wait == run.ForTimer && left > 89*time.Minute
		}
		h.until(t, waits)
		h.good(t, "b", "{}")
		if told := h.titles(); told != "before one two" {
			t.Errorf("told: %q", told)
		}
		h.stop()
		h = open()
		defer h.stop()
		if !waits() || len(h.have(&h.told)) > 0 {
			t.Errorf("after a restart: %q", h.have(&h.told))
		}
		runs, err := h.runs.List(t.Context(), run.Filter{Kind: recipe.RunKind})
		if err != nil || len(runs) != 2 {
			t.Errorf("%d runs, %v", len(runs), err)
		}
	})
}

// KARMAX: on.webhook was parsed and never mounted.
func TestDefect2AWebhookIsMountedOnceItIsSaidHowItProvesItself(t *testing.T) {
	t.Parallel()
	hook := func(name string) string {
		return "name: " + name + "\non: {webhook: /hooks/" + name + "}\nsteps:\n  - notify: \"{{ .trigger }}\"\n"
	}
	each(t, map[string]string{"a.yaml": hook("opened"), "b.yaml": hook("closed")}, func(t *testing.T, h *house) {
		for name, want := range map[string]int{"opened": 1, "closed": 0} {
			s := h.standing(t, name)
			if len(s.On) != want || want == 1 && (s.On[0].Webhook == nil || s.On[0].Webhook.Scheme != trigger.Open) {
				t.Errorf("%s: %+v", name, s.On)
			}
			x, err := h.lib.Get(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if why := h.lib.Mounted(x.Recipe, *x.Recipe.On[0].Webhook); (why == "") != (want == 1) {
				t.Errorf("%s: %q", name, why)
			}
			answer := httptest.NewRecorder()
			req := httptest.NewRequest(http.MethodPost, "/hooks/"+name, strings.NewReader(`{"a":1}`))
			h.times.ServeHTTP(answer, req)
			if ok := answer.Code/100 == 2; ok != (want == 1) {
				t.Errorf("%s: %d %s", name, answer.Code, answer.Body)
			}
		}
		h.until(t, func() bool { return h.titles() == "webhook" })
	})
}

func (h *house) standing(t *testing.T, name string) (s trigger.Standing) {
	t.Helper()
	err := h.db.Read(t.Context(), func(ctx context.Context, q db.Q) (err error) {
		s, err = h.times.GetIn(ctx, q, recipe.Subject(name))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// KARMAX: grants were shown and never applied, so every http step failed.
func TestDefect3GrantsAreHeld(t *testing.T) {
	t.Parallel()
	s := newSite(t, "the page")
	host := strings.TrimPrefix(s.URL, "http://")
	steps := "steps:\n  - http: {url: \"" + s.URL + "/x\"}\n    as: page\n  - notify: \"{{ .page }}\"\n"
	each(t, map[string]string{
		"a.yaml": "name: granted\non: {manual: true}\ngrants: [\"http:" + host + "\"]\n" + steps,
		"b.yaml": "name: bare\non: {manual: true}\n" + steps,
	}, func(t *testing.T, h *house) {
		h.good(t, "granted", "{}")
		if told := h.have(&h.told); len(told) != 1 || !strings.Contains(told[0], "the page") {
			t.Errorf("told: %q", told)
		}
		rec := h.end(t, h.start(t, "bare", "{}"))
		if rec.State != run.Failed || rec.ErrorClass != fault.Denied || !strings.Contains(rec.Error, "add to its grants: net.fetch:") {
			t.Errorf("%s: %s", rec.State, rec.Error)
		}
	})
}

// KARMAX: a recipe that failed was never tried again; a loop that was lost its trigger.
func TestDefect4ARetryKeepsItsTriggerAndItsSteps(t *testing.T) {
	t.Parallel()
	text := `name: flaky
on: {event: comms.message}
steps:
  - gateway: "first {{ .content }}"
    as: first
  - tool: {name: t.flaky, text: "{{ .content }} {{ .trigger }}"}
    as: last
  - notify: {title: "{{ .first }}", body: "{{ .last }}"}
grants: ["tool:free"]
`
	each(t, map[string]string{"a.yaml": text}, func(t *testing.T, h *house) {
		calls := h.addTool(t, "t.flaky", func(n int, input string) (string, error) {
			if n < 3 {
				return "", fault.New(fault.Unavailable, "not today")
			}
			return input, nil
		})
		_, err := h.log.Append(t.Context(), eventlog.New{
			Stream: "test", Kind: "comms.message", Actor: "test", Data: map[string]string{"content": "hello"}, Expect: eventlog.Any,
		})
		if err != nil {
			t.Fatal(err)
		}
		var runs []run.Record
		h.until(t, func() bool {
			runs, err = h.runs.List(t.Context(), run.Filter{Kind: recipe.RunKind})
			return err == nil && len(runs) == 1 && runs[0].State.Ended()
		})
		if runs[0].State != run.Completed || runs[0].Attempt != 2 || calls() != 3 {
			t.Fatalf("%s after %d attempts and %d calls: %s", runs[0].State, runs[0].Attempt, calls(), runs[0].Error)
		}
		if asked := h.have(&h.asked); len(asked) != 1 || !strings.Contains(asked[0], "hello") {
			t.Errorf("asked: %q", asked)
		}
		if told := h.have(&h.told); len(told) != 1 || !strings.Contains(told[0], `"text":"hello event"`) {
			t.Errorf("told: %q", told)
		}
	})
}

// addTool adds a tool that the scope tool:free allows. It is told how often it was called.
func (h *house) addTool(t *testing.T, name string, do func(n int, input string) (string, error)) (calls func() int) {
	t.Helper()
	n := 0
	err := h.tools.Add(tool.Definition{
		Name: name, Description: "test", Kind: tool.Effect, Timeout: 10 * time.Second, MaxOutput: 1 << 20, Source: label.Own, Repeat: tool.AtMostOnce,
		Input:  json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{"text":{"type":"string"},"n":{"type":"integer"},"loud":{"type":"boolean"}}}`),
		Scopes: func(json.RawMessage) ([]scope.Scope, error) { return []scope.Scope{scope.Must("tool:free")}, nil },
		Destination: func(json.RawMessage) tool.Destination {
			return tool.Destination{Readers: label.OperatorOnly, Name: "test"}
		},
		Summary: func(in json.RawMessage) string { return name + " " + string(in) },
	}, func(_ context.Context, in tool.Invocation) (tool.Output, error) {
		h.mu.Lock()
		n++
		now := n
		h.mu.Unlock()
		text, err := do(now, string(in.Input))
		return tool.Output{Text: text}, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return n
	}
}

// KARMAX: running a recipe by its name found nothing, or said "ok" before anything was done.
func TestDefect5ARunByNameReportsTheRunsOwnError(t *testing.T) {
	t.Parallel()
	each(t, map[string]string{
		"a.yaml": "name: broken\non: {manual: true}\nsteps:\n  - remind: {title: x, due: never}\n",
		"b.yaml": "ombud: recipe/v1\nname: outer\non: {manual: true}\ngrants: [\"loop\"]\nsteps: [{run: \"recipe:inner\"}, {notify: outer}]\n",
		"c.yaml": "name: inner\non: {manual: true}\nsteps: [{notify: inner}]\n",
	}, func(t *testing.T, h *house) {
		rec := h.end(t, h.start(t, "broken", "{}"))
		if rec.State != run.Failed || !strings.Contains(rec.Error, "a.yaml:4: step 0-remind") || !strings.Contains(rec.Error, "never") {
			t.Errorf("%s: %s", rec.State, rec.Error)
		}
		h.good(t, "outer", "{}")
		if told := h.titles(); told != "inner outer" {
			t.Errorf("told: %q", told)
		}
	})
}

// KARMAX: a recipe that only observes was described as doing nothing.
func TestDefect6ObserveIsDescribed(t *testing.T) {
	t.Parallel()
	r, problems := recipe.Read("x.yaml", []byte("name: a\non: {manual: true}\nsteps: [{observe: look around}]"), testNow, Recipe)
	if err := recipe.Fault(problems); err != nil {
		t.Fatal(err)
	}
	if says := strings.Join(r.Describe(), "\n"); !strings.Contains(says, "let the agent look, without anything that sends or changes but its memory") {
		t.Error(says)
	}
	code, err := r.Eject()
	if err != nil || !strings.Contains(string(code), "k.Observe(ctx, step, a0)") {
		t.Errorf("%v\n%s", err, code)
	}
}

// KARMAX: the input of a tool went through a model, and all of it was text.
func TestDefect7InputsOfToolsArePassedAsTheyAre(t *testing.T) {
	t.Parallel()
	each(t, map[string]string{
		"a.yaml": "name: a\non: {manual: true}\ngrants: [\"tool:free\"]\nsteps:\n  - tool: {name: t.put, text: \"12\", n: \"{{ .n }}\", loud: \"true\"}\n    as: out\n",
	}, func(t *testing.T, h *house) {
		rec := h.good(t, "a", `{"n":7}`)
		if puts := h.have(&h.puts); len(puts) != 1 || puts[0] != `{"loud":true,"n":7,"text":"12"}` || string(rec.Result) != `{"out":"done"}` {
			t.Errorf("input %s, result %s", puts, rec.Result)
		}
		if asked := h.have(&h.asked); len(asked) > 0 {
			t.Errorf("a model was asked: %q", asked)
		}
	})
}

// KARMAX: disable was not asked about recipes.
func TestDefect8DisableStopsEverything(t *testing.T) {
	t.Parallel()
	each(t, map[string]string{
		"a.yaml": "name: a\non: {event: user.defined, schedule: \"@daily\", manual: true}\nsteps: [{notify: it ran}]\n",
	}, func(t *testing.T, h *house) {
		if _, err := h.times.Pause(t.Context(), "recipe:a", "operator"); err != nil {
			t.Fatal(err)
		}
		_, err := h.log.Append(t.Context(), eventlog.New{Stream: "test", Kind: "user.defined", Actor: "test", Data: map[string]string{}, Expect: eventlog.Any})
		if err != nil {
			t.Fatal(err)
		}
		h.until(t, func() bool { return h.standing(t, "a").Withheld == 1 })
		if _, err := h.times.Manual(t.Context(), "recipe:a", nil, "operator"); !fault.Is(err, fault.Conflict) {
			t.Errorf("by hand: %v", err)
		}
		if _, err := h.plans.Run(t.Context(), "recipe:a/1", "operator"); !fault.Is(err, fault.Conflict) {
			t.Errorf("its schedule: %v", err)
		}
		if _, err := h.lib.Load(t.Context()); err != nil { // a look at the files does not wake it
			t.Fatal(err)
		}
		if s := h.standing(t, "a"); !s.Stopped() || len(h.have(&h.told)) > 0 {
			t.Errorf("told: %q", h.have(&h.told))
		}
	})
}

// A run goes on by the text it began with: also after a restart, also when its file is gone.
func TestARunKeepsTheDefinitionItBeganWith(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		text := "ombud: recipe/v1\nname: a\non: {manual: true}\nsteps:\n  - wait_signal: go\n  - notify: "
		dir := shelf(t, map[string]string{"a.yaml": text + "one"})
		open := func() *house {
			return openHouse(t.Context(), d, dir, func(args ...any) { t.Helper(); t.Fatal(args...) })
		}
		h := open()
		first := h.start(t, "a", "{}")
		waits := func(id string) func() bool {
			return func() bool {
				rec, _, err := h.runs.Get(t.Context(), id)
				return err == nil && rec.State == run.Waiting && rec.Wait == run.ForSignal
			}
		}
		h.until(t, waits(first))
		if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text+"two"), 0o600); err != nil {
			t.Fatal(err)
		}
		h.stop()
		h = open()
		second := h.start(t, "a", "{}") // waits for the first: they share a key
		if err := os.Remove(filepath.Join(dir, "a.yaml")); err != nil {
			t.Fatal(err)
		}
		if _, err := h.lib.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { h.stop() }()
		for _, id := range []string{first, second} {
			h.until(t, waits(id))
			if err := h.runs.Signal(t.Context(), id, "go", nil, "operator"); err != nil {
				t.Fatal(err)
			}
			if rec := h.end(t, id); rec.State != run.Completed {
				t.Errorf("%s: %s", rec.State, rec.Error)
			}
		}
		if told := h.titles(); told != "one two" {
			t.Errorf("told: %q", told)
		}
	})
}

// A file that is gone grants no more than one that was emptied: its runs have the role alone.
func TestARunWhoseFileIsGoneHasTheRoleAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t, "the page")
	text := "ombud: recipe/v1\nname: a\non: {manual: true}\ngrants: [\"net.fetch:" + s.URL + "/\"]\nsteps:\n" +
		"  - wait_signal: go\n  - notify: role\n  - http: {url: \"" + s.URL + "/x\"}\n    as: page\n  - notify: \"{{ .page }}\"\n"
	each(t, map[string]string{"a.yaml": text}, func(t *testing.T, h *house) {
		id := h.start(t, "a", "{}")
		h.until(t, func() bool {
			rec, _, err := h.runs.Get(t.Context(), id)
			return err == nil && rec.State == run.Waiting && rec.Wait == run.ForSignal
		})
		if err := os.Remove(filepath.Join(h.dir, "a.yaml")); err != nil {
			t.Fatal(err)
		}
		if _, err := h.lib.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := h.runs.Signal(t.Context(), id, "go", nil, "operator"); err != nil {
			t.Fatal(err)
		}
		if rec := h.end(t, id); rec.State != run.Failed || rec.ErrorClass != fault.Denied {
			t.Errorf("%s: %s", rec.State, rec.Error)
		}
		if told := h.titles(); told != "role" {
			t.Errorf("told: %q", told)
		}
	})
}

// What a run can ask for is kept, and what no file has and no run can ask for is not.
func TestOldDefinitionsAreForgottenUnlessARunNeedsThem(t *testing.T) {
	t.Parallel()
	waiting := "ombud: recipe/v1\nname: a\non: {manual: true}\nsteps:\n  - wait_signal: go\n  - notify: "
	failing := "ombud: recipe/v1\nname: b\non: {manual: true}\nsteps:\n  - http: {url: \"https://example.com/\"}\n"
	each(t, map[string]string{"a.yaml": waiting + "one", "b.yaml": failing}, func(t *testing.T, h *house) {
		count := func() (n int) {
			t.Helper()
			if err := h.lib.Forget(t.Context()); err != nil {
				t.Fatal(err)
			}
			err := h.db.Read(t.Context(), func(ctx context.Context, q db.Q) error {
				return q.QueryRow(ctx, "SELECT count(*) FROM recipe_definitions").Scan(&n)
			})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		change := func(q string) {
			t.Helper()
			if err := h.db.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error { _, err := tx.Exec(ctx, q); return err }); err != nil {
				t.Fatal(err)
			}
		}
		id := h.start(t, "a", "{}")
		if rec := h.end(t, h.start(t, "b", "{}")); rec.State != run.Failed {
			t.Fatal(rec)
		}
		for name, text := range map[string]string{"a.yaml": waiting + "two", "b.yaml": failing + "  - log: x\n"} {
			if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := h.lib.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		change("UPDATE recipe_definitions SET at = 1")
		if n := count(); n != 4 {
			t.Errorf("%d are kept while a run waits and one can be replayed", n)
		}
		change("DELETE FROM dead_letters")
		if n := count(); n != 3 {
			t.Errorf("%d are kept while a run waits", n)
		}
		h.until(t, func() bool {
			rec, _, err := h.runs.Get(t.Context(), id)
			return err == nil && rec.State == run.Waiting && rec.Wait == run.ForSignal
		})
		if err := h.runs.Signal(t.Context(), id, "go", nil, "operator"); err != nil {
			t.Fatal(err)
		}
		if rec := h.end(t, id); rec.State != run.Completed {
			t.Errorf("%s: %s", rec.State, rec.Error)
		}
		if n := count(); n != 2 {
			t.Errorf("%d are kept; two are in use", n)
		}
		for _, text := range []string{"three", "four"} {
			if err := os.WriteFile(filepath.Join(h.dir, "a.yaml"), []byte(waiting+text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := h.lib.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := count(); n != 3 {
			t.Errorf("%d are kept; two are in use, and one was taken just now", n)
		}
	})
}
