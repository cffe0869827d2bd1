package wasmloop

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"
)

// What a context says of the host is for the runs that are begun with it, and for no other.
func TestARunMayHaveAHostOfItsOwn(t *testing.T) {
	t.Parallel()
	b := guest(t, func(_ *Manifest, o *Options) { o.Clock = func() time.Time { return time.Unix(1000, 0) } })
	own, said := &fakeKit{answer: "its own"}, &lines{}
	ctx := WithHost(t.Context(), Host{
		Kit: own, Grants: only{"tool:agent.ask"}, Log: slog.New(said), Clock: func() time.Time { return time.Unix(2000, 7) },
		Around: func(ctx context.Context, c Call, do func(context.Context, []byte) ([]byte, error)) ([]byte, error) {
			return do(ctx, fmt.Appendf(nil, `{"prompt":"as before %d"}`, c.N)) // not with what it asks now
		},
	})
	do := []step{call(FnAsk, `{"prompt":"now"}`), call(FnRecall, `{}`), {Do: "clock"}}
	if err := b.RunTriggered(ctx, time.Minute, "event", steps(do...)); err != nil {
		t.Fatal(err)
	}
	want := []string{`ask 20 {"answer":"its own"}`, "recall -3 ", "clock 2000"}
	if got := said.take(); own.take() != "ask as before 1" || b.kit.take() != "" || !slices.Equal(got, want) {
		t.Errorf("it said %q", got)
	}
	got, err := b.run(t, do...)
	if err != nil || b.kit.take() != "ask now; recall  5" || own.take() != "" || got[2] != "clock 1000" {
		t.Errorf("the next run said %q, %v", got, err)
	}
}
