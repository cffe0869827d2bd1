package child

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestLimits keeps the limits on a clock of its own.
func TestLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		wall, quiet time.Duration
		live        func(v *vigil) // what the run does; it may wait
		want        string
		after       time.Duration
	}{
		{"wall", time.Hour, 0, func(*vigil) {}, ReasonWall, time.Hour},
		{"silence", time.Hour, time.Minute, func(*vigil) {}, ReasonQuiet, time.Minute},
		{"signs of life", time.Hour, time.Minute, func(v *vigil) {
			for range 5 {
				<-time.After(59 * time.Second)
				v.touch()
			}
		}, ReasonQuiet, 5*59*time.Second + time.Minute},
		{"a permission that waits", time.Hour, time.Minute, func(v *vigil) {
			v.ask(1)
			<-time.After(20 * time.Minute)
			v.ask(-1)
		}, ReasonQuiet, 21 * time.Minute},
		{"two permissions, one answered", time.Hour, time.Minute, func(v *vigil) {
			v.ask(1)
			v.ask(1)
			<-time.After(5 * time.Minute)
			v.ask(-1)
			<-time.After(15 * time.Minute)
			v.ask(-1)
		}, ReasonQuiet, 21 * time.Minute},
		{"work around a permission", time.Hour, 0, func(v *vigil) {
			<-time.After(50 * time.Minute)
			v.ask(1)
			<-time.After(5 * time.Hour)
			v.ask(-1)
		}, ReasonWall, 6 * time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				v := newVigil(c.wall, c.quiet)
				go c.live(v)
				if got := v.wait(t.Context(), nil); got != c.want || time.Since(began) != c.after {
					t.Errorf("%q after %s, want %q after %s", got, time.Since(began), c.want, c.after)
				}
			})
		})
	}
}

func TestLimitsEndWithTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		close(over)
		if got := newVigil(time.Hour, time.Hour).wait(t.Context(), over); got != "" {
			t.Errorf("over: %q", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got := newVigil(0, 0).wait(ctx, nil); got != ReasonCancelled {
			t.Errorf("cancelled: %q", got)
		}
	})
}
