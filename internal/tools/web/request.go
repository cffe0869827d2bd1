package web

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// maxSent is how much a request may send, in bytes.
const maxSent = 1 << 20

const requestSchema = `{"type":"object","additionalProperties":false,"required":["url"],"properties":{
"url":{"type":"string","minLength":1,"maxLength":4096,"description":"absolute http or https URL"},
"method":{"enum":[METHODS],"description":"default the first"},
"headers":{"type":"object","maxProperties":32,"additionalProperties":{"type":"string","maxLength":4096},"description":"request headers; {{secret:NAME}} in a value stands for a secret that is bound to the host"},
"body":{"type":"string","maxLength":1048576,"description":"what is sent"}}}`

// reading are the methods that change nothing.
var reading = []string{http.MethodGet, http.MethodHead}

// changing are the others that can be used.
var changing = []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

type requestInput struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// answer is what a request came to. A body that is no text is told with marks in it.
type answer struct {
	Status int    `json:"status"`
	URL    string `json:"url"`           // after redirects
	To     string `json:"to,omitempty"`  // where it redirects to, if that was not followed
	Cut    bool   `json:"cut,omitempty"` // the body went on
	Body   string `json:"body"`
}

// baseOf is the scope a request of a method needs.
func baseOf(method string) string {
	if slices.Contains(reading, method) {
		return "net.fetch"
	}
	return "net.post"
}

// getDefinition is of requests that can be made again without harm.
func (w *Web) getDefinition() tool.Definition {
	d := requesting(reading)
	d.Name, d.Description = "web.get", "Ask a service by GET or HEAD and return its status and body as they are."
	d.ReadOnly, d.Repeat = true, tool.Repeatable
	return d
}

// requestDefinition is of requests that change something.
func (w *Web) requestDefinition() tool.Definition {
	d := requesting(changing)
	d.Name, d.Description = "web.request", "Send something to a service by POST, PUT, PATCH or DELETE and return its status and body."
	return d
}

// asked reads an input; the method is the first if it names none.
func asked(raw json.RawMessage, methods []string) (requestInput, error) {
	in, err := tool.Decode[requestInput](raw)
	if in.Method == "" {
		in.Method = methods[0]
	}
	return in, err
}

func requesting(methods []string) tool.Definition {
	schema := strings.Replace(requestSchema, "METHODS", `"`+strings.Join(methods, `","`)+`"`, 1)
	usual := func(raw json.RawMessage) (requestInput, error) { return asked(raw, methods) }
	return tool.Definition{
		Input: json.RawMessage(schema), Kind: tool.Effect, Within: true, Timeout: timeout, MaxOutput: 8 * maxBytes, Source: label.Untrusted("web"),
		Scopes: func(raw json.RawMessage) ([]scope.Scope, error) {
			in, err := usual(raw)
			if err != nil {
				return nil, err
			}
			u, err := parse(in.URL)
			if err != nil {
				return nil, err
			}
			if len(in.Body) > maxSent {
				return nil, fault.New(fault.Invalid, "the body has %d bytes, at most %d are sent", len(in.Body), maxSent)
			}
			need, err := scope.Of(baseOf(in.Method), u.String())
			if err != nil {
				return nil, err
			}
			h, err := parseHeaders(in.Headers, contentType)
			if err != nil {
				return nil, err
			}
			return h.scopes([]scope.Scope{need})
		},
		Destination: func(raw json.RawMessage) tool.Destination {
			in, _ := usual(raw) // validated
			u, err := parse(in.URL)
			if err != nil {
				return tool.Destination{Name: in.URL}
			}
			return tool.Destination{Readers: label.Anyone, Name: u.Host}
		},
		Summary: func(raw json.RawMessage) string {
			in, _ := usual(raw) // validated
			text := in.Method + " " + tool.Show(in.URL) + shownHeaders(in.Headers)
			if in.Body != "" {
				text += " and the body " + tool.Show(in.Body)
			}
			return text
		},
	}
}

const contentType = "Content-Type"

func (w *Web) requestBy(methods []string) tool.Handler {
	return func(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
		in, err := asked(inv.Input, methods)
		if err != nil {
			return unsaid(err)
		}
		return w.request(ctx, inv, in)
	}
}

func (w *Web) request(ctx context.Context, inv tool.Invocation, in requestInput) (tool.Output, error) {
	u, err := parse(in.URL)
	if err != nil {
		return unsaid(err)
	}
	h, err := parseHeaders(in.Headers, contentType)
	if err != nil {
		return unsaid(err)
	}
	t, err := w.tripTo(ctx, inv, u, h)
	if err != nil {
		return unsaid(err)
	}
	resp, err := t.do(ctx, w.client, in.Method, u, in.Body, w.agent)
	if err != nil {
		return t.failed(t.sent(in.Method, failed(u, err)))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBytes+1))
	if err != nil {
		return t.failed(t.sent(in.Method, failed(u, err)))
	}
	return t.answered(resp, body)
}

func (t *trip) answered(resp *http.Response, body []byte) (tool.Output, error) {
	out := answer{Status: resp.StatusCode, URL: resp.Request.URL.String(), Cut: len(body) > maxBytes}
	out.Body = strings.ToValidUTF8(fault.Cut(string(body), maxBytes), "\uFFFD")
	if t.refused != nil {
		out.To = t.refused.String()
	}
	raw, err := json.Marshal(out)
	lab := t.label()
	return tool.Output{JSON: raw, Label: &lab}, err
}

// sent is the error of a request. One that changes something and had a connection may
// have arrived: then nobody can tell what it did.
func (t *trip) sent(method string, err error) error {
	if !t.reached.Load() || slices.Contains(reading, method) {
		return err
	}
	return fault.New(fault.Unknown, "%w; whether the request arrived cannot be told", err)
}
