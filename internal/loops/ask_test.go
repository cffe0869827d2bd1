package loops

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/approval"
	"github.com/ombud-run/ombud/internal/budget"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/model"
	"github.com/ombud-run/ombud/internal/run"
)

func TestAskReturnsTheAnswerAndSaysHowATurnFailed(t *testing.T) {
	t.Parallel()
	outcomes := map[string]struct {
		brain brain
		limit budget.Config
		class fault.Class
		says  string
	}{
		"refused": {brain: func(context.Context, model.Request) (model.Response, error) {
			return model.Response{}, fault.New(fault.Denied, "the key is no good")
		}, class: fault.Denied, says: "failed: I could not do this: the key is no good"},
		"looping": {brain: func(context.Context, model.Request) (model.Response, error) { return calls("t.put", "{}") },
			class: fault.Invalid, says: "looping"},
		"over budget": {limit: budget.Config{Run: budget.At(0)}, class: fault.Denied, says: "over_budget"},
	}
	for name, c := range outcomes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fails := loop("fails", func(ctx context.Context, k *Kit) error {
				_, err := k.Ask(ctx, "ask", "do it")
				return err
			})
			each(t, setup{brain: c.brain, budget: c.limit, loops: []Loop{fails}}, func(t *testing.T, h *house) {
				rec := h.fails("fails")
				if rec.ErrorClass != c.class || !strings.Contains(rec.Error, c.says) {
					t.Errorf("%s: %s", rec.ErrorClass, rec.Error)
				}
			})
		})
	}
}

func TestAnObservingAgentCanReadAndRememberAndNothingElse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		call, input string
		may         bool
	}{
		"memory.remember": {"memory.remember", `{"text":"Anna likes tea."}`, true},
		"memory.recall":   {"memory.recall", `{"query":"tea"}`, true},
		"memory.forget":   {"memory.forget", `{"query":"tea"}`, false},
		"t.put":           {"t.put", `{}`, false},
		"notify.send":     {"notify.send", `{"message":"x"}`, false},
		"web.fetch":       {"web.fetch", `{"url":"http://127.0.0.1:9/"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var offered, told string
			sees := loop("sees", func(ctx context.Context, k *Kit) error {
				_, err := k.Observe(ctx, "look", "look")
				return err
			})
			h := open(t, sqlite(t), setup{loops: []Loop{sees}, brain: func(_ context.Context, req model.Request) (model.Response, error) {
				if !answered(req) {
					for _, s := range req.Tools {
						offered += s.Name + " "
					}
					return calls(c.call, c.input)
				}
				told = req.Messages[len(req.Messages)-1].Parts[0].Result.Text
				return says("seen")
			}})
			h.do("sees")
			if got := strings.Contains(offered, c.call+" "); got != c.may && name != "memory.forget" {
				t.Errorf("offered %s", offered)
			}
			if refused := strings.Contains(told, "not allowed") || strings.Contains(told, "only observes"); refused == c.may || h.did("t.put") > 0 {
				t.Errorf("told %q", told)
			}
		})
	}
}

func TestAProposalBecomesAnInstructionWhenItIsAccepted(t *testing.T) {
	t.Parallel()
	proposes := loop("proposes", func(ctx context.Context, k *Kit) error {
		return k.Propose(ctx, "propose", "Tidy up", "the notes are old", "Forget the old notes.")
	})
	each(t, setup{loops: []Loop{proposes}}, func(t *testing.T, h *house) {
		rec := h.do("proposes") // it does not wait
		q := h.asked(rec.ID)
		if !strings.Contains(q.Summary, "Tidy up") || !strings.Contains(q.Summary, "Forget the old notes.") {
			t.Errorf("%q", q.Summary)
		}
		if got := h.heard("loop:proposes"); len(got) != 0 {
			t.Errorf("it was done at once: %q", got)
		}
		if _, err := h.apr.Resolve(t.Context(), q.ID, approval.Reply{Decision: approval.Approve}, "operator"); err != nil {
			t.Fatal(err)
		}
		h.until(func() bool { return len(h.heard("loop:proposes")) == 1 })
		if got := h.heard("loop:proposes")[0]; !strings.Contains(got, "Forget the old notes.") {
			t.Errorf("%q", got)
		}
		if _, err := h.apr.Resolve(t.Context(), q.ID, approval.Reply{Decision: approval.Approve}, "operator"); !fault.Is(err, fault.Conflict) {
			t.Errorf("accepted twice: %v", err)
		}
	})
}

func TestWithoutACodingAgentHarnessSaysSo(t *testing.T) {
	t.Parallel()
	delegates := loop("delegates", func(ctx context.Context, k *Kit) error { _, err := k.Harness(ctx, "task", "build it"); return err })
	h := open(t, sqlite(t), setup{loops: []Loop{delegates}})
	if rec := h.fails("delegates"); rec.ErrorClass != fault.Unavailable || !strings.Contains(rec.Error, "no coding agent is connected") {
		t.Errorf("%s: %s", rec.ErrorClass, rec.Error)
	}
}

// A stand-in for a coding agent gets the task, what its words were made from, and its
// report counts as others' words.
func TestACodingAgentIsARunOfItsOwn(t *testing.T) {
	t.Parallel()
	var task Task
	stand := run.Kind{Name: "delegation", Handle: func(_ context.Context, r *run.Run) ([]byte, error) {
		if err := json.Unmarshal(r.Input(), &task); err != nil {
			return nil, err
		}
		return json.Marshal(Report{Text: "I built what was asked for"})
	}}
	delegates := loop("delegates", func(ctx context.Context, k *Kit) error {
		text, err := k.Harness(ctx, "task", "build it")
		if err == nil && (text != "I built what was asked for" || !k.Label().Tainted()) {
			err = fmt.Errorf("reported %q, %s", text, k.Label())
		}
		return err
	})
	h := open(t, sqlite(t), setup{loops: []Loop{delegates}, kinds: []run.Kind{stand}, delegates: true})
	h.do("delegates")
	if task.Prompt != "build it" || task.Subject != "loop:delegates" {
		t.Errorf("%+v", task)
	}
}

func TestSendNeverMakesAnInboxForAName(t *testing.T) {
	t.Parallel()
	sends := loop("sends", func(ctx context.Context, k *Kit) error { return k.Send(ctx, "s", k.Config("to"), "hi") })
	sends.Settings = map[string][]string{"to": nil}
	for _, to := range []string{"Priya", "local:enginer", "conv_0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"} {
		h := open(t, sqlite(t), setup{loops: []Loop{sends}, set: map[string]Setting{"sends": {Values: map[string]string{"to": to}}}})
		if rec := h.fails("sends"); rec.ErrorClass != fault.NotFound {
			t.Errorf("%s: %s %s", to, rec.ErrorClass, rec.Error)
		}
		if h.heard(strings.TrimPrefix(to, "local:")) != nil {
			t.Errorf("%s has an inbox now", to)
		}
	}
}
