// Package model is how ombud asks a language model: the request and the answer
// in one form for every provider, and what holds for all of them whatever their
// wire format is: text cleaned before it leaves, histories brought into a shape
// every provider accepts, errors in classes, retries, fallback, prices.
//
// A Provider makes exactly one attempt. Retrying and Fallback wrap it; the SDKs'
// own retries are switched off, because only we know the deadline of the turn
// and which attempt was already paid for.
package model

import (
	"context"
	"encoding/json"
	"strings"
)

// Provider answers requests.
//
// Generate makes one attempt and returns when the answer is complete. Its errors
// are classified: Denied (key refused), Invalid (the request will never work),
// NotFound (no such model), Unavailable (later, or elsewhere, may work; see
// RetryAfter), Timeout and Cancelled (ctx ended). A partial answer is never
// returned: a stream that ends early is Unavailable. sink may be nil. It is
// called on the goroutine of Generate and never after Generate has returned.
type Provider interface {
	Name() string
	Generate(ctx context.Context, req Request, sink Sink) (Response, error)
}

// Role says whose words a message is.
type Role string

// The roles of a message. The system prompt is Request.System, not a message.
const (
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool" // results of the calls of the message before
)

// Message is one entry of a conversation.
type Message struct {
	Role  Role   `json:"role"`
	Parts []Part `json:"parts"`
}

// Part is one piece of a message; exactly one field is set.
type Part struct {
	Text   string      `json:"text,omitempty"`
	Call   *ToolCall   `json:"call,omitempty"`
	Result *ToolResult `json:"result,omitempty"`
	Opaque *Opaque     `json:"opaque,omitempty"`
}

// ToolCall is the model's wish to use a tool. Name is the canonical, dotted name.
type ToolCall struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Input is always a JSON object, or nil if what the model sent was none.
	Input json.RawMessage `json:"input"`
	// BadInput is what the model sent instead of a JSON object, cut to 4 KiB.
	// Such a call must be answered with an error, never run.
	BadInput string `json:"bad_input,omitempty"`
}

// ToolResult answers the ToolCall whose ID is CallID.
type ToolResult struct {
	CallID  string `json:"call_id"`
	Text    string `json:"text"`
	IsError bool   `json:"is_error,omitempty"`
}

// Opaque is something a provider wants back unchanged with the next request,
// such as signed reasoning. Only the provider of that name gets it; nobody else
// reads it.
type Opaque struct {
	Provider string          `json:"provider"`
	Data     json.RawMessage `json:"data"`
}

// ToolSpec is a tool as the model is told about it.
type ToolSpec struct {
	Name        string          `json:"name"` // canonical, dotted
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"` // JSON Schema of an object; nil means no input
}

// Request is one question to a model.
type Request struct {
	System    string     `json:"system,omitempty"`
	Messages  []Message  `json:"messages"`
	Tools     []ToolSpec `json:"tools,omitempty"`
	MaxTokens int        `json:"max_tokens,omitempty"` // longest answer; 0 is the provider's default
	Model     string     `json:"model,omitempty"`      // "" is the provider's default
}

// StopReason says why an answer ended.
type StopReason string

// The stop reasons.
const (
	StopEnd       StopReason = "end"        // the model was done
	StopCalls     StopReason = "calls"      // it waits for the results of its calls
	StopMaxTokens StopReason = "max_tokens" // cut: the last call may be incomplete
	StopRefusal   StopReason = "refusal"    // it will not answer; asking another model is not our business
)

// Usage is what an answer used, in tokens. The three kinds of input do not
// overlap: their sum is the size of the prompt.
type Usage struct {
	Input      int64 `json:"input"` // neither read from nor written to a cache
	Output     int64 `json:"output"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	// Estimated says that the provider reported nothing and these are our guess.
	Estimated bool `json:"estimated,omitempty"`
}

// Response is one complete answer.
type Response struct {
	Text     string     `json:"text"`
	Calls    []ToolCall `json:"calls,omitempty"`
	Opaque   []Opaque   `json:"opaque,omitempty"`
	Stop     StopReason `json:"stop"`
	Usage    Usage      `json:"usage"`
	Model    string     `json:"model"`    // as the provider names it
	Provider string     `json:"provider"` // who answered, which after a fallback is not who was asked
}

// Message returns r as the history keeps it.
func (r Response) Message() Message {
	m := Message{Role: Assistant}
	for i := range r.Opaque {
		m.Parts = append(m.Parts, Part{Opaque: &r.Opaque[i]})
	}
	if r.Text != "" {
		m.Parts = append(m.Parts, Part{Text: r.Text})
	}
	for i := range r.Calls {
		m.Parts = append(m.Parts, Part{Call: &r.Calls[i]})
	}
	return m
}

// Delta is a piece of an answer that is still being written.
type Delta struct {
	Text string
	// Restart says that the text so far came to nothing, because the attempt
	// failed and another one begins: forget it.
	Restart bool
}

// Sink takes deltas. They are a hint for the eye; the Response is the truth.
type Sink func(Delta)

// Send passes d on, as valid UTF-8 without NUL; a nil Sink drops it. The full
// cleaning needs the whole text: it is done on the Response.
func (s Sink) Send(d Delta) {
	if s == nil {
		return
	}
	d.Text = strings.ReplaceAll(strings.ToValidUTF8(d.Text, "\uFFFD"), "\x00", "\uFFFD")
	s(d)
}

// Text returns a message of plain text.
func Text(role Role, text string) Message {
	return Message{Role: role, Parts: []Part{{Text: text}}}
}

// Results returns the message that answers calls.
func Results(results ...ToolResult) Message {
	m := Message{Role: Tool}
	for i := range results {
		m.Parts = append(m.Parts, Part{Result: &results[i]})
	}
	return m
}

// Text returns the plain text of m, parts joined by newlines.
func (m Message) Text() string {
	var out string
	for _, p := range m.Parts {
		switch {
		case p.Text == "":
		case out == "":
			out = p.Text
		default:
			out += "\n" + p.Text
		}
	}
	return out
}
