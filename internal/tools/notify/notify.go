// Package notify is the tool notify.send: it tells the operator something, at this
// machine, outside of any conversation's history. Its work is a row of the outbox.
package notify

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// Name is the name of the tool.
const Name = "notify.send"

// Tell tells the operator a text, once for each cause, as part of tx.
type Tell func(ctx context.Context, tx *db.Tx, cause, text string) error

// Notify is the tool.
type Notify struct{ tell Tell }

// New returns the tool.
func New(tell Tell) Notify { return Notify{tell} }

const schema = `{"type":"object","additionalProperties":false,"required":["message"],"properties":{
"message":{"type":"string","minLength":1,"maxLength":4096,"description":"what to tell"},
"subject":{"type":"string","maxLength":200,"description":"what it is about, in a few words"}}}`

// Input is what a call is given.
type Input struct {
	Message string `json:"message"`
	Subject string `json:"subject,omitempty"`
}

// Register makes the tool known to r.
func (n Notify) Register(r *tool.Registry) error {
	need := scope.Must("notify.send:operator")
	return r.Add(tool.Definition{
		Name:        Name,
		Description: "Tell the operator something at this machine, beside the conversation. For what cannot wait for the reply.",
		Input:       json.RawMessage(schema), Kind: tool.Local, Timeout: 10 * time.Second, MaxOutput: 1 << 10, Source: label.Own,
		Scopes: func(json.RawMessage) ([]scope.Scope, error) { return []scope.Scope{need}, nil },
		Destination: func(json.RawMessage) tool.Destination {
			return tool.Destination{Readers: label.OperatorOnly, Name: "the operator"}
		},
		Summary: func(raw json.RawMessage) string {
			in, _ := tool.Decode[Input](raw) // validated
			return "tell the operator: " + tool.Show(in.Subject+" "+in.Message)
		},
	}, n.send)
}

func (n Notify) send(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[Input](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	head := "🔔 " + inv.Subject
	if in.Subject != "" {
		head += ": " + strings.Join(strings.Fields(in.Subject), " ")
	}
	if err := n.tell(ctx, inv.Tx, inv.Key, guard.CleanText(head+"\n"+in.Message)); err != nil {
		return tool.Output{}, err
	}
	return tool.Output{Text: "the operator will see it"}, nil
}
