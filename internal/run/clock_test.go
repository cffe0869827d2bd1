package run

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/eventlog"
)

var errWorked = errors.New("worked long enough")

// TestAClockStandsStillWhileAPersonIsAsked keeps its time on a clock of its own.
func TestAClockStandsStillWhileAPersonIsAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		ctx, cancel := c.Bound(t.Context(), time.Minute, errWorked)
		defer cancel()
		inner, stop := context.WithCancel(ctx)
		defer stop()
		valued := context.WithValue(ctx, errWorked, 1)
		third, stop3 := context.WithTimeout(valued, time.Hour)
		defer stop3()
		<-time.After(50 * time.Second)
		first := c.Ask()
		<-time.After(10 * time.Minute)
		second := c.Ask()
		first()
		first()
		<-time.After(10 * time.Minute)
		if at, ok := ctx.Deadline(); !ok || time.Until(at) != 10*time.Second || ctx.Err() != nil {
			t.Fatalf("the deadline is in %v, %v", time.Until(at), ctx.Err())
		}
		second()
		<-time.After(9 * time.Second)
		if ctx.Err() != nil || inner.Err() != nil || third.Err() != nil {
			t.Fatal("it ended early")
		}
		<-time.After(time.Second)
		synctest.Wait()
		for _, x := range []context.Context{ctx, inner, valued, third} {
			if !errors.Is(x.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(x), errWorked) {
				t.Errorf("%v, %v", x.Err(), context.Cause(x))
			}
			<-x.Done()
		}
		if c.Asked() != 20*time.Minute {
			t.Errorf("asked for %v", c.Asked())
		}
	})
}

func TestABoundEndsWithItsParentAndWhenItIsCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent, end := context.WithTimeoutCause(t.Context(), time.Second, errWorked)
		defer end()
		ctx, cancel := NewClock().Bound(parent, time.Hour, errLost)
		defer cancel()
		if at, _ := ctx.Deadline(); time.Until(at) != time.Second {
			t.Errorf("the deadline is in %v", time.Until(at))
		}
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(ctx), errWorked) {
			t.Errorf("%v, %v", ctx.Err(), context.Cause(ctx))
		}
		ctx, cancel = NewClock().Bound(t.Context(), time.Hour, errLost)
		cancel()
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.Canceled) {
			t.Error(ctx.Err())
		}
		ctx, cancel = NewClock().Bound(t.Context(), -time.Second, errLost)
		defer cancel()
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(ctx), errLost) {
			t.Errorf("%v, %v", ctx.Err(), context.Cause(ctx))
		}
	})
}

// TestAClockCountsWhatIsWorked: whatever questions overlap, worked and asked are all there is.
func TestAClockCountsWhatIsWorked(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 40).Draw(rt, "steps")
		synctest.Test(t, func(*testing.T) {
			c := NewClock()
			var worked, asked time.Duration
			var open []func()
			for _, s := range steps {
				switch {
				case s < 3:
					open = append(open, c.Ask())
				case s < 6 && len(open) > 0:
					open[0]()
					open = open[1:]
				}
				pass := time.Duration(s) * time.Second
				<-time.After(pass)
				if len(open) > 0 {
					asked += pass
				} else {
					worked += pass
				}
				if c.Worked() != worked || c.Asked() != asked {
					t.Fatalf("worked %v and asked %v, want %v and %v", c.Worked(), c.Asked(), worked, asked)
				}
			}
		})
	})
}

// TestWhatAPersonWasAskedIsNoWork: it does not count after a wait either.
func TestWhatAPersonWasAskedIsNoWork(t *testing.T) {
	t.Parallel()
	fold := func(kind, data string) int64 {
		v := view{Record: Record{State: Running, Spent: 1000, Resumed: 10_000}, steps: map[string]*Step{}}
		if err := v.fold(eventlog.Event{Kind: kind, At: 15_000, Data: []byte(data)}); err != nil {
			t.Fatal(err)
		}
		return v.Spent
	}
	for _, c := range []struct {
		kind, data string
		want       int64
	}{
		{evWaiting, `{"for":"timer","until":1}`, 6000}, {evWaiting, `{"for":"timer","until":1,"asked_us":4000}`, 2000},
		{evWaiting, `{"for":"timer","until":1,"asked_us":9000}`, 1000}, {evRequeued, `{"why":"x","asked_us":4000}`, 2000},
		{evRequeued, `{"why":"x","crash":true,"asked_us":4000}`, 1000}, {evCompleted, `{}`, 6000},
	} {
		if got := fold(c.kind, c.data); got != c.want {
			t.Errorf("%s %s: %d µs, want %d", c.kind, c.data, got, c.want)
		}
	}
}
