// Package memory is the tools that keep, find and drop facts: memory.remember,
// memory.recall, memory.list and memory.forget.
//
// What is remembered carries the label of the context it was said in, and what is
// recalled brings the labels of its facts back into the context that asked. So a
// stranger's words stay a stranger's, also by the way of memory.
package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/memory"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

const (
	timeout   = 10 * time.Second
	maxOutput = 256 << 10

	usualRecall = 5
	usualList   = 20
)

// Facts is the memory the tools work on.
type Facts interface {
	RememberTx(ctx context.Context, tx *db.Tx, n memory.New) (memory.Remembering, error)
	ForgetTx(ctx context.Context, tx *db.Tx, agent string, w memory.Which) (memory.Forgetting, error)
	Recall(ctx context.Context, agent, query string, k int) (memory.Recalled, error)
	List(ctx context.Context, agent string, limit int) ([]memory.Fact, error)
}

var _ Facts = (*memory.Memory)(nil)

// Tools is the four tools.
type Tools struct {
	facts     Facts
	namespace func(subject string) string
}

// New returns the tools. namespace says whose memory a subject uses; nil gives an
// agent its own and everybody else the one of their whole name.
func New(f Facts, namespace func(subject string) string) *Tools {
	if namespace == nil {
		namespace = func(subject string) string { return strings.TrimPrefix(subject, "agent:") }
	}
	return &Tools{facts: f, namespace: namespace}
}

// Register makes the tools known to r.
func (t *Tools) Register(r *tool.Registry) error {
	return errors.Join(
		r.Add(t.rememberDefinition(), t.remember),
		r.Add(t.recallDefinition(), t.recall),
		r.Add(t.listDefinition(), t.list),
		r.Add(t.forgetDefinition(), t.forget),
	)
}

func needs(s string) func(json.RawMessage) ([]scope.Scope, error) {
	need := []scope.Scope{scope.Must(s)}
	return func(json.RawMessage) ([]scope.Scope, error) { return need, nil }
}

const rememberSchema = `{"type":"object","additionalProperties":false,"required":["text"],"properties":{
"text":{"type":"string","minLength":1,"maxLength":4096,"description":"one fact as a whole sentence that can be understood by itself"},
"importance":{"type":"integer","minimum":0,"maximum":10,"description":"default 5"},
"pin":{"type":"boolean","description":"prefer it among facts that fit equally"},
"ttl_days":{"type":"integer","minimum":1,"maximum":36500,"description":"forget it after so many days, default never"}}}`

type rememberInput struct {
	Text       string `json:"text"`
	Importance *int   `json:"importance"`
	Pin        *bool  `json:"pin"`
	TTLDays    int64  `json:"ttl_days"`
}

func (t *Tools) rememberDefinition() tool.Definition {
	return tool.Definition{
		Name: "memory.remember",
		Description: "Remember one fact for later conversations. A fact that is known is not kept twice; " +
			"a new value of the same thing (\"the boiler code is …\") takes the place of the old one.",
		Input: json.RawMessage(rememberSchema), Kind: tool.Local, Timeout: timeout, MaxOutput: maxOutput, Source: label.Own,
		Scopes: needs("memory.write"),
		Summary: func(raw json.RawMessage) string {
			in, _ := tool.Decode[rememberInput](raw) // validated
			return "remember " + tool.Show(in.Text)
		},
	}
}

