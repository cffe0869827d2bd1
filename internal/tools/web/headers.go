package web

import (
	"context"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/secret"
	"github.com/ombud-run/ombud/internal/tool"
)

// Secrets gives out values of secrets, at the last moment before they are sent.
type Secrets interface {
	Resolve(ctx context.Context, name string) (secret.Value, error)
}

// headers are those of a call, with names of secrets in the place of values.
type headers map[string]secret.Text

// ours are the headers that a call cannot set: they belong to the connection, or say
// who is asking.
var ours = []string{
	"Host", "Content-Length", "Content-Type", "Transfer-Encoding", "Connection", "Keep-Alive", "Upgrade", "Te", "Trailer", "Expect",
	"User-Agent", "Accept-Encoding", "Proxy-Authorization", "Proxy-Connection", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip",
}

func parseHeaders(in map[string]string, may ...string) (headers, error) {
	out := headers{}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		key := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !httpguts.ValidHeaderFieldName(name):
			return nil, fault.New(fault.Invalid, "%s is not the name of a header", tool.Show(name))
		case slices.Contains(ours, key) && !slices.Contains(may, key):
			return nil, fault.New(fault.Invalid, "the header %s cannot be set", key)
		case !httpguts.ValidHeaderFieldValue(in[name]):
			return nil, fault.New(fault.Invalid, "the value of the header %s has a line end or another control character", key)
		}
		if _, twice := out[key]; twice {
			return nil, fault.New(fault.Invalid, "the header %s is there twice", key)
		}
		text, err := secret.ParseText(in[name])
		if err != nil {
			return nil, err
		}
		out[key] = text
	}
	return out, nil
}

// scopes adds one for every secret that is named.
func (h headers) scopes(need []scope.Scope) ([]scope.Scope, error) {
	for _, key := range slices.Sorted(maps.Keys(h)) {
		for _, name := range h[key].Names() {
			s, err := scope.Of("secret", name)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(need, func(have scope.Scope) bool { return have.String() == s.String() }) {
				need = append(need, s)
			}
		}
	}
	return need, nil
}

// shownHeaders tells a person what is sent beside the URL, secrets by their names.
func shownHeaders(in map[string]string) string {
	if len(in) == 0 {
		return ""
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(in)) {
		list = append(list, tool.Show(name)+": "+tool.Show(in[name]))
	}
	return " with " + strings.Join(list, ", ")
}

// fill puts the values in. A secret goes only to a host it is bound to: the model
// chooses the URL, so one that is bound to none could be sent anywhere.
func (w *Web) fill(ctx context.Context, inv tool.Invocation, u *url.URL, h headers) (http.Header, error) {
	out := http.Header{}
	for key, text := range h {
		value, err := text.Fill(func(name string) (secret.Value, error) { return w.value(ctx, inv, u, name) })
		if err != nil {
			return nil, err
		}
		if !httpguts.ValidHeaderFieldValue(value) {
			return nil, fault.New(fault.Invalid, "a secret of the header %s cannot be sent in a header: it has a line end or another control character", key)
		}
		out.Set(key, value)
	}
	return out, nil
}

func (w *Web) value(ctx context.Context, inv tool.Invocation, u *url.URL, name string) (secret.Value, error) {
	need, err := scope.Of("secret", name)
	if err != nil {
		return secret.Value{}, err
	}
	if err := inv.Allows(ctx, need); err != nil {
		return secret.Value{}, err
	}
	if w.secrets == nil {
		return secret.Value{}, fault.New(fault.NotFound, "there is no secret %s", name)
	}
	v, err := w.secrets.Resolve(ctx, name)
	if err != nil {
		return secret.Value{}, err
	}
	if !v.Bound() {
		return secret.Value{}, fault.New(fault.Denied, "secret %s is bound to no host, so it is not sent to any from here", name).
			WithHint("ombud secret set %s --host %s", name, u.Hostname())
	}
	return v, v.For(u)
}

// homebound adds the headers of a call to requests for the place it was made for:
// scheme, host and port. Once a redirect has led elsewhere they are not sent any
// more, not on a way back either. They are never in the request that the client
// keeps, from which it would copy them to the next hop.
type homebound struct {
	base    http.RoundTripper
	home    *url.URL
	headers http.Header
	left    atomic.Bool
}

func (t *homebound) RoundTrip(req *http.Request) (*http.Response, error) {
	if !sameOrigin(req.URL, t.home) {
		t.left.Store(true)
	}
	if t.left.Load() || len(t.headers) == 0 {
		return t.base.RoundTrip(req)
	}
	with := req.Clone(req.Context())
	maps.Copy(with.Header, t.headers)
	resp, err := t.base.RoundTrip(with)
	if resp != nil {
		resp.Request = req // without them: the answer tells the URL of its request
	}
	return resp, err
}

func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && portOf(a) == portOf(b)
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}
