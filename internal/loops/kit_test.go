package loops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
)

// TestEveryVerbDoesWhatItSays runs a loop with all of them.
func TestEveryVerbDoesWhatItSays(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, "%s %s %s", r.Method, r.Header.Get("X-Key"), body)
	}))
	t.Cleanup(service.Close)
	all := loop("all", func(ctx context.Context, k *Kit) error {
		var saw []string
		var failed []error
		note := func(what string, err error) { saw, failed = append(saw, what), append(failed, err) }
		note(k.Ask(ctx, "ask", "who are you"))
		note(k.Observe(ctx, "observe", "look around"))
		note(k.Gateway(ctx, "gateway", "be short"))
		note(k.Summarize(ctx, "summary", "a long story"))
		note(k.Tool(ctx, "tool", "t.put", json.RawMessage(`{"n":1}`)))
		resp, err := k.HTTP(ctx, "http", HTTPRequest{URL: service.URL, Headers: map[string]string{"X-Key": "v"}})
		note(fmt.Sprint(resp.Status, " ", resp.Body), err)
		note("", k.Remember(ctx, "remember", "The boiler code is 4711."))
		facts, err := k.Recall(ctx, "recall", "boiler code", 3)
		note(strings.Join(facts, ","), err)
		note("", k.ShortSet(ctx, "set", "", "seen", "1", time.Hour))
		value, found, err := k.ShortGet(ctx, "get", "", "seen")
		note(fmt.Sprint(value, found), err)
		note("", k.Log(ctx, "log", Info, "well\x1b[31m done"))
		note("", k.Remind(ctx, "remind", "Sign the form", time.Now().Add(time.Hour).Format(time.RFC3339), "in blue"))
		note("", k.Notify(ctx, "notify", "Done", "all of it"))
		note("", k.Send(ctx, "send", "operator", "hello there"))
		note("", k.Sleep(ctx, "sleep", time.Millisecond))
		if err := errors.Join(failed...); err != nil {
			return err
		}
		want := []string{"re: who are you", "re: look around", "re: be short", "re: a long story", `did {"n":1}`, "418 GET v ", "",
			"The boiler code is 4711.", "", "1true", "", "", "", "", ""}
		if !slices.Equal(saw, want) {
			return fmt.Errorf("saw %q", saw)
		}
		return nil
	})
	each(t, setup{loops: []Loop{all}}, func(t *testing.T, h *house) {
		rec := h.do("all")
		steps := h.steps(rec.ID)
		for _, s := range []string{
			"tool ask done", "run ask/run done", "tool observe done", "model gateway done", "model summary done", "tool tool done", "tool http done",
			"tool remember done", "tool recall done", "tool set done", "tool get done", "log log done", "tool remind done", "tool notify done", "tool send done",
		} {
			if !slices.Contains(steps, s) {
				t.Errorf("no step %q among %q", s, steps)
			}
		}
		lines, err := h.d.Lines(t.Context(), "loop:all", rec.ID, 0, 10)
		if err != nil || len(lines) != 1 || lines[0].Text != "well␛[31m done" {
			t.Errorf("log %v, %v", lines, err)
		}
		if got := strings.Join(h.heard("main"), "|"); got != "🔔 loop:all: Done\nall of it|hello there" {
			t.Errorf("the operator heard %q", got)
		}
		timers, err := h.runs.Timers(t.Context(), "")
		if err != nil || len(timers) != 1 {
			t.Errorf("timers %v, %v", timers, err)
		}
	})
}

