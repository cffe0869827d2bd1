package act

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// asks is a tool with little time that may have a person asked.
func asks(most time.Duration) tool.Definition {
	d := define("t.asks")
	d.Timeout, d.Asks = 100*time.Millisecond, most
	return d
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestACallsTimeStandsStillWhileAPersonIsAsked(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	b.add(asks(time.Hour), func(ctx context.Context, in tool.Invocation) (tool.Output, error) {
		asked, done := in.Asking(ctx)
		if err := wait(asked, 5*100*time.Millisecond); err != nil {
			return tool.Output{}, err
		}
		done()
		if ctx.Err() != nil {
			return tool.Output{}, errors.New("its time was over")
		}
		if in.Input[len(in.Input)-2] == '1' {
			<-ctx.Done() // now it runs again
			return tool.Output{}, ctx.Err()
		}
		return tool.Output{Text: "answered"}, nil
	})
	calls := []planned{to("tool/1", "t.asks", `{"as":"free"}`), to("tool/2", "t.asks", `{"as":"free","n":1}`)}
	got := b.do(calls...)
	expect(t, got[0], OK, "answered")
	expect(t, got[1], Unclear, "did not end within 100ms")
}

func TestAPersonIsAskedNoLongerThanTheToolMayOrTheDaemonRuns(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	why := make(chan error, 1)
	b.add(asks(50*time.Millisecond), func(ctx context.Context, in tool.Invocation) (tool.Output, error) {
		asked, done := in.Asking(ctx)
		defer done()
		<-asked.Done()
		why <- asked.Err()
		<-ctx.Done() // asked or not, the call's own time goes on from there
		return tool.Output{}, ctx.Err()
	})
	got := b.do(to("tool/1", "t.asks", `{"as":"free"}`))
	expect(t, got[0], Unclear, "did not end within 100ms")
	if err := <-why; !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}

	began := make(chan struct{})
	d := asks(time.Hour)
	d.Name = "t.forever"
	b.add(d, func(ctx context.Context, in tool.Invocation) (tool.Output, error) {
		asked, done := in.Asking(ctx)
		defer done()
		close(began)
		<-asked.Done()
		return tool.Output{Text: "nobody was there"}, nil
	})
	c := to("tool/1", "t.forever", `{"as":"free"}`)
	id := b.start(c)
	<-began
	b.halt() // it waits for the call, and the call for nobody
	if s := b.step(id, "tool/1"); s.State != run.Done {
		t.Errorf("the step is %s", s.State)
	}
	b.boot()
	b.end(id)
}

func TestACallIsToldWhatPolicySaysOfAFurtherScope(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	got := map[string]policy.Decision{}
	b.add(define("t.judge"), func(_ context.Context, in tool.Invocation) (tool.Output, error) {
		for _, text := range []string{"tool:free", "tool:ask", "tool:other"} {
			got[text] = in.Judge(scope.Must(text))
		}
		if in.Asking != nil {
			return tool.Output{}, errors.New("it asks nobody")
		}
		return tool.Output{Text: "judged"}, nil
	})
	expect(t, b.do(to("tool/1", "t.judge", `{"as":"free"}`))[0], OK, "judged")
	for text, want := range map[string]policy.Effect{"tool:free": policy.Allow, "tool:ask": policy.Ask, "tool:other": policy.Deny} {
		if got[text].Effect != want {
			t.Errorf("%s: %s", text, got[text])
		}
	}
	if r := got["tool:other"].Reasons; len(r) == 0 || r[0].Code != policy.CodeNoRule {
		t.Errorf("%+v", r)
	}
}
