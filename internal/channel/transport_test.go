package channel

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptrace"
	"slices"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

// trip is a transport of the test's own.
type trip func(trace *httptrace.ClientTrace) error

func (t trip) RoundTrip(req *http.Request) (*http.Response, error) {
	return nil, t(httptrace.ContextClientTrace(req.Context()))
}

// Only what may have been written to a connection can have arrived.
func TestAnErrorSaysWhetherARequestCanHaveArrived(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	got := func(trace *httptrace.ClientTrace) {
		trace.GetConn("net.example:443")
		trace.GotConn(httptrace.GotConnInfo{})
	}
	for name, c := range map[string]struct {
		base trip
		want fault.Class
	}{
		"no connection": {func(trace *httptrace.ClientTrace) error {
			trace.GetConn("net.example:443")
			return broken
		}, fault.Unavailable},
		"a connection that broke": {func(trace *httptrace.ClientTrace) error {
			got(trace)
			return broken
		}, fault.Internal},
		"none in place of one that was dead": {func(trace *httptrace.ClientTrace) error {
			got(trace)
			trace.GetConn("net.example:443")
			return broken
		}, fault.Unavailable},
		"another, which broke": {func(trace *httptrace.ClientTrace) error {
			got(trace)
			got(trace)
			return broken
		}, fault.Internal},
	} {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "https://net.example/send", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := telling{c.base}.RoundTrip(req) //nolint:bodyclose // there is none
		if resp != nil || !errors.Is(err, broken) || fault.ClassOf(err) != c.want {
			t.Errorf("%s: %v is %s, want %s", name, err, fault.ClassOf(err), c.want)
		}
	}
}

func TestWhatCannotBeDecodedHidesNothing(t *testing.T) {
	t.Parallel()
	var got struct{ List Rows[int] }
	if err := json.Unmarshal([]byte(`{"list":[1,"two",{"x":3},null,4]}`), &got); err != nil || !slices.Equal(got.List, []int{1, 0, 4}) {
		t.Errorf("%v %v", got.List, err)
	}
	for _, bad := range []string{`{"list":"x"}`, `{"list":{}}`} {
		if json.Unmarshal([]byte(bad), &got) == nil {
			t.Errorf("%s is a list", bad)
		}
	}
	if err := json.Unmarshal([]byte(`{"list":null}`), &got); err != nil || len(got.List) != 0 {
		t.Errorf("null is %v %v", got.List, err)
	}
}