func (t *Tools) remember(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[rememberInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	n := memory.New{
		Agent: t.namespace(inv.Subject), Text: in.Text, Label: inv.Label, Importance: in.Importance, Pin: in.Pin, Origin: origin(inv),
	}
	if in.TTLDays > 0 {
		n.Expires = inv.Tx.Now() + in.TTLDays*24*time.Hour.Microseconds()
	}
	r, err := t.facts.RememberTx(ctx, inv.Tx, n)
	if err != nil {
		return tool.Output{}, err
	}
	told := []memory.Fact{r.Fact}
	text := "Remembered"
	switch r.Action {
	case memory.Refreshed:
		text = "Known already"
	case memory.Replaced:
		text = "Remembered in place of " + quoted(*r.Before)
		told = append(told, *r.Before)
	}
	return tool.Output{Text: fmt.Sprintf("%s (%s).", text, r.Fact.ID), Label: joined(told)}, nil
}

func origin(inv tool.Invocation) memory.Origin {
	return memory.Origin{Actor: inv.Subject, Run: inv.Run, Conversation: inv.Conversation}
}

const recallSchema = `{"type":"object","additionalProperties":false,"required":["query"],"properties":{
"query":{"type":"string","minLength":1,"maxLength":4096,"description":"the words that matter, or a question"},
"limit":{"type":"integer","minimum":1,"maximum":50,"description":"most facts to return, default 5"}}}`

type recallInput struct {
	Query string `json:"query"`
	Limit int    `json:"limit"`
}

func (t *Tools) recallDefinition() tool.Definition {
	return tool.Definition{
		Name:        "memory.recall",
		Description: "Find remembered facts by their words, the best first. It knows words, not meanings: try other words if nothing is found.",
		Input:       json.RawMessage(recallSchema), Kind: tool.Effect, ReadOnly: true, Repeat: tool.Repeatable,
		Timeout: timeout, MaxOutput: maxOutput, Source: label.Memory, Scopes: needs("memory.read"),
		Summary: func(raw json.RawMessage) string {
			in, _ := tool.Decode[recallInput](raw) // validated
			return "recall " + tool.Show(in.Query)
		},
	}
}

// answer is what recall and list return.
type answer struct {
	Facts []shown `json:"facts"`
	Note  string  `json:"note,omitempty"`
}

type shown struct {
	ID     string `json:"id"`
	Text   string `json:"text"`
	Said   string `json:"said"` // the day
	Pinned bool   `json:"pinned,omitempty"`
	From   string `json:"from,omitempty"` // who said it, if not the operator
}

func (t *Tools) recall(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[recallInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	if in.Limit == 0 {
		in.Limit = usualRecall
	}
	found, err := t.facts.Recall(ctx, t.namespace(inv.Subject), in.Query, in.Limit)
	if err != nil {
		return tool.Output{}, err
	}
	facts := make([]memory.Fact, len(found.Hits))
	for i, h := range found.Hits {
		facts[i] = h.Fact
	}
	var note string
	switch {
	case found.Warming:
		note = "the index is still being built: older facts were not looked at; ask again"
	case found.Full:
		note = "there are more facts than can be searched: the oldest were not looked at"
	}
	return output(facts, note)
}

const listSchema = `{"type":"object","additionalProperties":false,"properties":{
"limit":{"type":"integer","minimum":1,"maximum":199,"description":"most facts to return, default 20"}}}`

type listInput struct {
	Limit int `json:"limit"`
}

func (t *Tools) listDefinition() tool.Definition {
	return tool.Definition{
		Name:        "memory.list",
		Description: "List remembered facts, those said last first.",
		Input:       json.RawMessage(listSchema), Kind: tool.Effect, ReadOnly: true, Repeat: tool.Repeatable,
		Timeout: timeout, MaxOutput: 4 * maxOutput, Source: label.Memory, Scopes: needs("memory.read"),
		Summary: func(json.RawMessage) string { return "list what is remembered" },
	}
}

func (t *Tools) list(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[listInput](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	if in.Limit == 0 {
		in.Limit = usualList
	}
	facts, err := t.facts.List(ctx, t.namespace(inv.Subject), in.Limit+1)
	if err != nil {
		return tool.Output{}, err
	}
	var note string
	if len(facts) > in.Limit {
		facts, note = facts[:in.Limit], "there are more"
	}
	return output(facts, note)
}

func output(facts []memory.Fact, note string) (tool.Output, error) {
	a := answer{Facts: make([]shown, len(facts)), Note: note}
	for i, f := range facts {
		a.Facts[i] = shown{ID: f.ID, Text: f.Text, Said: time.UnixMicro(f.Said).UTC().Format(time.DateOnly), Pinned: f.Pinned, From: from(f)}
	}
	raw, err := json.Marshal(a)
	return tool.Output{JSON: raw, Label: joined(facts)}, err
}

// from names the strangers a fact comes from.
func from(f memory.Fact) string {
	var out []string
	for _, s := range f.Label.Sources {
		if !s.Trusted() {
			out = append(out, string(s))
		}
	}
	return strings.Join(out, ", ")
}

// joined is the label of facts shown together, nil for none. A fact that was kept
// without a source or an audience has those of memory.
func joined(facts []memory.Fact) *label.Label {
	if len(facts) == 0 {
		return nil
	}
	var out label.Label
	for _, f := range facts {
		l := f.Label
		if len(l.Sources) == 0 {
			l.Sources = []label.Source{label.Memory}
		}
		if len(l.Audiences) == 0 {
			l.Audiences = []label.Audience{label.OperatorOnly}
		}
		out = label.Join(out, l)
	}
	return &out
}
