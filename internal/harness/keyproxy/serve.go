package keyproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
)

// ServeHTTP forwards a request with a token that is lent to what it stands for.
func (b *Broker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !b.enter() {
		return
	}
	defer b.active.Done()
	l, no := b.admit(r)
	from := http.NewResponseController(w)
	if no != nil {
		_ = from.SetReadDeadline(time.Now().Add(b.patience)) // the server reads what is left before it answers; a connection takes deadlines
		no.write(w, r)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	r = r.WithContext(ctx)
	r.Body = &prompt{http.MaxBytesReader(w, r.Body, maxBody), from, b.patience}
	l.proxy.ServeHTTP(final{w}, r)
}

// prompt is a body whose sender is waited for only so long: connections are few, and
// anybody on this machine can open them.
type prompt struct {
	io.ReadCloser
	from *http.ResponseController
	wait time.Duration
}

func (b *prompt) Read(p []byte) (int, error) {
	if err := b.from.SetReadDeadline(time.Now().Add(b.wait)); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = unfinished
	case err != nil: // whole: the answer may take as long as it likes
		_ = b.from.SetReadDeadline(time.Time{}) // the next read would tell
	}
	return n, err
}

// admit finds what a request may be forwarded with.
func (b *Broker) admit(r *http.Request) (*Loan, *refusal) {
	switch {
	case r.Method == http.MethodConnect, r.URL.IsAbs(), r.URL.Host != "", r.URL.Opaque != "":
		return nil, &refusal{http.StatusBadRequest, "this is no forward proxy"}
	case r.Host != b.Address():
		return nil, &refusal{http.StatusMisdirectedRequest, "this host is not the one that was asked for"}
	case r.ContentLength > maxBody:
		return nil, tooLong
	}
	given := credentials(r)
	var l *Loan
	if len(given) == 1 { // two would be a question of which one counts
		l = b.loan(given[0])
	}
	if l == nil {
		return nil, &refusal{http.StatusUnauthorized, "this is the token of no run, or its run has ended"}
	}
	if !below(l.base.Path, r.URL.EscapedPath()) {
		return nil, &refusal{http.StatusNotFound, fmt.Sprintf("this path is not below %s/, or can be read in two ways", l.base.Path)}
	}
	return l, nil
}

// What a client can show a credential in.
var (
	keyHeaders = []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Api-Key", "Proxy-Authorization", "Cookie"}
	keyQueries = []string{"key", "api_key", "api-key", "apikey", "access_token", "oauth_token"}
)

// credentials are the different ones of a request, where the programs put them.
func credentials(r *http.Request) (out []string) {
	add := func(values ...string) {
		for _, v := range values {
			if v != "" && !slices.Contains(out, v) {
				out = append(out, v)
			}
		}
	}
	for _, v := range r.Header.Values("Authorization") {
		scheme, token, _ := strings.Cut(v, " ")
		if !strings.EqualFold(scheme, "bearer") {
			token = v // of a kind that opens nothing here
		}
		add(strings.TrimSpace(token))
	}
	add(r.Header.Values("X-Api-Key")...)
	add(r.Header.Values("X-Goog-Api-Key")...)
	add(r.URL.Query()["key"]...)
	return out
}

// reverse is the way to the API of a loan.
func (l *Loan) reverse(client *http.Client) http.Handler {
	p := guard.ReverseProxy(client)
	p.Rewrite, p.ModifyResponse, p.ErrorHandler = l.rewrite, l.answered, l.failed
	p.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // an answer that is cut off is cut off for the client too
	return p
}

