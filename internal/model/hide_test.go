package model

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/redact"
)

const sekret = `s3kr3t "value"/0001`

// parrot repeats what it is asked, in pieces of one letter, and fails if told to.
type parrot struct {
	asked Request
	fails bool
}

func (p *parrot) Name() string { return "parrot" }

func (p *parrot) Generate(_ context.Context, req Request, sink Sink) (Response, error) {
	p.asked = req
	sink.Send(Delta{Text: "half of " + sekret[:12]})
	sink.Send(Delta{Restart: true})
	for _, c := range "it is " + sekret + " ü" {
		sink.Send(Delta{Text: string(c)})
	}
	sink.Send(Delta{Text: " and s3kr3"})
	if p.fails {
		return Response{}, fault.New(fault.Denied, "the key %s is refused", sekret).WithHint("not %s", sekret)
	}
	return Response{Text: "it is " + sekret + " and s3kr3", Calls: []ToolCall{{ID: "1", Name: "t", Input: json.RawMessage(`{"a":"s3kr3t \"value\"/0001"}`)}}}, nil
}

func TestNoProviderIsToldASecret(t *testing.T) {
	t.Parallel()
	r := redact.New()
	r.Register("known", []byte(sekret))
	quoted, err := json.Marshal(map[string]string{"a": sekret})
	if err != nil {
		t.Fatal(err)
	}
	wrapped := base64.StdEncoding.EncodeToString([]byte("user:" + sekret))
	req := Request{
		System: "remember " + sekret,
		Messages: []Message{
			Text(User, sekret), {Role: Assistant, Parts: []Part{{Call: &ToolCall{ID: "1", Name: "t", Input: quoted, BadInput: sekret}}, {Text: wrapped}}},
			Results(ToolResult{CallID: "1", Text: "got " + sekret, IsError: true}),
		},
		Tools: []ToolSpec{{Name: "t", Description: sekret, Schema: json.RawMessage(`{"type":"object","description":"` + wrapped + `"}`)}},
	}
	before, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	p := &parrot{}
	var shown strings.Builder
	got, err := Hiding(t.Context(), r, p, req, func(d Delta) {
		if d.Restart {
			shown.Reset()
		}
		shown.WriteString(d.Text)
	})
	if err != nil {
		t.Fatal(err)
	}
	asked, err := json.Marshal(p.asked)
	if err != nil || r.Find(asked) != "" || strings.Count(string(asked), "[secret:known]") != 8 {
		t.Errorf("it was asked %s, %v", asked, err)
	}
	if after, err := json.Marshal(req); err != nil || string(after) != string(before) {
		t.Errorf("the request itself was changed to %s", after)
	}
	if want := "it is [secret:known] ü and s3kr3"; shown.String() != want || got.Text != "it is [secret:known] and s3kr3" {
		t.Errorf("shown %q, answered %q", shown.String(), got.Text)
	}
	if string(got.Calls[0].Input) != `{"a":"s3kr3t \"value\"/0001"}` {
		t.Errorf("the call was changed to %s", got.Calls[0].Input)
	}
	p.fails = true
	_, err = Hiding(t.Context(), r, p, req, nil)
	if !fault.Is(err, fault.Denied) || r.Find([]byte(err.Error()+fault.HintOf(err))) != "" {
		t.Errorf("%v, hint %q", err, fault.HintOf(err))
	}
}
