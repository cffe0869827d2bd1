// Package web is the tool web.fetch: one GET of a public page, as text; and the tools
// web.get and web.request, by which loops and recipes talk to services.
//
// The HTTP client it is given guards every address; this package adds nothing to
// that and goes around nothing of it. What policy allowed is one URL: a redirect
// is followed only if policy allows its target as well, else the target is the
// answer and the caller may ask for it by name.
//
// A header may name secrets; see headers.go for where their values go.
package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

const (
	timeout      = 60 * time.Second
	defaultBytes = 512 << 10
	maxBytes     = 4 << 20
	maxHops      = 5
)

// Web is the tool.
type Web struct {
	client  *http.Client
	agent   string
	secrets Secrets
}

// New returns a fetcher over client, which has to guard where connections go. It
// calls itself agent, for example "ombud/1.0". secrets may be nil: then there are none.
func New(client *http.Client, agent string, secrets Secrets) *Web {
	return &Web{client: client, agent: agent, secrets: secrets}
}

// Register makes the tool known to r.
func (w *Web) Register(r *tool.Registry) error {
	return errors.Join(r.Add(w.definition(), w.fetch), r.Add(w.getDefinition(), w.requestBy(reading)), r.Add(w.requestDefinition(), w.requestBy(changing)))
}

const schema = `{"type":"object","additionalProperties":false,"required":["url"],"properties":{
"url":{"type":"string","minLength":1,"maxLength":4096,"description":"absolute http or https URL"},
"max_bytes":{"type":"integer","minimum":1,"maximum":4194304,"description":"most bytes to take of the page, default 524288"},
"headers":{"type":"object","maxProperties":16,"additionalProperties":{"type":"string","maxLength":4096},"description":"request headers; {{secret:NAME}} in a value stands for a secret that is bound to the host"}}}`

type input struct {
	URL      string            `json:"url"`
	MaxBytes int64             `json:"max_bytes"`
	Headers  map[string]string `json:"headers"`
}

func (w *Web) definition() tool.Definition {
	return tool.Definition{
		Name: "web.fetch",
		Description: "Fetch one public web page or text file by GET and return it as text. The first line says status and address. " +
			"A redirect that is not followed is named; call again with its target.",
		Input: json.RawMessage(schema), Kind: tool.Effect, ReadOnly: true, Repeat: tool.Repeatable,
		Timeout: timeout, MaxOutput: 2 * maxBytes, Source: label.Untrusted("web"),
		Scopes: func(raw json.RawMessage) ([]scope.Scope, error) {
			in, err := tool.Decode[input](raw)
			if err != nil {
				return nil, err
			}
			u, err := parse(in.URL)
			if err != nil {
				return nil, err
			}
			need, err := scope.Of("net.fetch", u.String())
			if err != nil {
				return nil, err
			}
			h, err := parseHeaders(in.Headers)
			if err != nil {
				return nil, err
			}
			return h.scopes([]scope.Scope{need})
		},
		// A URL can carry anything to the host, and to whoever watches its log.
		Destination: func(raw json.RawMessage) tool.Destination {
			in, _ := tool.Decode[input](raw) // validated
			u, err := parse(in.URL)
			if err != nil {
				return tool.Destination{Name: in.URL}
			}
			to := tool.Destination{Readers: label.Anyone, Name: u.Host}
			if len(in.Headers) == 0 {
				to.Sends = u.String() // and nothing else
			}
			return to
		},
		Summary: func(raw json.RawMessage) string {
			in, _ := tool.Decode[input](raw) // validated; an empty URL is shown as ""
			return "fetch " + tool.Show(in.URL) + shownHeaders(in.Headers)
		},
	}
}

// parse reads a URL with the parser of the HTTP client, so that what is decided
// on is what is connected to.
func parse(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fault.New(fault.Invalid, "%s is not a URL", tool.Show(text))
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fault.New(fault.Invalid, "%s must start with http:// or https://", tool.Show(text))
	case u.Hostname() == "" || u.Opaque != "":
		return nil, fault.New(fault.Invalid, "%s names no host", tool.Show(text))
	case u.User != nil:
		return nil, fault.New(fault.Invalid, "%s holds a user name; that is not supported", tool.Show(text))
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

func (w *Web) fetch(ctx context.Context, inv tool.Invocation) (tool.Output, error) {
	in, err := tool.Decode[input](inv.Input)
	if err != nil {
		return unsaid(err)
	}
	u, err := parse(in.URL)
	if err != nil {
		return unsaid(err)
	}
	limit := min(in.MaxBytes, maxBytes)
	if limit <= 0 {
		limit = defaultBytes
	}
	h, err := parseHeaders(in.Headers)
	if err != nil {
		return unsaid(err)
	}
	t, err := w.tripTo(ctx, inv, u, h)
	if err != nil {
		return unsaid(err)
	}
	resp, err := t.do(ctx, w.client, http.MethodGet, u, "", w.agent)
	if err != nil {
		return t.failed(failed(u, err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return t.failed(failed(u, err))
	}
	lab := t.label()
	return tool.Output{Text: t.text(resp, body, int(limit)), Label: &lab}, nil
}

// trip is one fetch with its redirects.
type trip struct {
	inv      tool.Invocation
	hosts    []string       // whose words are in the answer
	audience label.Audience // who may read it
	reached  atomic.Bool    // there was a connection to send on
	heard    atomic.Bool    // the other side could say something, be it in a certificate
	refused  *url.URL       // the redirect that was not followed
	why      error
	headers  http.Header // what the call asked for, with the values of secrets
}

func (w *Web) tripTo(ctx context.Context, inv tool.Invocation, u *url.URL, h headers) (*trip, error) {
	filled, err := w.fill(ctx, inv, u, h)
	return &trip{inv: inv, hosts: []string{u.Host}, audience: label.Anyone, headers: filled}, err
}

func (t *trip) do(ctx context.Context, guarded *http.Client, method string, u *url.URL, body, agent string) (*http.Response, error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{TLSHandshakeStart: func() { t.heard.Store(true) }, GotConn: t.connected})
	var sent io.Reader // with none, a request says that it has no body
	if body != "" {
		sent = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), sent)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", agent)
	req.Header.Set("Accept", "text/html, text/plain;q=0.9, application/json;q=0.9, */*;q=0.1")
	client := *guarded
	client.Jar = nil
	if len(t.headers) > 0 {
		if client.Transport == nil { // the system's own, which no guard stands before
			return nil, fault.New(fault.Internal, "fetch with headers through a client that is not guarded")
		}
		client.Transport = &homebound{base: client.Transport, home: u, headers: t.headers}
	}
	client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		if guarded.CheckRedirect != nil {
			if err := guarded.CheckRedirect(next, via); err != nil {
				return err
			}
		}
		return t.redirected(ctx, next, len(via))
	}
	return client.Do(req)
}

