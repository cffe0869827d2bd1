package daemon

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/wire"
)

func TestTheWayOfALabelIsShown(t *testing.T) {
	t.Parallel()
	raw := func(v any) json.RawMessage {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	asked := label.Of(label.Operator, label.OperatorOnly)
	page := label.Of(label.Untrusted("news.example"), label.Anyone)
	snap := agent.Snapshot{Label: asked, Parts: []agent.Part{{What: "the message", Label: asked}}, Held: 2, Warnings: []string{"you are now"}}
	fetched := act.Result{Tool: "web.fetch", From: asked, Label: page, To: "news.example", Warnings: []string{"new system prompt"}}
	refused := act.Result{
		Tool: "mail.send", From: label.Join(asked, page), Label: label.Of(label.Own, label.OperatorOnly), To: "x@evil.example",
		Reasons: []policy.Reason{{Code: policy.CodeRule, Text: "a rule"}, {Code: policy.CodeUntrusted, Text: "others wrote it"}},
	}
	same := act.Result{Tool: "time.now", From: asked, Label: asked}
	for name, c := range map[string]struct {
		step run.Step
		want *wire.LabelStep
	}{
		"a context": {run.Step{Name: "context", Kind: "context", Result: raw(snap)}, &wire.LabelStep{
			Out: asked.String(), From: []string{"the message: " + asked.String()}, Warnings: snap.Warnings,
			Rule: "2 remembered facts fit and are not for who reads this conversation",
		}},
		"a result that brings something": {run.Step{Name: "tool/0.0", Kind: "tool", Result: raw(fetched)}, &wire.LabelStep{
			In: asked.String(), Out: label.Join(asked, page).String(), From: []string{"its result: " + page.String()}, Told: "news.example",
			Warnings: fetched.Warnings,
		}},
		"a call that was held back": {run.Step{Name: "tool/1.0", Kind: "tool", Result: raw(refused)}, &wire.LabelStep{
			In: refused.From.String(), Out: label.Join(refused.From, refused.Label).String(), From: []string{"its result: " + refused.Label.String()},
			Told: "x@evil.example", Rule: "others wrote it",
		}},
		"a result that brings nothing": {run.Step{Name: "tool/2.0", Kind: "tool", Result: raw(same)}, &wire.LabelStep{In: asked.String(), Out: asked.String()}},
		"a summary that was kept":      {run.Step{Name: "summary/keep", Kind: "context"}, nil},
		"a model":                      {run.Step{Name: "model/0", Kind: "model", Result: raw(same)}, nil},
		"a step without a result":      {run.Step{Name: "tool/3.0", Kind: "tool"}, nil},
	} {
		var w wire.RunStep
		addLabel(&c.step, &w)
		if !reflect.DeepEqual(w.Label, c.want) {
			t.Errorf("%s: %+v, want %+v", name, w.Label, c.want)
		}
	}
}

func TestAnAnswerThatWasKeptBackIsLeftToTheOperator(t *testing.T) {
	t.Parallel()
	out := wire.Explanation{Steps: []wire.RunStep{{Name: "context"}, {Name: "reply"}}}
	addAnswer(agent.Answer{
		Outcome: agent.Escalated, Reply: "no", Withheld: "the dentist", Why: "ask: wider than allowed", Label: label.Of(label.Untrusted("eve"), "conversation:x"),
	}, "run_1", &out)
	if out.Withheld != "the dentist" || out.Reply != "no" || out.Outcome != "escalated" || len(out.Left) != 1 || !strings.Contains(out.Left[0], "run_1") {
		t.Errorf("%+v", out)
	}
	if l := out.Steps[1].Label; l == nil || l.Rule != "ask: wider than allowed" || out.Steps[0].Label != nil {
		t.Errorf("the step of the reply: %+v", l)
	}
	plain := wire.Explanation{}
	addAnswer(agent.Answer{Outcome: agent.Completed, Reply: "yes"}, "run_2", &plain)
	if plain.Withheld != "" || len(plain.Left) != 0 {
		t.Errorf("%+v", plain)
	}
}