func TestWithoutAGrantACallIsRefusedAndTheGrantNamed(t *testing.T) {
	t.Parallel()
	bare := []policy.RoleSpec{{Name: policy.RoleFirstParty, Allow: []string{"time.read"}}}
	verbs := map[string]func(ctx context.Context, k *Kit) error{
		"tool:free": func(ctx context.Context, k *Kit) error { _, err := k.Tool(ctx, "s", "t.put", nil); return err },
		"tool:agent.ask": func(ctx context.Context, k *Kit) error {
			_, err := k.Ask(ctx, "s", "hi")
			return err
		},
		"llm.call:summary": func(ctx context.Context, k *Kit) error { _, err := k.Gateway(ctx, "s", "hi"); return err },
		"net.fetch:http://127.0.0.1:9": func(ctx context.Context, k *Kit) error {
			_, err := k.HTTP(ctx, "s", HTTPRequest{URL: "http://127.0.0.1:9/"})
			return err
		},
		"net.post:http://127.0.0.1:9": func(ctx context.Context, k *Kit) error {
			_, err := k.HTTP(ctx, "s", HTTPRequest{Method: "POST", URL: "http://127.0.0.1:9/"})
			return err
		},
		"memory.read":           func(ctx context.Context, k *Kit) error { _, err := k.Recall(ctx, "s", "x", 1); return err },
		"memory.write":          func(ctx context.Context, k *Kit) error { return k.Remember(ctx, "s", "a fact") },
		"notify.send:operator":  func(ctx context.Context, k *Kit) error { return k.Notify(ctx, "s", "a", "b") },
		"tool:propose":          func(ctx context.Context, k *Kit) error { return k.Propose(ctx, "s", "a", "", "b") },
		"remind.write":          func(ctx context.Context, k *Kit) error { return k.Remind(ctx, "s", "a", "2999-01-01T00:00:00Z", "") },
		"channel.send:operator": func(ctx context.Context, k *Kit) error { return k.Send(ctx, "s", "operator", "x") },
		"harness:default":       func(ctx context.Context, k *Kit) error { _, err := k.Harness(ctx, "s", "x"); return err },
		"loop:other":            func(ctx context.Context, k *Kit) error { return k.RunLoop(ctx, "s", "other") },
	}
	for grant, verb := range verbs {
		t.Run(grant, func(t *testing.T) {
			t.Parallel()
			h := open(t, sqlite(t), setup{loops: []Loop{loop("bare", verb)}, roles: bare})
			rec := h.fails("bare")
			if rec.ErrorClass != fault.Denied || !strings.Contains(rec.Error, "ombud caps grant loop:bare "+grant) || rec.Attempt != 0 {
				t.Errorf("%s after %d: %s", rec.ErrorClass, rec.Attempt, rec.Error)
			}
		})
	}
}

func TestARunIsBoundedInTimeStepsAndLog(t *testing.T) {
	t.Parallel()
	slow := loop("slow", func(ctx context.Context, k *Kit) error {
		<-ctx.Done()
		return ctx.Err()
	})
	many := loop("many", func(ctx context.Context, k *Kit) error {
		for i := range 2000 {
			if err := k.Log(ctx, fmt.Sprint("l", i), Info, strings.Repeat("x", 4000)); err != nil {
				return err
			}
		}
		return nil
	})
	steps := loop("steps", func(ctx context.Context, k *Kit) error {
		for i := range 2000 {
			if _, _, err := k.ShortGet(ctx, fmt.Sprint("g", i), "", "x"); err != nil {
				return err
			}
		}
		return nil
	})
	h := open(t, sqlite(t), setup{loops: []Loop{slow, many, steps}, set: map[string]Setting{"slow": {Timeout: 50 * time.Millisecond}}})
	if rec := h.fails("slow"); rec.ErrorClass != fault.Timeout || !strings.Contains(rec.Error, "loop:slow worked for 50ms") {
		t.Errorf("%s: %s", rec.ErrorClass, rec.Error)
	}
	rec := h.do("many")
	lines, err := h.d.Lines(t.Context(), "loop:many", rec.ID, 0, 1000)
	if err != nil || len(lines) != 66 || !strings.Contains(lines[65].Text, "full") {
		t.Errorf("%d lines, %v", len(lines), err)
	}
	if rec := h.fails("steps"); rec.ErrorClass != fault.Invalid || !strings.Contains(rec.Error, "1000 steps") {
		t.Errorf("%s: %s", rec.ErrorClass, rec.Error)
	}
}

func TestGrantsOfARecipeAddToItsRole(t *testing.T) {
	t.Parallel()
	roles, err := policy.LoadRoles("/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	role, err := roles.Get(policy.RoleRecipe)
	if err != nil {
		t.Fatal(err)
	}
	decide := func(own []policy.Rule, need string) policy.Effect {
		in, err := Actor{Subject: "recipe:x", Role: role, Own: own}.Permit(policy.Held{}, policy.Assisted)
		if err != nil {
			t.Fatal(err)
		}
		in.Scopes = []scope.Scope{scope.Must(need)}
		return policy.Decide(&in).Effect
	}
	granted := []policy.Rule{{Scope: scope.Must("net.post:https://api.example.com"), Effect: policy.Allow}, {Scope: scope.Must("harness"), Effect: policy.Allow}}
	for need, want := range map[string][2]policy.Effect{
		"memory.write":                     {policy.Allow, policy.Allow},
		"net.post:https://api.example.com": {policy.Deny, policy.Allow}, // what cannot be taken back too: the operator wrote it down
		"net.post:https://b.example.com":   {policy.Deny, policy.Deny},
		"harness:default":                  {policy.Ask, policy.Allow},
		"channel.send:operator":            {policy.Allow, policy.Allow},
		"shell.exec:/bin/ls":               {policy.Deny, policy.Deny},
	} {
		if got := [2]policy.Effect{decide([]policy.Rule{}, need), decide(granted, need)}; got != want {
			t.Errorf("%s: %v, want %v", need, got, want)
		}
	}
}
