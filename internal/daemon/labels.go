package daemon

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/wire"
)

// addLabel shows what a step did with the label of its run.
func addLabel(s *run.Step, w *wire.RunStep) {
	switch {
	case s.Kind == "context" && s.Name == "context":
		var snap agent.Snapshot
		if json.Unmarshal(s.Result, &snap) == nil {
			w.Label = contextLabel(snap)
		}
	case s.Kind == "tool":
		var res act.Result
		if json.Unmarshal(s.Result, &res) == nil {
			w.Label = callLabel(res)
		}
	}
}

func contextLabel(snap agent.Snapshot) *wire.LabelStep {
	out := &wire.LabelStep{Out: snap.Label.String(), Warnings: snap.Warnings}
	for _, p := range snap.Parts {
		out.From = append(out.From, p.What+": "+p.Label.String())
	}
	if snap.Held > 0 {
		out.Rule = fmt.Sprintf("%d remembered facts fit and are not for who reads this conversation", snap.Held)
	}
	return out
}

func callLabel(res act.Result) *wire.LabelStep {
	after := label.Join(res.From, res.Label)
	out := &wire.LabelStep{In: res.From.String(), Out: after.String(), Told: res.To, Warnings: res.Warnings}
	if before := label.Join(res.From); !slices.Equal(after.Sources, before.Sources) || !slices.Equal(after.Audiences, before.Audiences) {
		out.From = []string{"its result: " + res.Label.String()}
	}
	for _, r := range res.Reasons {
		if r.Code == policy.CodeLeak || r.Code == policy.CodeUntrusted {
			out.Rule = r.Text
		}
	}
	return out
}

// addAnswer shows what became of the answer of a turn.
func addAnswer(answer agent.Answer, id string, out *wire.Explanation) {
	out.Reply, out.Outcome, out.Withheld = answer.Reply, string(answer.Outcome), answer.Withheld
	for i := range out.Steps {
		if out.Steps[i].Name == "reply" && len(answer.Label.Sources) > 0 {
			out.Steps[i].Label = &wire.LabelStep{In: answer.Label.String(), Out: answer.Label.String(), Told: "the conversation", Rule: answer.Why}
		}
	}
	if answer.Withheld != "" {
		out.Left = append(out.Left, "the answer was kept from the conversation; tell it yourself if it is for them ("+id+")")
	}
}
