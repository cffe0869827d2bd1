package signed

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/ombud-run/ombud/wasmloop"
)

// poolOf is a pool whose modules are made when next is sent to, and counted.
func poolOf(t *testing.T) (p *pool, made *int, next chan error) {
	made, next = new(int), make(chan error)
	p = &pool{make: func(ctx context.Context, _ string) (*wasmloop.Runner, wasmloop.Manifest, error) {
		*made++
		select {
		case err := <-next:
			return &wasmloop.Runner{}, wasmloop.Manifest{}, err
		case <-ctx.Done():
			return nil, wasmloop.Manifest{}, ctx.Err()
		}
	}}
	t.Cleanup(func() {
		if err := p.close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p, made, next
}

// Who gives up does not end what others wait for.
func TestACompilationIsForAllWhoWaitForIt(t *testing.T) {
	t.Parallel()
	p, made, next := poolOf(t)
	first, giveUp := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, _, _, err := p.get(first, "a")
		failed <- err
	}()
	for there := false; !there; {
		p.mu.Lock()
		there = p.all["a"] != nil
		p.mu.Unlock()
	}
	giveUp()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	got := make(chan error)
	go func() {
		_, _, done, err := p.get(t.Context(), "a")
		if err == nil {
			done()
		}
		got <- err
	}()
	next <- nil
	if err := <-got; err != nil || *made != 1 {
		t.Errorf("made %d times, %v", *made, err)
	}
}

func TestWhatIsForgottenOrFailedIsMadeAnew(t *testing.T) {
	t.Parallel()
	p, made, next := poolOf(t)
	get := func(sha string, outcome error) func() {
		t.Helper()
		go func() { next <- outcome }()
		_, _, done, err := p.get(t.Context(), sha)
		if !errors.Is(err, outcome) {
			t.Fatal(err)
		}
		return done
	}
	bad := errors.New("bad")
	get("a", bad)
	p.making.Wait()
	used := get("a", nil)
	p.forget()
	get("a", nil)()
	if *made != 3 || len(p.all) != 1 {
		t.Errorf("made %d times, %d are there", *made, len(p.all))
	}
	used() // it was in use, and takes the new one with it not
	if len(p.all) != 1 {
		t.Error("the new one is gone")
	}
	for n := range keepCompiled + 3 {
		get(strconv.Itoa(n), nil)()
		p.making.Wait()
	}
	if len(p.all) != keepCompiled {
		t.Errorf("%d are kept", len(p.all))
	}
	p.forget()
	if len(p.all) != 0 {
		t.Errorf("%d are not forgotten", len(p.all))
	}
}
