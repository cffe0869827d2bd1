//go:build darwin || windows

package vault

import (
	"context"
	"errors"

	"github.com/zalando/go-keyring"

	"github.com/ombud-run/ombud/internal/fault"
)

// SystemRing returns the system's keyring: the Keychain, or the Credential Manager.
func SystemRing(string) Ring { return systemRing{} }

type systemRing struct{}

// bounded gives up on a call that does not come back; its goroutine ends when it does.
func bounded[T any](ctx context.Context, call func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		v, err := call()
		done <- answer{v, err}
	}()
	select {
	case a := <-done:
		if errors.Is(a.err, keyring.ErrNotFound) {
			return a.value, fault.New(fault.NotFound, "the keyring has no such key of ombud")
		}
		if a.err != nil {
			return a.value, fault.New(fault.Unavailable, "the keyring: %w", a.err)
		}
		return a.value, nil
	case <-ctx.Done():
		var none T
		return none, fault.New(fault.Unavailable, "the keyring did not answer within %s", ringLimit)
	}
}

func (systemRing) Get(ctx context.Context, account string) (string, error) {
	return bounded(ctx, func() (string, error) { return keyring.Get(ringService, account) })
}

func (systemRing) Set(ctx context.Context, account, value string) error {
	_, err := bounded(ctx, func() (struct{}, error) { return struct{}{}, keyring.Set(ringService, account, value) })
	return err
}

func (systemRing) Delete(ctx context.Context, account string) error {
	_, err := bounded(ctx, func() (struct{}, error) { return struct{}{}, keyring.Delete(ringService, account) })
	return err
}
