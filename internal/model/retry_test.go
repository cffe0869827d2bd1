package model

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// answering is a provider that gives its answers one after the other, the last
// one for ever.
type answering struct {
	name    string
	answers []error // nil is an answer
	asked   []time.Time
	models  []string
}

func (a *answering) Name() string { return a.name }

func (a *answering) Generate(ctx context.Context, req Request, sink Sink) (Response, error) {
	err := a.answers[min(len(a.asked), len(a.answers)-1)]
	a.asked = append(a.asked, time.Now())
	a.models = append(a.models, req.Model)
	sink.Send(Delta{Text: "part"})
	if err != nil {
		return Response{}, err
	}
	return Response{Text: "done", Provider: a.name}, nil
}

func busy(after time.Duration) error {
	return Classify(&APIError{Provider: "p", Status: 429, Kind: "rate_limit_error", RetryAfter: after}, "")
}

func TestRetryingWaitsAsLongAsItWasTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &answering{name: "p", answers: []error{busy(7 * time.Second), busy(0), nil}}
		var deltas []Delta
		out, err := Retrying(p, RetryPolicy{}, nil).Generate(t.Context(), Request{}, func(d Delta) { deltas = append(deltas, d) })
		if err != nil || out.Text != "done" {
			t.Fatalf("%+v, %v", out, err)
		}
		first, second := p.asked[1].Sub(p.asked[0]), p.asked[2].Sub(p.asked[1])
		if first < 7*time.Second || first > 8*time.Second {
			t.Errorf("waited %v, was told 7s", first)
		}
		if second < 500*time.Millisecond || second > time.Second {
			t.Errorf("second wait %v, want half to all of 1s", second)
		}
		want := []Delta{{Text: "part"}, {Restart: true}, {Text: "part"}, {Restart: true}, {Text: "part"}}
		if !slices.Equal(deltas, want) {
			t.Errorf("deltas %+v", deltas)
		}
	})
}

func TestRetryingDoesNotRepeatWhatWillNotChange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   error
		class fault.Class
	}{
		{Classify(&APIError{Status: 401}, "key"), fault.Denied},
		{Classify(&APIError{Status: 403}, "key"), fault.Denied},
		{Classify(&APIError{Status: 400}, ""), fault.Invalid},
		{Classify(&APIError{Status: 413}, ""), fault.Invalid},
		{Classify(&APIError{Status: 404}, ""), fault.NotFound},
		{Classify(&APIError{Status: 302}, ""), fault.Config},
		{Classify(&APIError{Status: 402}, ""), fault.Unavailable},
		{Classify(&APIError{Status: 429, Kind: "insufficient_quota"}, ""), fault.Unavailable},
		{Classify(&APIError{Status: 200, Kind: "invalid_request_error"}, ""), fault.Invalid},
		{fault.New(fault.Timeout, "slow"), fault.Timeout},
		{errors.New("a defect"), fault.Internal},
	} {
		p := &answering{name: "p", answers: []error{c.err}}
		_, err := Retrying(p, RetryPolicy{}, nil).Generate(t.Context(), Request{}, nil)
		if len(p.asked) != 1 || fault.ClassOf(err) != c.class {
			t.Errorf("%v: asked %d times, class %s, want %s", c.err, len(p.asked), fault.ClassOf(err), c.class)
		}
	}
}

func TestRetryingGivesUpWithinItsBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		p := &answering{name: "p", answers: []error{busy(0)}}
		_, err := Retrying(p, RetryPolicy{Attempts: 4, Base: time.Second, Max: 2 * time.Second}, nil).Generate(t.Context(), Request{}, nil)
		if !fault.Is(err, fault.Unavailable) || len(p.asked) != 4 {
			t.Errorf("asked %d times, %v", len(p.asked), err)
		}
		if took := time.Since(start); took < 2500*time.Millisecond || took > 5*time.Second {
			t.Errorf("waits of 1, 2 and 2 s with jitter took %v", took)
		}

		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start, p = time.Now(), &answering{name: "p", answers: []error{busy(30 * time.Second)}}
		_, err = Retrying(p, RetryPolicy{}, nil).Generate(ctx, Request{}, nil)
		if !fault.Is(err, fault.Unavailable) || len(p.asked) != 1 || time.Since(start) != 0 {
			t.Errorf("a wait past the deadline was begun: asked %d, after %v, %v", len(p.asked), time.Since(start), err)
		}

		p = &answering{name: "p", answers: []error{busy(time.Hour)}}
		if _, err = Retrying(p, RetryPolicy{}, nil).Generate(t.Context(), Request{}, nil); !fault.Is(err, fault.Unavailable) || len(p.asked) != 1 {
			t.Errorf("an hour was waited for: asked %d, %v", len(p.asked), err)
		}
	})
}

func TestRetryingStopsWhenCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := &answering{name: "p", answers: []error{busy(30 * time.Second)}}
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		_, err := Retrying(p, RetryPolicy{}, nil).Generate(ctx, Request{}, nil)
		if !fault.Is(err, fault.Cancelled) || time.Since(start) != time.Second || len(p.asked) != 1 {
			t.Errorf("after %v, asked %d: %v", time.Since(start), len(p.asked), err)
		}
	})
}

func TestRetryAfterIsReadInAllItsForms(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		want        time.Duration
	}{
		{"retry-after", "3", 3 * time.Second},
		{"retry-after", "0.5", 500 * time.Millisecond},
		{"retry-after", "Sun, 01 Mar 2026 12:00:09 GMT", 9 * time.Second},
		{"retry-after", "Sun, 01 Mar 2026 11:00:00 GMT", 0},
		{"retry-after", "-4", 0},
		{"retry-after", "NaN", 0},
		{"retry-after", "soon", 0},
		{"retry-after", "1e300", 24 * time.Hour},
		{"retry-after-ms", "250", 250 * time.Millisecond},
		{"retry-after-ms", "", 0},
	} {
		h := http.Header{}
		h.Set(c.name, c.value)
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("%s: %s is %v, want %v", c.name, c.value, got, c.want)
		}
	}
	both := http.Header{}
	both.Set("retry-after", "2")
	both.Set("retry-after-ms", "1500")
	if got := retryAfter(both, now); got != 1500*time.Millisecond {
		t.Errorf("the finer header does not win: %v", got)
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("3", "")
	f.Add("Sun, 01 Mar 2026 12:00:09 GMT", "1e400")
	f.Fuzz(func(t *testing.T, s, ms string) {
		h := http.Header{"Retry-After": {s}, "Retry-After-Ms": {ms}}
		if d := retryAfter(h, time.Unix(1e9, 0)); d < 0 {
			t.Fatalf("%q, %q: %v", s, ms, d)
		}
	})
}

func TestFallbackHelpsOnlyWhenUnavailable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first error
		want  fault.Class
		asks  int
	}{
		{nil, "", 0},
		{busy(0), "", 1},
		{Classify(&APIError{Status: 429, Kind: "insufficient_quota"}, ""), "", 1},
		{Classify(&APIError{Status: 401}, ""), fault.Denied, 0},
		{Classify(&APIError{Status: 400}, ""), fault.Invalid, 0},
		{fault.New(fault.Timeout, "slow"), fault.Timeout, 0},
		{fault.New(fault.Cancelled, "stop"), fault.Cancelled, 0},
	} {
		a, b := &answering{name: "a", answers: []error{c.first}}, &answering{name: "b", answers: []error{nil}}
		p, err := Fallback(Link{Provider: a, Model: "m1"}, Link{Provider: b, Model: "m2"})
		if err != nil {
			t.Fatal(err)
		}
		out, err := p.Generate(t.Context(), Request{}, nil)
		if fault.ClassOf(err) != c.want || len(b.asked) != c.asks {
			t.Errorf("after %v: second asked %d times, %v", c.first, len(b.asked), err)
		}
		if c.asks == 1 && (out.Provider != "b" || b.models[0] != "m2" || a.models[0] != "m1") {
			t.Errorf("answered by %q with models %v and %v", out.Provider, a.models, b.models)
		}
	}
}

func TestFallbackTellsEveryFailure(t *testing.T) {
	t.Parallel()
	a, b := &answering{name: "a", answers: []error{busy(0)}}, &answering{name: "b", answers: []error{Classify(&APIError{Provider: "b", Status: 529}, "")}}
	p, err := Fallback(Link{Provider: a}, Link{Provider: b})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Generate(t.Context(), Request{}, nil)
	if want := "no model of the chain answered: p answered 429: rate_limit_error: b answered 529"; !fault.Is(err, fault.Unavailable) || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestFallbackKeepsDataAsClose(t *testing.T) {
	t.Parallel()
	p := &answering{name: "p"}
	for _, c := range []struct {
		from, to string
		ok       bool
	}{
		{"", "", true},
		{"", Local, true},
		{"", "eu", true},
		{"eu", "eu", true},
		{"eu", Local, true},
		{Local, Local, true},
		{Local, "", false},
		{Local, "eu", false},
		{"eu", "us", false},
		{"eu", "", false},
	} {
		_, err := Fallback(Link{Provider: p, Residency: c.from}, Link{Provider: p, Residency: c.to})
		if c.ok && err != nil || !c.ok && !fault.Is(err, fault.Config) {
			t.Errorf("%q to %q: %v", c.from, c.to, err)
		}
	}
	if _, err := Fallback(); !fault.Is(err, fault.Config) {
		t.Errorf("an empty chain: %v", err)
	}
}
