package model

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

// withKey answers by telling its key.
type withKey struct {
	key    string
	closed *int
}

func (w *withKey) Name() string { return "k" }
func (w *withKey) Close()       { *w.closed++ }
func (w *withKey) Generate(context.Context, Request, Sink) (Response, error) {
	return Response{Text: w.key}, nil
}

func TestAChangedKeyHoldsFromTheNextRequestOn(t *testing.T) {
	t.Parallel()
	key, missing := "first", fault.New(fault.NotFound, "there is no secret k").WithHint("ombud secret set k")
	var keyErr, buildErr error
	built, closed := 0, 0
	p := Keyed("k", func(context.Context) (string, error) { return key, keyErr }, func(key string) (Provider, error) {
		built++
		return &withKey{key, &closed}, buildErr
	})
	ask := func(want string, class fault.Class) {
		t.Helper()
		got, err := p.Generate(t.Context(), Request{}, nil)
		if got.Text != want || fault.ClassOf(err) != class {
			t.Errorf("%q, %v", got.Text, err)
		}
	}
	keyErr = missing
	ask("", fault.NotFound)
	if _, err := p.Generate(t.Context(), Request{}, nil); fault.HintOf(err) != "ombud secret set k" || built != 0 {
		t.Errorf("hint %q, %d built", fault.HintOf(err), built)
	}
	keyErr = nil
	ask("first", "")
	ask("first", "")
	key = "second"
	ask("second", "")
	if built != 2 || closed != 1 {
		t.Errorf("%d built, %d closed", built, closed)
	}
	key, buildErr = "third", errors.New("no")
	if _, err := p.Generate(t.Context(), Request{}, nil); err == nil {
		t.Error("built without")
	}
	key, buildErr = "second", nil
	ask("second", "")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { ask("second", "") })
	}
	wg.Wait()
	if built != 3 {
		t.Errorf("%d built", built)
	}
}
