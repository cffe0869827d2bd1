package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/memory"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

const forgetSchema = `{"type":"object","additionalProperties":false,"minProperties":1,"maxProperties":1,"properties":{
"id":{"type":"string","minLength":1,"maxLength":64,"description":"a fact's id"},
"query":{"type":"string","minLength":1,"maxLength":4096,"description":"words that only the one fact to forget has all of"},
"last":{"type":"boolean","description":"true: take back what was last remembered in this conversation"}}}`

type forgetInput struct {
	ID    string `json:"id"`
	Query string `json:"query"`
	Last  bool   `json:"last"`
}

func (t *Tools) forgetDefinition() tool.Definition {
	return tool.Definition{
		Name: "memory.forget",
		Description: "Forget a fact: give exactly one of id, query and last. If several facts fit a query none is forgotten " +
			"and they are listed. With last true what had been replaced is in force again.",
		Input: json.RawMessage(forgetSchema), Kind: tool.Local, Timeout: timeout, MaxOutput: maxOutput, Source: label.Own,
		Scopes: func(raw json.RawMessage) ([]scope.Scope, error) {
			in, err := tool.Decode[forgetInput](raw)
			if err == nil && in.ID == "" && in.Query == "" && !in.Last {
				err = fault.New(fault.Invalid, "say what to forget: an id, a query, or last true")
			}
			return []scope.Scope{scope.Must("memory.forget")}, err
		},
		Summary: func(raw json.RawMessage) string {
			in, _ := tool.Decode[forgetInput](raw) // validated
			switch {
			case in.ID != "":
				return "forget the fact " + tool.Show(in.ID)
			case in.Query != "":
				return "forget the fact about " + tool.Show(in.Query)
			}
			return "forget what was last remembered here"
		},
	}
}

func (t *Tools) forget(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[forgetInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	w := memory.Which{ID: in.ID, Query: in.Query, Origin: origin(inv)}
	if in.Last {
		if w.Last = inv.Conversation; w.Last == "" {
			return tool.Output{}, fault.New(fault.Invalid, "this call belongs to no conversation: name the fact by id or query")
		}
	}
	got, err := t.facts.ForgetTx(ctx, inv.Tx, t.namespace(inv.Subject), w)
	if err != nil {
		return tool.Output{}, err
	}
	var lines []string
	say := func(format string, facts []memory.Fact) {
		for _, f := range facts {
			lines = append(lines, fmt.Sprintf(format, f.Text, f.ID))
		}
	}
	say("Forgotten: %s (%s)", got.Facts)
	say("In force again: %s (%s)", got.Restored)
	if len(got.Candidates) > 0 {
		lines = append(lines, "Nothing was forgotten, because more than one fact fits. Say which one, by its id or more of its words:")
		say("%s (%s)", got.Candidates)
	}
	told := append(append(got.Facts, got.Restored...), got.Candidates...)
	return tool.Output{Text: strings.Join(lines, "\n"), Label: joined(told)}, nil
}

func quoted(f memory.Fact) string { return `"` + f.Text + `"` }
