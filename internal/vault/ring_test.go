package vault

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"sync"

	"github.com/ombud-run/ombud/internal/fault"
)

// fakeRing is a keyring in memory.
type fakeRing struct {
	mu     sync.Mutex
	keys   map[string]string
	broken error
}

func newFakeRing() *fakeRing { return &fakeRing{keys: map[string]string{}} }

func (r *fakeRing) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.keys)
}

func (r *fakeRing) Get(_ context.Context, account string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, ok := r.keys[account]; ok && r.broken == nil {
		return v, nil
	}
	if r.broken != nil {
		return "", r.broken
	}
	return "", fault.New(fault.NotFound, "no key for %q", account)
}

func (r *fakeRing) Set(_ context.Context, account, value string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken == nil {
		r.keys[account] = value
	}
	return r.broken
}

func (r *fakeRing) Delete(_ context.Context, account string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.keys, account)
	return r.broken
}

// withChecksum makes a file of a body, whatever the body is.
func withChecksum(body []byte) []byte {
	if _, rest, ok := bytes.Cut(body, []byte("\n")); ok && bytes.HasPrefix(body, []byte(envelopeMagic)) {
		body = rest
	}
	return append(fmt.Appendf(nil, "%s 1 %x\n", envelopeMagic, sha256.Sum256(body)), body...)
}
