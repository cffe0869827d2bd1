package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/tool"
)

const (
	codeRejected = -32005 // the library's, for a request that came to nothing

	maxSaid  = 8 << 10 // bytes of an error a server gives
	maxParts = 64      // pieces of a result that are kept as bytes
)

// call makes a call over a connection. what is the use it was decided by.
func (v *life) call(ctx context.Context, x *server, u use, in tool.Invocation, repeatable bool) (tool.Output, error) {
	v.mu.Lock()
	force := v.items[u.item.key()]
	v.mu.Unlock()
	if force != u.item.hash() {
		return tool.Output{}, fault.New(fault.Conflict, "%s offers other tools than when this call was decided; it was not made", v.name).
			WithHint("ombud mcp diff %s shows what is other", v.name)
	}
	if len(in.Input) > maxInput {
		return tool.Output{}, fault.New(fault.Invalid, "the input has %d bytes, at most %d for a server", len(in.Input), maxInput)
	}
	told := &atomic.Bool{}
	heard := v.hears()
	ctx = context.WithValue(ctx, toldKey{}, told)
	t, end, err := v.begin(ctx, u, in)
	if err != nil {
		return tool.Output{}, v.failure(ctx, err, false, repeatable)
	}
	defer end()
	out, err := t.request(ctx, x.s.Keep)
	if cost := t.cost.Load(); cost > 0 {
		out.CostMicroUSD, out.Reserved = cost, true
	}
	if err == nil {
		v.silent.Store(0)
		return out, nil
	}
	if ctx.Err() != nil && told.Load() {
		v.unheard(heard)
	}
	return out, v.failure(ctx, err, told.Load(), repeatable)
}

// hears counts what was heard of the server, where that can be told.
func (v *life) hears() int64 {
	if v.conn == nil {
		return -1
	}
	return v.conn.heard.Load()
}

// unheard ends a connection over which nothing was heard during several calls in a row.
func (v *life) unheard(before int64) {
	if before < 0 || v.conn.heard.Load() != before {
		v.silent.Store(0)
		return
	}
	if v.silent.Add(1) >= deaf {
		v.end(fault.New(fault.Unavailable, "it answered none of %d calls in a row, and said nothing meanwhile", deaf))
	}
}

// answered is an error that a server gave.
type answered struct{ error }

func (e answered) Unwrap() error { return e.error }

// tooSoon is an end before a call was sent: the next connection can be told of it.
type tooSoon struct{ error }

func (e tooSoon) Unwrap() error { return e.error }

// failure is what a call comes to that has no result.
func (v *life) failure(ctx context.Context, err error, told, repeatable bool) error {
	if a, ok := errors.AsType[answered](err); ok {
		return a.error
	}
	if ours, ok := errors.AsType[*fault.Error](err); ok && (!told || fault.Is(ours, fault.Denied)) {
		return said(v.name+" was not called", err) // it refused the token, or we the connection
	}
	if w, ok := errors.AsType[*jsonrpc.Error](err); ok && w.Code != codeRejected {
		return v.refusal(w, repeatable)
	}
	if ctx.Err() != nil && !told {
		class := fault.Timeout
		if errors.Is(ctx.Err(), context.Canceled) {
			class = fault.Cancelled
		}
		return fault.New(class, "%s takes no more at the moment; it was not told of this call", v.name)
	}
	why := guard.OneLine(err.Error(), 300)
	if v.isOver() || errors.Is(err, mcp.ErrConnectionClosed) {
		<-v.over // it is about to
		why = v.cause.Error()
	}
	switch {
	case !told && v.isOver():
		return tooSoon{fault.New(fault.Unavailable, "%s was gone before it was told of this call: %s", v.name, why)}
	case !told:
		return fault.New(fault.Unavailable, "%s was not told of this call: %s", v.name, why)
	case repeatable:
		return fault.New(fault.Unavailable, "%s did not answer the call, which can be made again: %s", v.name, why)
	}
	return fault.New(fault.Unknown, "%s did not answer the call, so its outcome is unknown: %s", v.name, why)
}