// rewrite makes the request that is sent: to the one address, with the one credential.
// What is between the client and us is gone already.
func (l *Loan) rewrite(pr *httputil.ProxyRequest) {
	out := pr.Out
	out.URL.Scheme, out.URL.Host, out.Host = l.base.Scheme, l.base.Host, ""
	query, dropped := out.URL.Query(), false
	for name := range query {
		if slices.Contains(keyQueries, strings.ToLower(name)) {
			delete(query, name)
			dropped = true
		}
	}
	if dropped {
		out.URL.RawQuery = query.Encode()
	}
	for _, name := range keyHeaders {
		out.Header.Del(name)
	}
	for _, name := range []string{"Connection", "Upgrade", "Te", "Expect", "Trailer"} { // no other protocol is spoken, and we answer ourselves
		out.Header.Del(name)
	}
	out.Trailer = nil
	out.Header.Set("Accept-Encoding", "identity") // so that the key can be looked for in what comes back
	switch l.place {
	case XAPIKey:
		out.Header.Set("X-Api-Key", l.key)
	case XGoogAPIKey:
		out.Header.Set("X-Goog-Api-Key", l.key)
	default:
		out.Header.Set("Authorization", "Bearer "+l.key)
	}
}

// refusal is an answer of our own.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

var (
	tooLong    = &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("the request is longer than %d MiB", maxBody>>20)}
	unfinished = &refusal{http.StatusBadRequest, "the request did not come to its end"}
)

// answered looks at an answer before any of it goes to the client. The key is taken out,
// in whatever spelling ombud knows of it, and so is what would lead the client elsewhere.
func (l *Loan) answered(resp *http.Response) error {
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		return &refusal{http.StatusBadGateway, "the API changes the protocol unasked"}
	case resp.StatusCode >= 300 && resp.StatusCode < 400 && resp.StatusCode != http.StatusNotModified:
		return &refusal{http.StatusBadGateway, "the API at " + l.base.Host + " sends to another address, which is not followed: check base_url of this coding agent in ombud's configuration"}
	}
	for _, name := range []string{"Set-Cookie", "Alt-Svc", "Trailer", "Location"} {
		resp.Header.Del(name)
	}
	for _, values := range resp.Header {
		for i, v := range values {
			values[i] = l.hide.String(v)
		}
	}
	encoding := resp.Header.Get("Content-Encoding")
	plain := encoding == "" || strings.EqualFold(encoding, "identity")
	switch {
	case resp.Request.Method == http.MethodHead, resp.ContentLength == 0:
	case !plain && resp.StatusCode >= 400:
		// An error may repeat the key, and this one cannot be looked through.
		_ = resp.Body.Close() // nothing of it is used
		raw := document(dialectOf(resp.Request), &refusal{resp.StatusCode, "the API answers " + resp.Status})
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
		resp.Header.Set("Content-Type", "application/json")
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	case plain:
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
		resp.Body = &noTrailers{l.hide.Reader(resp.Body), resp}
	}
	return nil
}

// noTrailers leaves out the fields that follow a body.
type noTrailers struct {
	io.ReadCloser
	resp *http.Response
}

func (b *noTrailers) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.resp.Trailer = nil
	}
	return n, err
}

// failed answers a request that came to nothing.
func (l *Loan) failed(w http.ResponseWriter, r *http.Request, err error) {
	no, ours := errors.AsType[*refusal](err)
	_, long := errors.AsType[*http.MaxBytesError](err)
	switch {
	case ours:
	case long:
		no = tooLong
	case l.ctx.Err() != nil:
		no = &refusal{http.StatusUnauthorized, "the run has ended"}
	case r.Context().Err() != nil:
		no = unfinished // or its client has gone, and nobody reads this
	default:
		no = &refusal{http.StatusBadGateway, "the API at " + l.base.Host + " is not reached"}
		l.broker.cfg.Logger.Warn("the API of a coding agent is not reached", "host", l.base.Host, "run", l.owner, "error", l.hide.Error(err))
		if fault.Is(err, fault.Denied) {
			no.text += ": " + err.Error()
		}
	}
	no.write(w, r)
}

// final hands on no answers that are not the last, which nobody has looked at.
type final struct{ http.ResponseWriter }

func (f final) WriteHeader(status int) {
	if status >= 200 {
		f.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap lets what comes be handed on at once.
func (f final) Unwrap() http.ResponseWriter { return f.ResponseWriter }
