package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/form"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/tool"
)

// Bounds of what a server asks.
const (
	maxQuestions = 8        // of one call
	maxMessage   = 8 << 10  // bytes of what it says with a question
	maxAddress   = 4 << 10  // bytes of an address to open
	maxSaying    = 64       // messages for a model
	maxSample    = 64 << 10 // bytes of all of them
	maxSampled   = 4096     // tokens of an answer
	maxRounds    = 16       // answers to one call that ask for more, or for patience
	askTimes     = 3        // all questions of a call take at most so many times one
	busyPause    = time.Second
)

// Kind says what a server asks for.
type Kind string

// The kinds of question.
const (
	AskForm   Kind = "form"   // that a person fills something in
	AskURL    Kind = "url"    // that a person opens an address
	AskSample Kind = "sample" // what a model says
)

// Asked is a question of a server, with the call it belongs to. All but Server, Tool and
// Call is the server's own words.
type Asked struct {
	Server string
	Tool   string // of the call, behind the server's name
	Call   tool.Invocation
	Number int // among the questions of the call, from 1
	Kind   Kind

	Message string
	Schema  json.RawMessage // of a form
	URL     string          // to open
	Before  bool            // the call cannot be made before the address was opened
	Sample  Sample
}

// Sample is what a model is asked.
type Sample struct {
	System    string   `json:"system,omitempty"`
	Messages  []Saying `json:"messages"`
	MaxTokens int      `json:"max_tokens"`
}

// Saying is a message for a model.
type Saying struct {
	Role string `json:"role"` // user or assistant
	Text string `json:"text"`
}

// Action is what became of a question to a person.
type Action string

// The actions, in the words of the protocol.
const (
	Accept  Action = "accept"
	Decline Action = "decline" // somebody said no
	Cancel  Action = "cancel"  // nobody said anything
)

// Answer is what became of a question. An empty Action is Cancel.
type Answer struct {
	Action  Action
	Content json.RawMessage // what a person filled in
	Why     string          // it was not answered; for whoever made the call, not for the server
	Text    string          // of a model
	Model   string
	Stop    string // why the model stopped, in the words of the protocol
	// CostMicroUSD is what it cost, which is booked already.
	CostMicroUSD int64
}

// asks reports whether anything can be asked by the servers of a specification.
func (s *Servers) asks(sp *Spec) bool { return s.Ask != nil && (!sp.NoElicitation || sp.Sampling) }

// askTime is how long in all persons may be asked within a call of a server.
func (s *Servers) askTime(sp *Spec) time.Duration {
	if !s.asks(sp) {
		return 0
	}
	return askTimes * s.cfg.Ask
}

// capabilities are what a server is told that ombud can do.
func (v *life) capabilities() *mcp.ClientCapabilities {
	c := &mcp.ClientCapabilities{} // no roots
	if v.elicits {
		c.Elicitation = &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}}
	}
	if v.samples {
		c.Sampling = &mcp.SamplingCapabilities{} // without tools, and without the context of others
	}
	return c
}

// heard adds what deals with the requests of a server to the options of its client.
func (v *life) heard(o *mcp.ClientOptions) *mcp.ClientOptions {
	if v.elicits {
		o.ElicitationHandler = func(ctx context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			t, err := v.whose()
			if err != nil {
				return nil, err
			}
			return t.elicit(ctx, r.Params, false)
		}
	}
	if v.samples {
		o.CreateMessageWithToolsHandler = func(ctx context.Context, r *mcp.CreateMessageWithToolsRequest) (*mcp.CreateMessageWithToolsResult, error) {
			t, err := v.whose()
			if err != nil {
				return nil, err
			}
			return t.sample(ctx, r.Params)
		}
	}
	return o
}

// talk is a call under way: what its server asks meanwhile belongs to it.
type talk struct {
	v    *life
	u    use
	in   tool.Invocation
	ctx  context.Context //nolint:containedctx // of the call, for what the server asks beside it
	one  chan struct{}   // one question at a time
	n    atomic.Int32    // questions so far
	said atomic.Pointer[[]string]
	cost atomic.Int64 // of answers of models, booked already
}

