package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
)

// Texts that stand in where a provider demands text and there is none.
const (
	emptyResult   = "(no output)"
	emptyMessage  = "(empty message)"
	missingResult = "no result was recorded for this call"
)

// Prepare returns a copy of req that every provider accepts, for the one of the
// given name, so that nothing in a history can make a conversation unusable:
//
//   - all text is valid UTF-8 without NUL, blank text is left out;
//   - messages of one side in a row are one message, and the first is the user's;
//   - every call has an ID of its own in plain characters and is answered in the
//     message right behind it: a missing answer is made up as an error, an answer
//     to no call becomes a note of the user's;
//   - what other providers want back, or what has been damaged, is left out;
//   - without tools on offer, calls and answers of the past become text, since
//     providers refuse them then.
//
// A request that ends in an answer of the model is Invalid: there is nothing to
// ask.
func Prepare(provider string, req Request) (Request, error) {
	out := Request{System: guard.CleanText(req.System), MaxTokens: max(req.MaxTokens, 0), Model: guard.CleanText(req.Model)}
	for _, t := range req.Tools {
		spec, err := prepareTool(t)
		if err != nil {
			return Request{}, err
		}
		out.Tools = append(out.Tools, spec)
	}
	p := preparer{provider: provider, plain: len(out.Tools) == 0, used: map[string]bool{}}
	for i, m := range req.Messages {
		switch m.Role {
		case User, Assistant, Tool:
			p.message(m)
		default:
			return Request{}, fault.New(fault.Invalid, "message %d: unknown role %q", i, m.Role)
		}
	}
	p.settle()
	out.Messages = p.out
	if len(out.Messages) == 0 {
		return Request{}, fault.New(fault.Invalid, "the request has no message")
	}
	if out.Messages[len(out.Messages)-1].Role == Assistant {
		return Request{}, fault.New(fault.Invalid, "the request ends in an answer of the model: nothing to ask")
	}
	return out, nil
}

func prepareTool(t ToolSpec) (ToolSpec, error) {
	spec := ToolSpec{Name: guard.CleanText(t.Name), Description: guard.CleanText(t.Description), Schema: json.RawMessage(`{"type":"object","properties":{}}`)}
	if spec.Name == "" {
		return ToolSpec{}, fault.New(fault.Invalid, "a tool has no name")
	}
	if len(t.Schema) == 0 {
		return spec, nil
	}
	schema, ok := cleanJSON(t.Schema)
	if !ok || schema[0] != '{' {
		return ToolSpec{}, fault.New(fault.Invalid, "tool %s: its schema is not a JSON object", t.Name)
	}
	var head struct {
		Type json.RawMessage `json:"type"`
	}
	if err := json.Unmarshal(schema, &head); err != nil || len(head.Type) > 0 && string(head.Type) != `"object"` {
		return ToolSpec{}, fault.New(fault.Invalid, "tool %s: the input of a tool must be an object", t.Name)
	}
	if len(head.Type) == 0 { // providers demand what JSON Schema leaves to the reader
		sep := ","
		if string(schema) == "{}" {
			sep = ""
		}
		schema = json.RawMessage(`{"type":"object"` + sep + string(schema[1:]))
	}
	spec.Schema = schema
	return spec, nil
}

// preparer builds the messages. open holds the calls of the last message that
// have no answer yet, by the ID they had in the history.
type preparer struct {
	provider string
	plain    bool
	out      []Message
	used     map[string]bool // call IDs given out
	open     []openCall
	next     int
}

type openCall struct{ old, new string }

func (p *preparer) message(m Message) {
	if m.Role == Assistant {
		p.settle()
	}
	before := len(p.out)
	for _, part := range m.Parts { // answers first: text between them would cut them off from their calls
		if part.Result != nil {
			p.result(*part.Result)
		}
	}
	for _, part := range m.Parts {
		switch {
		case part.Result != nil:
		case part.Call != nil && m.Role == Assistant:
			p.call(*part.Call)
		case part.Opaque != nil && m.Role == Assistant && says(m):
			p.opaque(*part.Opaque)
		case strings.TrimSpace(part.Text) != "":
			p.text(m.Role, part.Text)
		}
	}
	if m.Role == User && len(p.out) == before && !p.endsWith(User) {
		p.text(User, emptyMessage)
	}
}

// says reports whether m has anything but opaque parts.
func says(m Message) bool {
	for _, p := range m.Parts {
		if p.Call != nil || strings.TrimSpace(p.Text) != "" {
			return true
		}
	}
	return false
}

// opaque passes o on as it is or not at all: it may be signed.
func (p *preparer) opaque(o Opaque) {
	var compact bytes.Buffer
	clean, ok := cleanJSON(o.Data)
	if o.Provider != p.provider || !ok || json.Compact(&compact, o.Data) != nil || !bytes.Equal(clean, compact.Bytes()) {
		return
	}
	p.add(Assistant, Part{Opaque: &Opaque{Provider: o.Provider, Data: clean}})
}

func (p *preparer) endsWith(r Role) bool { return len(p.out) > 0 && p.out[len(p.out)-1].Role == r }

func (p *preparer) text(r Role, text string) {
	if r == Tool {
		r = User
	}
	if r == User {
		p.settle()
	}
	p.add(r, Part{Text: guard.CleanText(text)})
}

func (p *preparer) call(c ToolCall) {
	input, ok := cleanJSON(c.Input)
	if !ok || input[0] != '{' {
		input = json.RawMessage("{}")
	}
	if p.plain {
		p.add(Assistant, Part{Text: fmt.Sprintf("[called %s %s]", guard.CleanText(c.Name), input)})
		return
	}
	call := ToolCall{ID: p.freshID(c.ID), Name: guard.CleanText(c.Name), Input: input}
	p.open = append(p.open, openCall{old: c.ID, new: call.ID})
	p.add(Assistant, Part{Call: &call})
}

func (p *preparer) result(r ToolResult) {
	text := guard.CleanText(r.Text)
	if strings.TrimSpace(text) == "" {
		text = emptyResult
	}
	for i, c := range p.open {
		if c.old == r.CallID {
			p.open = append(p.open[:i], p.open[i+1:]...)
			p.add(Tool, Part{Result: &ToolResult{CallID: c.new, Text: text, IsError: r.IsError}})
			return
		}
	}
	p.text(User, "[result of an earlier call: "+text+"]")
}

// settle answers what is still open, so that the next message may follow.
func (p *preparer) settle() {
	for _, c := range p.open {
		p.add(Tool, Part{Result: &ToolResult{CallID: c.new, Text: missingResult, IsError: true}})
	}
	p.open = nil
}

// add puts a part at the end. Text of the user behind the answers to calls stays
// a message of its own; the adapters join the two where a provider wants that.
func (p *preparer) add(r Role, part Part) {
	if len(p.out) == 0 && r != User {
		p.out = append(p.out, Text(User, emptyMessage))
	}
	if !p.endsWith(r) {
		p.out = append(p.out, Message{Role: r})
	}
	last := &p.out[len(p.out)-1]
	last.Parts = append(last.Parts, part)
}

// freshID keeps the ID of a call if every provider takes it and it is not used
// yet, else it makes one that depends only on the history.
func (p *preparer) freshID(old string) string {
	if !plainID(old) || p.used[old] {
		for {
			p.next++
			if old = "call_" + strconv.Itoa(p.next); !p.used[old] {
				break
			}
		}
	}
	p.used[old] = true
	return old
}

func plainID(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}
