package fakeapi

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Turn is one request for an answer.
type Turn struct { //nolint:recvcheck // read by value, made by pointer
	API      string // "anthropic", "responses", "chat" or "gemini"
	Model    string
	Stream   bool
	System   string    // what is not of the conversation: system prompts and developer's messages, a line each
	Tools    []Offer   // in the order they were offered
	Messages []Message // the conversation

	Prompts []string // what the user said since the model last spoke
	Results []string // what tools said since then
	Done    int      // results since the model last answered without a call

	shape string // Gemini: the schema the answer is to have
}

// Last is what came last: the results of tools if there are any, else the prompts.
func (t Turn) Last() string {
	if len(t.Results) > 0 {
		return strings.Join(t.Results, "\n")
	}
	return strings.Join(t.Prompts, "\n")
}

// Names are those of the offered tools.
func (t Turn) Names() []string {
	names := make([]string, len(t.Tools))
	for i, o := range t.Tools {
		names[i] = o.Name
	}
	return names
}

// Offers tells whether a tool whose name matches the expression is offered.
func (t Turn) Offers(expr string) bool {
	return slices.ContainsFunc(t.Names(), regexp.MustCompile(expr).MatchString)
}

// Said are the texts of a role in the whole conversation, a line each.
func (t Turn) Said(role string) string {
	var out []string
	for _, m := range t.Messages {
		if m.Role == role && m.Text != "" {
			out = append(out, m.Text)
		}
	}
	return strings.Join(out, "\n")
}

// Offer is a tool the model may call.
type Offer struct {
	Name  string // with its namespace before it: "mcp__server__tool"
	space string // OpenAI: the namespace
	local string // the name in it
	kind  string // OpenAI: "function", "custom", "tool_search", …
}

// Message is one piece of a conversation.
type Message struct {
	Role string // "user", "assistant" or "tool"
	Text string
	Call string // id of the call that this is, or that it answers
	Tool string // name of the tool, of a call
}

// refusal is an error answer.
type refusal struct {
	status        int
	kind, message string
}

func invalid(message string) *refusal {
	return &refusal{http.StatusBadRequest, "invalid_request_error", message}
}

// check refuses a conversation that no API takes.
func (t *Turn) check() *refusal {
	switch {
	case t.Model == "":
		return invalid("model: Field required")
	case len(t.Messages) == 0:
		return invalid("messages: at least one message is required")
	case t.Messages[len(t.Messages)-1].Role == "assistant":
		return invalid("the conversation must end with a user message")
	}
	seen := map[string]bool{}
	for _, o := range t.Tools {
		switch {
		case !toolName.MatchString(o.Name):
			return invalid("tools: the name " + o.Name + " is not valid")
		case seen[o.Name]:
			return invalid("tools: Tool names must be unique: " + o.Name)
		}
		seen[o.Name] = true
	}
	return t.checkCalls()
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_.:-]{1,192}$`)

// checkCalls wants each call answered once, before the model speaks again.
func (t *Turn) checkCalls() *refusal {
	var open []string
	for i, m := range t.Messages {
		switch {
		case m.Role == "assistant" && m.Call != "":
			open = append(open, m.Call)
		case m.Role == "tool":
			at := slices.Index(open, m.Call)
			if at < 0 {
				return invalid("a tool result without its call: " + m.Call)
			}
			open = slices.Delete(open, at, at+1)
		}
		last := i == len(t.Messages)-1
		if len(open) > 0 && (last || t.Messages[i+1].Role == "assistant" && m.Role != "assistant") {
			return invalid("tool calls without their results: " + strings.Join(open, ", "))
		}
	}
	return nil
}

// digest fills what scenarios look at.
func (t *Turn) digest() {
	since, answered := 0, 0
	for i, m := range t.Messages {
		if m.Role != "assistant" {
			continue
		}
		since = i + 1
		if m.Call == "" && (i+1 == len(t.Messages) || t.Messages[i+1].Role != "assistant") {
			answered = i + 1
		}
	}
	for i, m := range t.Messages {
		switch {
		case m.Role == "tool" && i >= answered:
			t.Done++
			if i >= since {
				t.Results = append(t.Results, m.Text)
			}
		case m.Role == "user" && i >= since && m.Text != "":
			t.Prompts = append(t.Prompts, m.Text)
		}
	}
}

// reply is an answer in the terms of a request: with the tool that is called.
type reply struct {
	Answer
	call *Offer
}

// settle finds the tool of an answer. That none is offered is said by the model, so
// that it stands in the record of the CLI.
func (t *Turn) settle(a Answer) reply {
	if a.Text == "" {
		a.Text = Text
	}
	r := reply{Answer: a}
	if a.Call.Tool == "" && a.Call.Name == "" {
		return r
	}
	expr := regexp.MustCompile(a.Call.Tool)
	for i := range t.Tools {
		if a.Call.Tool != "" && expr.MatchString(t.Tools[i].Name) {
			r.call = &t.Tools[i]
			return r
		}
	}
	if a.Call.Name != "" {
		r.call = unoffered(a.Call.Name)
		return r
	}
	r.Text = "NO TOOL MATCHES " + a.Call.Tool + " IN " + strings.Join(t.Names(), ",")
	return r
}

// unoffered is a tool that is called by its name alone: in "mcp__server__tool" all
// but the last part is the namespace.
func unoffered(name string) *Offer {
	o := &Offer{Name: name, local: name, kind: "function"}
	if at := strings.LastIndex(name, "__"); strings.HasPrefix(name, "mcp__") && at > len("mcp__") {
		o.space, o.local = name[:at], name[at+2:]
	}
	return o
}
