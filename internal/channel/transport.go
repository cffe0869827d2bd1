package channel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/outbox"
)

// Client returns an HTTP client that reaches one server and whose errors say whether a
// request can have arrived: it is Unavailable if nothing of it was sent. timeout is of one
// request with its answer; max bounds an answer, in bytes.
func Client(base string, timeout time.Duration, max int64) (*http.Client, error) {
	egress, err := guard.ForOrigin(base)
	if err != nil {
		return nil, err
	}
	c := guard.HTTPClient(guard.HTTPConfig{Egress: egress, Timeout: timeout, MaxBody: max, MaxRedirects: -1})
	c.Transport = telling{c.Transport}
	return c, nil
}

// telling is a transport whose errors say whether the request was sent.
type telling struct{ base http.RoundTripper }

func (t telling) RoundTrip(req *http.Request) (*http.Response, error) {
	var written atomic.Bool
	trace := &httptrace.ClientTrace{
		// It takes another connection only if nothing was written to the one before, or if the
		// request may be repeated; then a connection that died unseen says nothing of this try.
		GetConn: func(string) { written.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { written.Store(true) },
	}
	resp, err := t.base.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil && !written.Load() {
		return nil, fault.New(fault.Unavailable, "%s was not reached: %w", req.URL.Host, err)
	}
	return resp, err
}

func (t telling) CloseIdleConnections() {
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Refused is the error of an answer that is no success: what the network said, and by its
// status what became of the message. wait is what it asks to wait for, if it does. A
// status of 5xx other than 503 proves nothing: what is behind a gateway may have done it.
func Refused(status int, wait time.Duration, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable && wait > 0:
		return &outbox.RetryAfter{After: max(wait, time.Second), Err: fault.New(fault.Unavailable, "%s", what)}
	case status == http.StatusServiceUnavailable, status == http.StatusUnauthorized:
		return fault.New(fault.Unavailable, "%s", what)
	case status == http.StatusForbidden:
		return fault.New(fault.Denied, "%s", what)
	case status == http.StatusNotFound:
		return fault.New(fault.NotFound, "%s", what)
	case status >= 400 && status < 500:
		return fault.New(fault.Invalid, "%s", what)
	}
	return fault.New(fault.Unknown, "%s", what)
}

// RetryAfter reads the header of that name, in seconds.
func RetryAfter(h http.Header) time.Duration {
	s, err := strconv.ParseFloat(h.Get("Retry-After"), 64)
	if err != nil || s < 0 || s > 24*3600 {
		return 0
	}
	return time.Duration(s * float64(time.Second))
}

// ReadAll reads an answer whole and closes it. One that was cut proves nothing of what was
// done; one that is too long neither.
func ReadAll(resp *http.Response, max int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(resp.Body, max+1))
	err = errors.Join(err, resp.Body.Close())
	switch {
	case err != nil:
		return nil, fault.New(fault.Unknown, "the answer was cut: %w", err)
	case int64(len(data)) > max:
		return nil, fault.New(fault.Unknown, "the answer has more than %d bytes", max)
	}
	return data, nil
}

// Rows is a list of which is left out what cannot be decoded: one thing of a shape that is not
// known hides no other.
type Rows[T any] []T

// UnmarshalJSON reads a list, or null.
func (r *Rows[T]) UnmarshalJSON(data []byte) error {
	var all []json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	*r = Decoded[T](all)
	return nil
}

// Decoded are those of a list that can be decoded.
func Decoded[T any](all []json.RawMessage) []T {
	out := make([]T, 0, len(all))
	for _, one := range all {
		var v T
		if json.Unmarshal(one, &v) == nil {
			out = append(out, v)
		}
	}
	return out
}

// Wait waits by the clock, or returns why ctx has ended.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
