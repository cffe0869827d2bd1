package vault

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// Ring is the system's keyring. Its errors are fault.Unavailable when it is locked,
// absent or does not answer, fault.NotFound when it has no such key.
type Ring interface {
	Get(ctx context.Context, account string) (string, error)
	Set(ctx context.Context, account, value string) error
	Delete(ctx context.Context, account string) error
}

// ringService is what every key of ours is filed under.
const ringService = "ombud"

// ringLimit is how long a keyring may take: one that waits for a person to unlock
// it must not hold a start up.
const ringLimit = 5 * time.Second

// ringKey gets a key of 32 bytes; the caller wipes it.
func ringKey(ctx context.Context, ring Ring, account string) ([]byte, error) {
	if ring == nil {
		return nil, fault.New(fault.Unavailable, "the system has no keyring that ombud can use")
	}
	ctx, cancel := context.WithTimeout(ctx, ringLimit)
	defer cancel()
	text, err := ring.Get(ctx, account)
	if err != nil {
		return nil, err
	}
	key, err := hex.DecodeString(text)
	if err != nil || len(key) != KeySize {
		clear(key)
		return nil, fault.New(fault.Verification, "what the keyring holds for ombud as %q is not a key", account)
	}
	return key, nil
}

// newRingKey makes a key, puts it into the keyring and sees that it is there.
func newRingKey(ctx context.Context, ring Ring, account string) ([]byte, error) {
	if ring == nil {
		return nil, fault.New(fault.Unavailable, "the system has no keyring that ombud can use")
	}
	key := make([]byte, KeySize)
	random(key)
	short, cancel := context.WithTimeout(ctx, ringLimit)
	defer cancel()
	if err := ring.Set(short, account, hex.EncodeToString(key)); err != nil {
		clear(key)
		return nil, err
	}
	back, err := ringKey(ctx, ring, account)
	defer clear(back)
	if err == nil && [KeySize]byte(back) != [KeySize]byte(key) {
		err = fault.New(fault.Unavailable, "the keyring does not give back what was put into it")
	}
	if err != nil {
		clear(key)
		return nil, err
	}
	return key, nil
}