// refusal is an error of the protocol as the call's.
func (v *life) refusal(w *jsonrpc.Error, repeatable bool) error {
	class := fault.Unavailable
	switch w.Code {
	case jsonrpc.CodeInvalidParams, jsonrpc.CodeInvalidRequest:
		class = fault.Invalid
	case jsonrpc.CodeMethodNotFound:
		class = fault.NotFound
	case codeTooLong:
		if class = fault.Unknown; repeatable {
			class = fault.Invalid
		}
		return fault.New(class, "%s: %s", v.name, w.Message).WithHint("ask for less at a time")
	}
	return fault.New(class, "%s says: %s (%d)", v.name, guard.Lines(w.Message, maxSaid), w.Code)
}

// request makes the request of a use.
func (t *talk) request(ctx context.Context, keep func(ctx context.Context, b []byte) (string, error)) (out tool.Output, err error) {
	v, u, in := t.v, t.u, t.in
	var args struct {
		Cursor    string            `json:"cursor"`
		URI       string            `json:"uri"`
		Name      string            `json:"name"`
		Arguments map[string]string `json:"arguments"`
	}
	if u.do != callTool {
		if err := json.Unmarshal(in.Input, &args); err != nil {
			return out, err
		}
	}
	r := &rendering{ctx: ctx, keep: keep}
	switch u.do {
	case listResources:
		return v.listResources(ctx, args.Cursor)
	case listPrompts:
		res, err := v.cs.ListPrompts(ctx, &mcp.ListPromptsParams{Cursor: args.Cursor})
		if err != nil {
			return out, err
		}
		return listed(struct {
			Prompts []*mcp.Prompt `json:"prompts"`
			Next    string        `json:"next_cursor,omitempty"`
		}{res.Prompts, res.NextCursor})
	case readResource:
		var res *mcp.ReadResourceResult
		err := t.rounds(ctx, func(answers mcp.InputResponseMap, state string) (back asksBack, err error) {
			res, err = v.cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: args.URI, InputResponses: answers, RequestState: state})
			if err == nil {
				back = asksBack{res.InputRequests, res.RequestState, res.NeedsInput()}
			}
			return back, err
		})
		if err != nil {
			return out, err
		}
		for _, c := range res.Contents {
			r.resource(c)
		}
	case getPrompt:
		var res *mcp.GetPromptResult
		err := t.rounds(ctx, func(answers mcp.InputResponseMap, state string) (back asksBack, err error) {
			res, err = v.cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: args.Name, Arguments: args.Arguments, InputResponses: answers, RequestState: state})
			if err == nil {
				back = asksBack{res.InputRequests, res.RequestState, res.NeedsInput()}
			}
			return back, err
		})
		if err != nil {
			return out, err
		}
		for _, m := range res.Messages {
			r.line("[%s]", m.Role)
			r.content(m.Content)
		}
	case callTool:
		var res *mcp.CallToolResult
		err := t.rounds(ctx, func(answers mcp.InputResponseMap, state string) (back asksBack, err error) {
			res, err = v.cs.CallTool(ctx, &mcp.CallToolParams{Name: u.item.Name, Arguments: in.Input, InputResponses: answers, RequestState: state})
			if err == nil {
				back = asksBack{res.InputRequests, res.RequestState, res.NeedsInput()}
			}
			return back, err
		})
		if err != nil {
			return out, err
		}
		r.result(res)
		if res.IsError {
			t.tell(r)
			out, err := r.output()
			if err == nil {
				err = answered{fault.New(fault.Unavailable, "%s says: %s", v.name, guard.Lines(out.Text, maxSaid))}
			}
			return tool.Output{}, err
		}
	}
	t.tell(r)
	return r.output()
}

// tell writes what was not answered, and why, behind what the server says.
func (t *talk) tell(r *rendering) {
	for _, why := range t.notes() {
		r.line("[%s: %s]", t.v.name, why)
	}
}

// asksBack refuses a result that is a question.
func (v *life) asksBack() error {
	return answered{fault.New(fault.Denied, "%s asks for something before it answers that it was not told it could ask for", v.name).
		WithHint("see \"What a server may ask\" in docs/mcp.md")}
}

