package id

import (
	"strings"
	"sync"
	"testing"
)

func TestNewIsUniqueSortedAndValid(t *testing.T) {
	t.Parallel()
	prev := ""
	for range 10_000 {
		s := New("evt")
		if !Valid("evt", s) {
			t.Fatalf("%q is not valid", s)
		}
		if s <= prev {
			t.Fatalf("%q does not sort after %q", s, prev)
		}
		prev = s
	}
}

func TestNewIsUniqueUnderConcurrency(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen := map[string]bool{}
	for range 8 {
		wg.Go(func() {
			for range 2_000 {
				s := New("x")
				mu.Lock()
				if seen[s] {
					t.Errorf("%q made twice", s)
				}
				seen[s] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestBehindIsBehindWhatBeginsSoAndBeforeTheRest(t *testing.T) {
	t.Parallel()
	for range 200 {
		a, b := New("run"), New("run")
		for n := range len(a) + 1 {
			prefix := a[:n]
			if in := prefix <= a && a < Behind(prefix); !in {
				t.Fatalf("%q is not between %q and %q", a, prefix, Behind(prefix))
			}
			if in := prefix <= b && b < Behind(prefix); in != strings.HasPrefix(b, prefix) {
				t.Fatalf("%q between %q and %q: %v", b, prefix, Behind(prefix), in)
			}
		}
	}
}

func TestValidRefuses(t *testing.T) {
	t.Parallel()
	good := New("run")
	for _, s := range []string{"", "run_", good[4:], "evt_" + good[4:], good + "0", good[:len(good)-1] + "G", "run_" + "00000000000000000000000000000000"} {
		if Valid("run", s) {
			t.Errorf("Valid(run, %q) = true", s)
		}
	}
}