// connected notes that the page came from a network that is not public: then what
// it says is not for everybody.
func (t *trip) connected(info httptrace.GotConnInfo) {
	t.reached.Store(true)
	t.heard.Store(true)
	addr, err := netip.ParseAddrPort(info.Conn.RemoteAddr().String())
	if ip := addr.Addr().Unmap(); err != nil || !ip.IsGlobalUnicast() || ip.IsPrivate() {
		t.audience = label.OperatorOnly
	}
}

// redirected follows a redirect if policy allows its target.
func (t *trip) redirected(ctx context.Context, next *http.Request, hops int) error {
	u, err := parse(next.URL.String())
	if err == nil && hops > maxHops {
		err = fault.New(fault.Invalid, "after %d redirects", maxHops)
	}
	var need scope.Scope
	if err == nil {
		need, err = scope.Of(baseOf(next.Method), u.String())
	}
	if err == nil {
		err = t.inv.Allows(ctx, need)
	}
	if err != nil {
		t.refused, t.why = next.URL, err
		return http.ErrUseLastResponse
	}
	t.hosts = append(t.hosts, u.Host)
	return nil
}

// failed is the output of a trip that came to no answer.
func (t *trip) failed(err error) (tool.Output, error) {
	if t.heard.Load() {
		return tool.Output{}, err // which may repeat what the other side said
	}
	return unsaid(err)
}

// unsaid is the output of a call that nobody outside has heard of: a context that holds its
// error has read nothing of theirs.
func unsaid(err error) (tool.Output, error) {
	own := label.Of(label.Own, label.OperatorOnly)
	return tool.Output{Label: &own}, err
}

func (t *trip) label() label.Label {
	labels := make([]label.Label, 0, len(t.hosts))
	for _, h := range t.hosts {
		labels = append(labels, label.Of(label.Untrusted(strings.ToLower(h)), t.audience))
	}
	return label.Join(labels...)
}

func (t *trip) text(resp *http.Response, body []byte, limit int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP %s %s\n", tool.Show(resp.Status), tool.Show(resp.Request.URL.String()))
	if t.refused != nil {
		fmt.Fprintf(&b, "[redirects to %s; not followed: %s. Call again with that URL to go there.]\n", t.refused, t.why)
		return b.String()
	}
	cutShort := len(body) > limit
	if cutShort {
		body = []byte(fault.Cut(string(body), limit))
	}
	text, ok := readable(resp, body, limit)
	if !ok {
		fmt.Fprintf(&b, "[%s, %s: not text, not shown]\n", tool.Show(kindOf(resp, body)), size(resp, body, cutShort))
		return b.String()
	}
	b.WriteString("\n" + text)
	if cutShort {
		fmt.Fprintf(&b, "\n[the page goes on; only its first %d bytes were read]", limit)
	}
	return b.String()
}

func size(resp *http.Response, body []byte, cutShort bool) string {
	switch {
	case !cutShort:
		return fmt.Sprintf("%d bytes", len(body))
	case resp.ContentLength > 0:
		return fmt.Sprintf("%d bytes", resp.ContentLength)
	}
	return fmt.Sprintf("over %d bytes", len(body))
}

// failed classifies an error of the client. The guard's refusals keep their class.
func failed(u *url.URL, err error) error {
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return fmt.Errorf("fetch %s: %w", tool.Show(u.Host), err)
	}
	class := fault.Unavailable
	if c := fault.ClassOf(err); c == fault.Timeout || c == fault.Cancelled {
		class = c
	}
	if ue, ok := errors.AsType[*url.Error](err); ok {
		if ue.Timeout() {
			class = fault.Timeout
		}
		err = ue.Err // without the URL, which may hold a key
	}
	return fault.New(class, "fetch %s: %w", tool.Show(u.Host), err)
}