// begin notes that a call is under way. Once a server has asked something of which nobody
// could tell whose it was, its calls go one at a time.
func (v *life) begin(ctx context.Context, u use, in tool.Invocation) (t *talk, end func(), err error) {
	t = &talk{v: v, u: u, in: in, ctx: ctx, one: make(chan struct{}, 1)}
	for {
		v.mu.Lock()
		if !v.singly || len(v.talks) == 0 {
			v.talks[t] = true
			v.mu.Unlock()
			return t, func() { v.leave(t) }, nil
		}
		fewer := v.fewer
		v.mu.Unlock()
		select {
		case <-fewer:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-v.over:
			return nil, nil, errStopped
		}
	}
}

func (v *life) leave(t *talk) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.talks, t)
	close(v.fewer)
	v.fewer = make(chan struct{})
}

// whose is the call that a request of the server belongs to, which the protocol does not
// say before its revision 2026-07-28: the one that is under way.
func (v *life) whose() (*talk, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch len(v.talks) {
	case 0:
		return nil, refuse("ombud is asked something only while it makes a call")
	case 1:
		for t := range v.talks {
			return t, nil
		}
	}
	if !v.singly {
		v.singly = true
		v.log.Warn("a server asks while several of its calls are under way; from now on they are made one at a time", "server", v.name)
	}
	return nil, refuse("several calls are under way, and nobody can tell which one asks; from now on there is one at a time")
}

func refuse(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// note keeps why something was not answered, for whoever made the call.
func (t *talk) note(why string) {
	for {
		was := t.said.Load()
		var list []string
		if was != nil {
			list = slices.Clone(*was)
		}
		list = append(list, why)
		if t.said.CompareAndSwap(was, &list) {
			return
		}
	}
}

func (t *talk) notes() []string {
	if list := t.said.Load(); list != nil {
		return *list
	}
	return nil
}

// ask puts a question. ctx is that of the request; the end of the call or of the
// connection ends it as well.
func (t *talk) ask(ctx context.Context, q Asked) (Answer, error) {
	if q.Number = int(t.n.Add(1)); q.Number > maxQuestions {
		if q.Number == maxQuestions+1 { // a server can go on for as long as its call takes
			t.note(fmt.Sprintf("it asked more than %d times", maxQuestions))
		}
		return Answer{}, refuse("this call has asked %d times, which is the most", maxQuestions)
	}
	if t.in.Asking == nil {
		return Answer{}, refuse("nothing can be asked within this call")
	}
	ctx, quit := context.WithCancel(ctx)
	defer quit()
	for _, other := range []context.Context{t.ctx, t.v.ctx} {
		defer context.AfterFunc(other, quit)()
	}
	select {
	case t.one <- struct{}{}:
		defer func() { <-t.one }()
	case <-ctx.Done():
		return Answer{Action: Cancel}, nil
	}
	ctx, done := t.in.Asking(ctx)
	defer done()
	ctx, cancel := context.WithTimeout(ctx, t.v.cfg.Ask)
	defer cancel()
	q.Server, q.Tool, q.Call = t.v.name, t.u.local, t.in
	a, err := t.v.ask(ctx, q)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		a, err = Answer{Action: Cancel, Why: "nobody answered in time"}, nil
	case ctx.Err() != nil:
		a, err = Answer{Action: Cancel, Why: "it was taken back"}, nil
	}
	if err != nil {
		t.v.log.Warn("a question of a server could not be put", "server", t.v.name, "kind", string(q.Kind), "error", err)
		t.note("it asked for something, and nobody could be asked: " + string(fault.ClassOf(err)))
		return Answer{}, refuse("nobody can be asked now")
	}
	if t.cost.Add(a.CostMicroUSD); a.Action == "" {
		a.Action = Cancel
	}
	if a.Action != Accept {
		t.note(words("it asked for something and was answered", string(a.Action)+":", a.Why))
	}
	t.v.log.Info("a server asked", "server", t.v.name, "kind", string(q.Kind), "answer", string(a.Action))
	return a, nil
}

