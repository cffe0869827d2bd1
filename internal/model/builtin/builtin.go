// Package builtin is the interpreter that answers when no model is set up. It
// knows a table of verbs, turns what the person wrote into at most one tool call,
// and what the tool answered into a reply. It guesses nothing: what it does not
// understand changes nothing, and it says so.
package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/model"
)

// Name is the name of the provider and of its only model.
const Name = "builtin"

// maxReply is how much of a tool's output goes into a reply.
const maxReply = 16 << 10

// Interpreter is the model.Provider. It keeps nothing between requests: the same
// request at the same time has the same answer.
type Interpreter struct {
	now   func() time.Time
	verbs func() []verb // compiled when first needed: most daemons have a model
}

var _ model.Provider = (*Interpreter)(nil)

// New returns the interpreter. now is the clock that "in 5 minutes" and "at 17:00"
// are counted by; its location is the person's.
func New(now func() time.Time) *Interpreter {
	return &Interpreter{now: now, verbs: sync.OnceValue(table)}
}

// Name returns "builtin".
func (*Interpreter) Name() string { return Name }

// Generate answers the last message: a person's words with a call or a reply,
// results with a reply.
func (b *Interpreter) Generate(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error) {
	if err := model.ContextError(ctx, Name); err != nil {
		return model.Response{}, err
	}
	if len(req.Messages) == 0 {
		return model.Response{}, fault.New(fault.Invalid, "the request has no message")
	}
	out := model.Response{Stop: model.StopEnd, Model: Name, Provider: Name}
	last := req.Messages[len(req.Messages)-1]
	switch last.Role {
	case model.Tool:
		out.Text = reply(req.Messages)
	case model.User:
		a := b.understand(last.Text())
		out.Text = a.say
		if a.tool != "" && !offered(req.Tools, a.tool) {
			out.Text = missing(req.Tools, a.tool)
		} else if a.tool != "" {
			id := fmt.Sprintf("builtin_%d", len(req.Messages))
			out.Calls, out.Stop = []model.ToolCall{model.NewCall(id, a.tool, string(a.input))}, model.StopCalls
		}
	default:
		return model.Response{}, fault.New(fault.Invalid, "the request ends in an answer of the model: nothing to ask")
	}
	out.Text = guard.CleanText(out.Text)
	if out.Text != "" {
		sink.Send(model.Delta{Text: out.Text})
	}
	return out, nil
}

// action is what to do about a message: say something or call a tool.
type action struct {
	say   string
	tool  string
	input json.RawMessage
}

func say(format string, args ...any) action { return action{say: fmt.Sprintf(format, args...)} }

// call returns the action of calling tool; input is one of the structs below.
func call(tool string, input any) action {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(input); err != nil {
		return say("I could not put that into words for the tool %s: %v", tool, err)
	}
	return action{tool: tool, input: bytes.TrimSpace(b.Bytes())}
}

// The inputs of the tools the interpreter knows.
type (
	textInput struct {
		Text string `json:"text"`
	}
	queryInput struct {
		Query string `json:"query"`
	}
	lastInput struct {
		Last bool `json:"last"`
	}
	remindAt struct {
		Text string `json:"text"`
		At   string `json:"at"`
	}
	remindIn struct {
		Text      string `json:"text"`
		InSeconds int64  `json:"in_seconds"`
	}
	idInput struct {
		ID string `json:"id"`
	}
	pathInput struct {
		Path string `json:"path"`
	}
	writeInput struct {
		Path    string `json:"path"`
		Content string `json:"content"`
	}
	argvInput struct {
		Argv []string `json:"argv"`
	}
	urlInput struct {
		URL string `json:"url"`
	}
	zoneInput struct {
		Zone string `json:"zone,omitempty"`
	}
	noInput struct{}
)

func offered(tools []model.ToolSpec, name string) bool {
	for _, t := range tools {
		if t.Name == name {
			return true
		}
	}
	return false
}

func missing(tools []model.ToolSpec, name string) string {
	if len(tools) == 0 {
		return fmt.Sprintf("That needs the tool %s, and this agent has no tools. Nothing was done.", name)
	}
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	return fmt.Sprintf("That needs the tool %s, which this agent does not have. Nothing was done. It has: %s.", name, strings.Join(names, ", "))
}

// reply turns the results in the last message into words.
func reply(history []model.Message) string {
	calls := map[string]model.ToolCall{}
	for i := len(history) - 2; i >= 0 && len(calls) == 0; i-- {
		for _, p := range history[i].Parts {
			if p.Call != nil {
				calls[p.Call.ID] = *p.Call
			}
		}
	}
	var lines []string
	for _, p := range history[len(history)-1].Parts {
		if p.Result != nil {
			shown := *p.Result
			shown.Text = guard.Unwrap(shown.Text) // a person needs no marks
			lines = append(lines, tell(calls[p.Result.CallID], shown))
		}
	}
	if len(lines) == 0 {
		return "The tool gave no answer."
	}
	return strings.Join(lines, "\n")
}

func tell(c model.ToolCall, r model.ToolResult) string {
	text := strings.TrimSpace(r.Text)
	if r.IsError {
		if text == "" {
			text = "the tool did not say why"
		}
		return "That did not work: " + cut(text)
	}
	switch c.Name {
	case "memory.remember":
		var in textInput
		if json.Unmarshal(c.Input, &in) == nil && in.Text != "" {
			return "I will remember: " + cut(in.Text)
		}
	case "memory.recall":
		return recalled(text)
	case "memory.forget":
		if text == "" {
			return "Forgotten."
		}
	case "remind.set":
		return reminded(c, text)
	}
	if text == "" {
		return "Done."
	}
	return cut(text)
}

// recalled words what memory found; a tool may answer in lines or in JSON.
func recalled(text string) string {
	type fact struct {
		Text string `json:"text"`
	}
	var list []fact
	var object struct {
		Facts []fact `json:"facts"`
	}
	if json.Unmarshal([]byte(text), &list) != nil && json.Unmarshal([]byte(text), &object) == nil {
		list = object.Facts
	} else if len(list) == 0 && text != "[]" {
		if text == "" {
			return "I know nothing about that."
		}
		return cut(text)
	}
	var lines []string
	for _, f := range list {
		if f.Text != "" {
			lines = append(lines, f.Text)
		}
	}
	if len(lines) == 0 {
		return "I know nothing about that."
	}
	return cut(strings.Join(lines, "\n"))
}

func reminded(c model.ToolCall, text string) string {
	var in struct {
		Text      string `json:"text"`
		At        string `json:"at"`
		InSeconds int64  `json:"in_seconds"`
	}
	if json.Unmarshal(c.Input, &in) != nil || in.Text == "" {
		return cut(text)
	}
	when := "in " + (time.Duration(in.InSeconds) * time.Second).String()
	if at, err := time.Parse(time.RFC3339, in.At); err == nil {
		when = "on " + at.Format("Monday 2 January 2006 at 15:04")
	}
	return fmt.Sprintf("I will remind you %s: %s", when, cut(in.Text))
}

func cut(text string) string {
	if len(text) <= maxReply {
		return text
	}
	n := maxReply
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return fmt.Sprintf("%s\n[%d more bytes are not shown]", text[:n], len(text)-n)
}
