package crashtest

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// lived lives the story, with a death at each of kills, as far as they are passed, and
// judges it.
func lived(t *testing.T, kills ...string) (c *coding, again int) {
	t.Helper()
	c = newCoder(t, kills...)
	c.start()
	c.booted = len(c.lines("passes0"))
	c.story()
	if len(kills) > 0 && c.deaths == 0 { // it may be passed only at the end
		c.stop()
		c.passed = c.lines("passes0")
		if c.killed() {
			c.deaths++
		}
		c.start()
	}
	again = c.inspect()
	c.stop()
	c.rows()
	return c, again
}

// met lives the story until it dies at p. In one life commits share what in another they do
// not, so a late pass may not be met.
func met(t *testing.T, p pass, more ...string) (deaths, again int) {
	t.Helper()
	for range 3 {
		c, started := lived(t, append([]string{p.kill()}, more...)...)
		if again += started; c.deaths > 0 {
			return c.deaths, again
		}
		if n := len(slices.DeleteFunc(c.passed, func(point string) bool { return point != p.point })); n >= p.n {
			t.Errorf("%s was passed %d times, and nobody died", p.point, n)
		}
	}
	return 0, again
}

// TestADelegationEndsOnceWhereverItDies kills the daemon at the passes of the fail points
// that tasks for a coding agent make, at some of them a second time while it recovers, and
// looks at what the agent did and who was told.
func TestADelegationEndsOnceWhereverItDies(t *testing.T) {
	supported(t)
	first, _ := lived(t)
	seen := map[string]int{}
	var passes []pass
	for i, point := range first.lines("passes0") {
		if seen[point]++; i >= first.booted {
			passes = append(passes, pass{point, seen[point], i})
		}
	}
	var chosen, tried, fewer, twice, again atomic.Int64
	try := func(t *testing.T, p pass, more ...string) {
		chosen.Add(1)
		t.Run(strings.Join(append([]string{p.kill()}, more...), ","), func(t *testing.T) {
			t.Parallel()
			deaths, started := met(t, p, more...)
			again.Add(int64(started))
			switch deaths {
			case 0:
				fewer.Add(1)
				return
			case 2:
				twice.Add(1)
			}
			tried.Add(1)
		})
	}
	t.Run("kill", func(t *testing.T) {
		for i, p := range passes {
			if i%coderStride == coderFirst || p.point == "run.effect.after" {
				try(t, p)
			}
			if i%coderTwice == coderTwice/2 && i < len(passes)/2 { // behind it there is enough left to die in
				try(t, p, fmt.Sprintf("%s:%d", []string{"db.commit.before", "db.commit.after"}[i%2], 2+i%17))
			}
		}
	})
	t.Logf("passes %v: %d counted, %d chosen, %d tried, %d not met again; %d lives had two deaths; %d times a program was started again",
		seen, len(passes), chosen.Load(), tried.Load(), fewer.Load(), twice.Load(), again.Load())
	if n := fewer.Load(); tried.Load()+n != chosen.Load() || n > 1+chosen.Load()/10 || twice.Load() == 0 {
		t.Errorf("%d passes were chosen, %d tried and %d not met again, %d with a second death", chosen.Load(), tried.Load(), n, twice.Load())
	}
}