func (v *life) listResources(ctx context.Context, cursor string) (tool.Output, error) {
	res, err := v.cs.ListResources(ctx, &mcp.ListResourcesParams{Cursor: cursor})
	if err != nil {
		return tool.Output{}, err
	}
	var templates []*mcp.ResourceTemplate
	if cursor == "" { // they are few; a server without any may not know of them
		if t, err := v.cs.ListResourceTemplates(ctx, &mcp.ListResourceTemplatesParams{}); err == nil {
			templates = t.ResourceTemplates
		} else if ctx.Err() != nil {
			return tool.Output{}, err
		}
	}
	return listed(struct {
		Resources []*mcp.Resource         `json:"resources"`
		Templates []*mcp.ResourceTemplate `json:"templates,omitempty"`
		Next      string                  `json:"next_cursor,omitempty"`
	}{res.Resources, templates, res.NextCursor})
}

func listed(v any) (tool.Output, error) {
	b, err := json.Marshal(v)
	return tool.Output{JSON: b}, err
}

// rendering makes text of what a server answers. What is no text is kept as bytes, and the
// text names it.
type rendering struct {
	ctx   context.Context //nolint:containedctx // of the call it renders
	keep  func(ctx context.Context, b []byte) (handle string, err error)
	text  strings.Builder
	parts []string
	err   error
}

func (r *rendering) line(format string, args ...any) {
	if r.text.Len() > 0 && !strings.HasSuffix(r.text.String()[max(0, r.text.Len()-1):], "\n") {
		r.text.WriteByte('\n')
	}
	fmt.Fprintf(&r.text, format, args...)
}

func (r *rendering) output() (tool.Output, error) {
	if r.err != nil {
		return tool.Output{}, answered{fault.New(fault.Unknown, "it answered, but its answer could not be kept: %w", r.err)}
	}
	return tool.Output{Text: r.text.String(), Kept: r.parts}, nil
}

func (r *rendering) result(res *mcp.CallToolResult) {
	for _, c := range res.Content {
		r.content(c)
	}
	if res.StructuredContent == nil {
		return
	}
	raw, err := json.Marshal(res.StructuredContent)
	if err != nil {
		r.err = err
		return
	}
	if same(r.text.String(), raw) {
		return // a server that speaks to older clients too says it twice
	}
	if r.text.Len() > 0 {
		r.line("[structured]\n")
	}
	r.text.Write(raw)
}

// same reports whether text is the JSON value raw, however it is spaced.
func same(text string, raw []byte) bool {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return false
	}
	again, err := json.Marshal(v)
	return err == nil && bytes.Equal(again, raw)
}

func (r *rendering) content(c mcp.Content) {
	switch c := c.(type) {
	case *mcp.TextContent:
		r.line("%s", c.Text)
	case *mcp.ImageContent:
		r.bytes("image", c.MIMEType, "", c.Data)
	case *mcp.AudioContent:
		r.bytes("audio", c.MIMEType, "", c.Data)
	case *mcp.ResourceLink:
		r.line("[a link: %s]", words(guard.OneLine(c.URI, 1000), guard.OneLine(c.MIMEType, maxExcerpt), guard.OneLine(c.Name+" "+c.Description, 400)))
	case *mcp.EmbeddedResource:
		r.resource(c.Resource)
	default:
		r.line("[something of a kind that is not known]")
	}
}

func (r *rendering) resource(c *mcp.ResourceContents) {
	if c == nil {
		return
	}
	if len(c.Blob) > 0 {
		r.bytes("resource", c.MIMEType, c.URI, c.Blob)
		return
	}
	r.line("[%s]", words("resource", guard.OneLine(c.URI, 1000), guard.OneLine(c.MIMEType, maxExcerpt)))
	r.line("%s", c.Text)
}

// words are those of several that are there.
func words(list ...string) string {
	return strings.Join(strings.Fields(strings.Join(list, " ")), " ")
}

// bytes keeps what is no text, and says what it is.
func (r *rendering) bytes(what, mime, uri string, b []byte) {
	says := words(what, guard.OneLine(mime, maxExcerpt), guard.OneLine(uri, 400))
	switch {
	case r.err != nil:
		return
	case len(r.parts) == maxParts:
		r.line("[%s, %d bytes, not kept: an answer has at most %d such parts]", says, len(b), maxParts)
		return
	case r.keep == nil:
		r.line("[%s, %d bytes]\n%s", says, len(b), base64.StdEncoding.EncodeToString(b))
		return
	}
	handle, err := r.keep(r.ctx, b)
	if err != nil {
		r.err = err
		return
	}
	r.parts = append(r.parts, handle)
	r.line("[%s, %d bytes, kept as %s]", says, len(b), handle)
}
