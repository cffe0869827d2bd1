// Package send is the tool channel.send: it sends a message that is no answer. Its work is a
// row of the outbox; the guard against saying a thing twice and the notice to the operator
// are those of every message ombud sends by itself.
package send

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/outbox"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// Name is the name of the tool.
const Name = "channel.send"

// Send puts a message into the outbox as part of tx.
type Send func(ctx context.Context, tx *db.Tx, s agent.Sending) (outbox.Item, error)

// Tool is the tool.
type Tool struct{ send Send }

// New returns the tool.
func New(send Send) Tool { return Tool{send} }

const schema = `{"type":"object","additionalProperties":false,"required":["to","text"],"properties":{
"to":{"type":"string","minLength":1,"maxLength":1100,"description":"operator, CHANNEL:CHAT or CHANNEL:CHAT/THREAD by the ids of the network (such as telegram:10072 or adapter:mail:ann), or the id of a conversation"},
"text":{"type":"string","minLength":1,"maxLength":65536,"description":"the message, in Markdown"}}}`

// Input is what a call is given.
type Input struct {
	To   string `json:"to"`
	Text string `json:"text"`
}

// Register makes the tool known to r.
func (t Tool) Register(r *tool.Registry) error {
	return r.Add(tool.Definition{
		Name:        Name,
		Description: "Send a message to a chat, beside the answer to this conversation. It goes out in order, once; what was just said there is refused.",
		Input:       json.RawMessage(schema), Kind: tool.Local, Timeout: 10 * time.Second, MaxOutput: 1 << 10, Source: label.Own,
		Scopes: func(raw json.RawMessage) ([]scope.Scope, error) {
			in, err := tool.Decode[Input](raw)
			if err != nil {
				return nil, err
			}
			s, err := scope.Of("channel.send", in.To)
			return []scope.Scope{s}, err
		},
		Destination: func(raw json.RawMessage) tool.Destination {
			in, _ := tool.Decode[Input](raw) // validated
			return tool.Destination{Readers: agent.ReadersOf(in.To), Name: in.To}
		},
		Summary: func(raw json.RawMessage) string {
			in, _ := tool.Decode[Input](raw) // validated
			return "send to " + tool.Show(in.To) + ": " + tool.Show(in.Text)
		},
	}, t.call)
}

func (t Tool) call(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[Input](inv.Input)
	if err != nil {
		return tool.Output{}, err
	}
	it, err := t.send(ctx, inv.Tx, agent.Sending{
		To: in.To, Text: in.Text, Cause: inv.Key, Run: inv.Run, By: inv.Subject, Label: label.Join(inv.Label, label.Of(label.Own, label.OperatorOnly)),
	})
	if err != nil {
		return tool.Output{}, err
	}
	return tool.Output{Text: "it is in the outbox as " + it.ID + "; should it not arrive, you will be told"}, nil
}
