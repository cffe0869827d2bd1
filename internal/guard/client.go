package guard

import (
	"io"
	"net/http"
	"net/http/httputil"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// HTTPConfig bounds one HTTP client.
type HTTPConfig struct {
	Egress       *Egress                                             // nil: the public internet only
	Timeout      time.Duration                                       // of a whole request with its body; default 60 s, negative: none
	MaxBody      int64                                               // bytes of one response after decompression; default 16 MiB, negative: no limit
	MaxRedirects int                                                 // default 5; negative: the redirect itself is the response
	Redirect     func(next *http.Request, via []*http.Request) error // may refuse a hop, after the guard; default: none
}

const (
	defaultTimeout   = 60 * time.Second
	defaultMaxBody   = 16 << 20
	defaultRedirects = 5
)

// HTTPClient returns a client that every outgoing request goes through. It checks
// the URL of each hop and the address of each connection, and takes no proxy from
// the environment: a proxy would connect where the guard cannot look. A client
// that sends a key in a header of its own must not follow redirects, because only
// the headers Go knows to be secret are dropped on the way to another host.
func HTTPClient(cfg HTTPConfig) *http.Client {
	if cfg.Timeout == 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = defaultMaxBody
	}
	if cfg.MaxRedirects == 0 {
		cfg.MaxRedirects = defaultRedirects
	}
	base := &http.Transport{
		DialContext:            cfg.Egress.DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           32,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        60 * time.Second,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: 256 << 10,
	}
	return &http.Client{
		Transport:     &guarded{base: base, egress: cfg.Egress, max: cfg.MaxBody},
		Timeout:       max(0, cfg.Timeout),
		CheckRedirect: cfg.checkRedirect,
	}
}

// ReverseProxy returns a reverse proxy whose requests go out as those of a client of
// HTTPClient: its Egress and MaxBody count. It follows no redirect, and hands on each piece
// of an answer as it comes. Its owner sets Rewrite, which says what is sent where.
func ReverseProxy(client *http.Client) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{Transport: client.Transport, FlushInterval: -1}
}

func (cfg HTTPConfig) checkRedirect(next *http.Request, via []*http.Request) error {
	if cfg.MaxRedirects < 0 {
		return http.ErrUseLastResponse
	}
	if len(via) > cfg.MaxRedirects {
		return fault.New(fault.Unavailable, "%s redirects more than %d times", via[0].URL.Host, cfg.MaxRedirects)
	}
	if err := cfg.Egress.CheckURL(next.URL); err != nil {
		return err
	}
	if cfg.Redirect != nil {
		return cfg.Redirect(next, via)
	}
	return nil
}

// guarded checks each request of a client, redirects included, and bounds bodies.
type guarded struct {
	base   *http.Transport
	egress *Egress
	max    int64
}

func (g *guarded) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := g.egress.CheckURL(req.URL); err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // the refusal is the error to tell
		}
		return nil, err
	}
	resp, err := g.base.RoundTrip(req)
	if err == nil && g.max >= 0 && resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = &boundedBody{ReadCloser: resp.Body, left: g.max, max: g.max}
	}
	return resp, err
}

// CloseIdleConnections lets http.Client close what its owner no longer needs.
func (g *guarded) CloseIdleConnections() { g.base.CloseIdleConnections() }

// boundedBody ends with an error, not as if complete, where a body is over its limit.
type boundedBody struct {
	io.ReadCloser
	left, max int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if int64(n) > b.left {
		n = int(b.left)
		err = fault.New(fault.Invalid, "the response is over the limit of %d bytes", b.max)
	}
	b.left -= int64(n)
	return n, err
}
