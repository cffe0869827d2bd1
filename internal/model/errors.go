package model

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
)

// APIError is what a provider said when it did not answer. It is the cause inside
// a classified error.
type APIError struct {
	Provider   string
	Status     int    // HTTP status; 200 if the error came inside a stream
	Kind       string // the provider's own word: overloaded_error, insufficient_quota
	Message    string
	RequestID  string
	RetryAfter time.Duration // 0 if the provider did not say
	Final      bool          // asking the same provider again will not help
}

func (e *APIError) Error() string {
	var b strings.Builder
	b.WriteString(e.Provider)
	if e.Status != http.StatusOK && e.Status != 0 {
		b.WriteString(" answered " + strconv.Itoa(e.Status))
	}
	for _, s := range []string{e.Kind, e.Message} {
		if s != "" {
			b.WriteString(": " + s)
		}
	}
	if e.RequestID != "" {
		b.WriteString(" (request " + e.RequestID + ")")
	}
	return b.String()
}

// RetryAfter returns how long the provider asked us to wait, if it did.
func RetryAfter(err error) (time.Duration, bool) {
	if e, ok := errors.AsType[*APIError](err); ok && e.RetryAfter > 0 {
		return e.RetryAfter, true
	}
	return 0, false
}

// retryable reports whether another attempt at the same provider may help.
func retryable(err error) bool {
	if !fault.Is(err, fault.Unavailable) {
		return false
	}
	e, ok := errors.AsType[*APIError](err)
	return !ok || !e.Final
}

// final lists the kinds that come with a status that usually means "later" but
// stay true until somebody pays.
var final = map[string]bool{
	"insufficient_quota": true, "billing_hard_limit_reached": true, "billing_error": true, "credit_balance_too_low": true,
}

// kinds is for errors inside a stream, which have no status of their own.
var kinds = map[string]int{
	"invalid_request_error": 400, "authentication_error": 401, "invalid_api_key": 401, "billing_error": 402,
	"insufficient_quota": 429, "permission_error": 403, "not_found_error": 404, "request_too_large": 413,
	"rate_limit_error": 429, "rate_limit_exceeded": 429, "timeout_error": 504, "overloaded_error": 529,
}

// Classify turns e into an error of its class. keyHint tells the person where
// the key comes from.
func Classify(e *APIError, keyHint string) error {
	status := e.Status
	if status < 300 {
		status = 500
		if s, ok := kinds[e.Kind]; ok {
			status = s
		}
	}
	e.Final = e.Final || final[e.Kind]
	e.Message = guard.CleanText(e.Message)
	switch {
	case status == 402:
		e.Final = true
		return fault.New(fault.Unavailable, "%w", e).WithHint("the account of %s has no credit left", e.Provider)
	case e.Final && status >= 400:
		return fault.New(fault.Unavailable, "%w", e).WithHint("see the plan and billing of the account at %s", e.Provider)
	case status == 401 || status == 403:
		return fault.New(fault.Denied, "%w", e).WithHint("%s", keyHint)
	case status == 404:
		return fault.New(fault.NotFound, "%w", e).WithHint("check the model's name and the base URL of %s", e.Provider)
	case status < 400:
		return fault.New(fault.Config, "%w", e).WithHint("%s sent us elsewhere, and a key is not sent along: set its base URL to the final address", e.Provider)
	case status == 408 || status == 409 || status == 425 || status == 429 || status >= 500:
		return fault.New(fault.Unavailable, "%w", e)
	}
	return fault.New(fault.Invalid, "%w", e)
}

// ContextError returns the classified error of a context that has ended, or nil
// if ctx is still live. A deadline is told by its name where the context has a
// cause.
func ContextError(ctx context.Context, provider string) error {
	switch err := ctx.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fault.New(fault.Timeout, "%s did not finish its answer in time: %w", provider, context.Cause(ctx))
	default:
		return fault.New(fault.Cancelled, "the request to %s was cancelled: %w", provider, context.Cause(ctx))
	}
}

// Broken returns the error of a connection that failed or ended before the
// answer was complete. doing says at what: "reach", "read the answer of".
func Broken(ctx context.Context, provider, doing string, err error) error {
	if ctxErr := ContextError(ctx, provider); ctxErr != nil {
		return ctxErr
	}
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fault.New(fault.Unavailable, "%s %s: %w", doing, provider, err)
}

// retryAfter reads how long the provider wants us to wait: milliseconds in
// retry-after-ms, else seconds or a date in Retry-After.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("retry-after-ms"), 64); err == nil {
		return seconds(ms / 1000)
	}
	v := strings.TrimSpace(h.Get("retry-after"))
	if s, err := strconv.ParseFloat(v, 64); err == nil {
		return seconds(s)
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

// seconds bounds what a stranger's header can say to 0 … 24 h.
func seconds(s float64) time.Duration {
	const day = 24 * time.Hour
	switch {
	case !(s > 0): // also NaN
		return 0
	case s >= day.Seconds():
		return day
	}
	return time.Duration(s * float64(time.Second))
}
