package model

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
)

const (
	// maxAnswer is the most we read of one answer, framing included. No real one
	// comes near; a server gone wild must not fill the memory.
	maxAnswer = 32 << 20
	maxError  = 64 << 10
)

// Exchange is what one HTTP exchange looked like underneath an SDK: status and
// headers, which SDKs do not hand on, and whether the stream was announced done.
type Exchange struct {
	Status     int // 0 if no answer came
	Header     http.Header
	RetryAfter time.Duration
	secrets    []string // what the request proved itself with
}

// hidden stands where a key was.
const hidden = "(hidden)"

// Hide takes the key of the request out of what the other side said: some servers
// repeat it in their refusal, and from there it would go into the reply, the
// record and every export.
func (e *Exchange) Hide(text string) string {
	for _, s := range e.secrets {
		for _, form := range []string{s, url.QueryEscape(s), base64.StdEncoding.EncodeToString([]byte(s))} {
			text = strings.ReplaceAll(text, form, hidden)
		}
	}
	return text
}

// minSecret is the length below which a key is no secret but a placeholder, such
// as local servers want, that may be part of any word.
const minSecret = 8

func secretsOf(h http.Header) []string {
	var out []string
	for _, name := range []string{"Authorization", "X-Api-Key"} {
		for _, v := range h.Values(name) {
			if fields := strings.Fields(v); len(fields) > 0 && len(fields[len(fields)-1]) >= minSecret {
				out = append(out, fields[len(fields)-1])
			}
		}
	}
	return out
}

type exchangeKey struct{}

// WithExchange returns a context whose next request through a client of
// NewHTTPClient is noted in the Exchange. Reading it is safe once the SDK's call
// has returned.
func WithExchange(ctx context.Context) (context.Context, *Exchange) {
	e := &Exchange{}
	return context.WithValue(ctx, exchangeKey{}, e), e
}

// NewHTTPClient returns the client that adapters give to their SDK. It reaches
// host and port of base and nothing else, directly: no redirect is followed and no
// proxy taken from the environment, so a key goes to the address it is configured
// for and nowhere else. How long an answer may take is for the context to say.
func NewHTTPClient(base string, now func() time.Time) (*http.Client, error) {
	egress, err := guard.ForOrigin(base)
	if err != nil {
		return nil, err
	}
	client := guard.HTTPClient(guard.HTTPConfig{Egress: egress, Timeout: -1, MaxBody: -1, MaxRedirects: -1})
	client.Transport = &noting{base: client.Transport, now: now}
	return client, nil
}

type noting struct {
	base http.RoundTripper
	now  func() time.Time
}

func (t *noting) RoundTrip(req *http.Request) (*http.Response, error) {
	e, noted := req.Context().Value(exchangeKey{}).(*Exchange)
	if noted {
		e.secrets = secretsOf(req.Header)
	}
	res, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if noted {
		e.Status, e.Header, e.RetryAfter = res.StatusCode, res.Header, retryAfter(res.Header, t.now())
	}
	limit := int64(maxAnswer)
	if res.StatusCode < 200 || res.StatusCode > 299 {
		limit = maxError
	}
	if res.StatusCode >= 300 && res.StatusCode < 400 { // an SDK would try to read an answer out of it
		_ = res.Body.Close()
		res.Body = io.NopCloser(bytes.NewReader(nil))
	}
	res.Body = &bounded{ReadCloser: res.Body, left: limit, cut: limit == maxError}
	return res, nil
}

// CloseIdleConnections lets http.Client.CloseIdleConnections through.
func (t *noting) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// bounded ends a body after left bytes: an error text is cut, an answer fails.
type bounded struct {
	io.ReadCloser
	left int64
	cut  bool
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		if b.cut {
			return 0, io.EOF
		}
		return 0, fault.New(fault.Invalid, "the answer is larger than %d MiB", maxAnswer>>20)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
