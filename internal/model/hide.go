package model

import (
	"context"

	"github.com/ombud-run/ombud/internal/redact"
)

// Hiding asks p without any value that r knows in the request, and takes them out of
// the text of the answer, of its deltas and of its error. It is the one way from an
// agent to a provider.
//
// What is recorded is not changed by it: a history that holds a value is sent without,
// and stays what it was. The inputs of calls in an answer stay as they are, because a
// call with a value in it is to be refused, not changed; so does what the provider
// wants back unchanged, which nobody but the provider reads.
func Hiding(ctx context.Context, r *redact.Redactor, p Provider, req Request, sink Sink) (Response, error) {
	if r == nil {
		return p.Generate(ctx, req, sink)
	}
	deltas := r.NewStream()
	var hidden Sink
	if sink != nil {
		hidden = func(d Delta) {
			if d.Restart {
				deltas.Reset()
				sink.Send(Delta{Restart: true})
			}
			if text := deltas.Push([]byte(d.Text)); len(text) > 0 {
				sink.Send(Delta{Text: string(text)})
			}
		}
	}
	resp, err := p.Generate(ctx, without(r, req), hidden)
	if err != nil {
		return Response{}, r.Error(err)
	}
	if rest := deltas.Flush(); len(rest) > 0 {
		sink.Send(Delta{Text: string(rest)})
	}
	resp.Text = r.String(resp.Text)
	return resp, nil
}

// without is a copy of req without the values.
func without(r *redact.Redactor, req Request) Request {
	req.System = r.String(req.System)
	messages := make([]Message, len(req.Messages))
	for i, m := range req.Messages {
		parts := make([]Part, len(m.Parts))
		for j, part := range m.Parts {
			parts[j] = partWithout(r, part)
		}
		messages[i] = Message{Role: m.Role, Parts: parts}
	}
	req.Messages = messages
	tools := make([]ToolSpec, len(req.Tools))
	for i, t := range req.Tools {
		tools[i] = ToolSpec{Name: t.Name, Description: r.String(t.Description), Schema: r.JSON(t.Schema)}
	}
	req.Tools = tools
	return req
}

func partWithout(r *redact.Redactor, part Part) Part {
	part.Text = r.String(part.Text)
	if c := part.Call; c != nil {
		part.Call = &ToolCall{ID: c.ID, Name: r.String(c.Name), Input: r.JSON(c.Input), BadInput: r.String(c.BadInput)}
	}
	if res := part.Result; res != nil {
		part.Result = &ToolResult{CallID: res.CallID, Text: r.String(res.Text), IsError: res.IsError}
	}
	return part
}
