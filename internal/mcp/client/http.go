package client

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/secret"
)

// remote prepares a connection to a server over HTTP. Nothing is sent yet.
func (x *server) remote(sp *Spec, v *life, t *handed) error {
	client, err := x.s.webClient(sp)
	if err != nil {
		return err
	}
	v.idle = client
	transport := &mcp.StreamableClientTransport{
		Endpoint: sp.URL, HTTPClient: client, MaxRetries: 3, OAuthHandler: &bearer{x: x}, MaxEventSize: maxLine,
	}
	t.make = transport.Connect
	return nil
}

// webClient is what reaches a server: at its own address, public unless the operator said
// otherwise, without following it elsewhere, for it is sent keys.
func (s *Servers) webClient(sp *Spec) (*http.Client, error) {
	egress, err := guard.ForOrigin(sp.URL)
	if err == nil && !sp.Private {
		egress, err = publicOrigin(sp.URL)
	}
	if err != nil {
		return nil, err
	}
	client := guard.HTTPClient(guard.HTTPConfig{Egress: egress, Timeout: -1, MaxBody: -1, MaxRedirects: -1})
	client.Transport = &sender{base: client.Transport, headers: sp.Headers, secret: s.Secret}
	return client, nil
}

// publicOrigin reaches one host of the public internet.
func publicOrigin(base string) (*guard.Egress, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fault.New(fault.Invalid, "%w", err)
	}
	host, port := u.Hostname(), u.Port()
	if port == "" {
		if port = "443"; u.Scheme == "http" {
			port = "80"
		}
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return guard.NewEgress(guard.EgressConfig{OnlyHosts: []string{host + ":" + port}})
}

// sender sends a request with the headers the operator named, notes when it is on its way,
// and bounds an answer that is not a stream.
type sender struct {
	base    http.RoundTripper
	headers map[string]string
	secret  func(ctx context.Context, name string) (secret.Value, error)
}

// CloseIdleConnections lets http.Client close what is not needed any more.
func (s *sender) CloseIdleConnections() {
	if c, ok := s.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip implements http.RoundTripper.
func (s *sender) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if told, ok := ctx.Value(toldKey{}).(*atomic.Bool); ok {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { told.Store(true) }})
	}
	body := req.Body
	req = req.Clone(ctx)
	for _, name := range slices.Sorted(maps.Keys(s.headers)) {
		value, err := s.fill(req, s.headers[name])
		if err != nil {
			if body != nil {
				_ = body.Close() // the refusal is the error to tell
			}
			return nil, fmt.Errorf("the header %s: %w", name, err)
		}
		req.Header.Set(name, value)
	}
	resp, err := s.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(strings.ToLower(resp.Header.Get("Content-Type")), "text/event-stream") {
		resp.Body = &bounded{ReadCloser: resp.Body, left: maxLine}
	}
	return resp, nil
}

// fill puts the values of secrets into a header. A secret that is bound to hosts goes to
// those only.
func (s *sender) fill(req *http.Request, value string) (string, error) {
	text, err := secret.ParseText(value)
	if err != nil {
		return "", err
	}
	filled, err := text.Fill(func(name string) (secret.Value, error) {
		v, err := s.secret(req.Context(), name)
		if err != nil {
			return v, err
		}
		return v, v.For(req.URL)
	})
	if err == nil && strings.ContainsAny(filled, "\r\n\x00") {
		return "", fault.New(fault.Invalid, "its secret has line ends")
	}
	return filled, err
}

// bounded ends with an error where a body is over its limit.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, fault.New(fault.Invalid, "an answer of more than %d bytes", maxLine)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	b.left -= int64(n)
	return n, err
}