// elicit asks a person.
func (t *talk) elicit(ctx context.Context, p *mcp.ElicitParams, before bool) (*mcp.ElicitResult, error) {
	if p == nil {
		return nil, invalid("nothing is asked")
	}
	if len(p.Message) > maxMessage {
		return nil, invalid("the message has more than %d bytes", maxMessage)
	}
	q := Asked{Kind: AskForm, Message: p.Message, Before: before}
	if p.Mode == "url" || p.Mode == "" && p.URL != "" {
		q.Kind, q.URL = AskURL, p.URL
		if err := checkAddress(p.URL); err != nil {
			return nil, err
		}
	} else {
		var err error
		if q.Schema, err = schemaOf(p.RequestedSchema); err != nil {
			return nil, err
		}
	}
	a, err := t.ask(ctx, q)
	if err != nil {
		return nil, err
	}
	res := &mcp.ElicitResult{Action: string(a.Action)}
	if a.Action == Accept && q.Kind == AskForm {
		if err := json.Unmarshal(a.Content, &res.Content); err != nil {
			return nil, fault.New(fault.Internal, "the answer to a question: %w", err)
		}
	}
	return res, nil
}

// schemaOf is what a form asks for. What no form can be is told to the server.
func schemaOf(v any) (json.RawMessage, error) {
	raw := json.RawMessage(`{"type":"object","properties":{}}`)
	if v != nil {
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			return nil, invalid("the schema cannot be read")
		}
		raw = bytes.TrimSpace(buf.Bytes())
	}
	if _, err := form.Parse(raw); err != nil {
		return nil, invalid("%s", guard.OneLine(err.Error(), 500))
	}
	return raw, nil
}

// checkAddress refuses what is not the address of a page.
func checkAddress(text string) error {
	u, err := url.Parse(text)
	switch {
	case len(text) > maxAddress:
		return invalid("the address has more than %d bytes", maxAddress)
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return invalid("only an address of http or https can be opened")
	case u.User != nil:
		return invalid("an address with a name or a password in it is not opened")
	case guard.OneLine(text, maxAddress) != text || strings.ContainsAny(text, " \\"):
		return invalid("the address has characters in it that an address cannot have")
	}
	return nil
}

// sample asks a model.
func (t *talk) sample(ctx context.Context, p *mcp.CreateMessageWithToolsParams) (*mcp.CreateMessageWithToolsResult, error) {
	s, err := sampleOf(p)
	if err != nil {
		return nil, err
	}
	a, err := t.ask(ctx, Asked{Kind: AskSample, Sample: s})
	switch {
	case err != nil:
		return nil, err
	case a.Action != Accept: // the code the protocol has for it
		return nil, &jsonrpc.Error{Code: -1, Message: "the request for a model was refused"}
	}
	return &mcp.CreateMessageWithToolsResult{
		Content: []mcp.Content{&mcp.TextContent{Text: a.Text}}, Model: a.Model, Role: "assistant", StopReason: a.Stop,
	}, nil
}

// sampleOf is what of a request a model can be asked.
func sampleOf(p *mcp.CreateMessageWithToolsParams) (Sample, error) {
	switch {
	case p == nil || len(p.Messages) == 0 || len(p.Messages) > maxSaying:
		return Sample{}, invalid("a model is asked 1 to %d messages", maxSaying)
	case len(p.Tools) > 0 || p.ToolChoice != nil:
		return Sample{}, invalid("a model is asked without tools: sampling.tools was not declared")
	case p.IncludeContext != "" && p.IncludeContext != "none":
		return Sample{}, invalid("no context of servers is given: sampling.context was not declared")
	case p.MaxTokens <= 0:
		return Sample{}, invalid("maxTokens has to be over zero")
	}
	s := Sample{System: p.SystemPrompt, MaxTokens: int(min(p.MaxTokens, maxSampled))}
	size := len(s.System)
	for _, m := range p.Messages {
		if m == nil || m.Role != "user" && m.Role != "assistant" || len(m.Content) == 0 {
			return Sample{}, invalid("a message is of user or assistant, and has content")
		}
		var parts []string
		for _, c := range m.Content {
			text, ok := c.(*mcp.TextContent)
			if !ok {
				return Sample{}, invalid("a model is asked in text only, not with images, sound or results of tools")
			}
			parts = append(parts, text.Text)
		}
		text := strings.Join(parts, "\n")
		if size += len(text); strings.TrimSpace(text) == "" {
			return Sample{}, invalid("a message is empty")
		}
		s.Messages = append(s.Messages, Saying{Role: string(m.Role), Text: text})
	}
	if size > maxSample {
		return Sample{}, invalid("a model is asked at most %d bytes", maxSample)
	}
	return s, nil
}
