package id

import (
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

func TestValidRefuses(t *testing.T) {
	t.Parallel()
	good := New("run")
	for _, s := range []string{"", "run_", good[4:], "evt_" + good[4:], good + "0", good[:len(good)-1] + "G", "run_" + "00000000000000000000000000000000"} {
		if Valid("run", s) {
			t.Errorf("Valid(run, %q) = true", s)
		}
	}
}
