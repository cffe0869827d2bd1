package vault

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/argon2"
)

// house is a place for one vault, with a store that remembers it.
type house struct {
	t         *testing.T
	files     Files
	memory    Memory
	ring      *fakeRing
	stretched atomic.Int64
}

func newHouse(t *testing.T) *house {
	t.Helper()
	dir := t.TempDir()
	return &house{t: t, ring: newFakeRing(), files: Files{
		Envelope: filepath.Join(dir, "vault"), Key: filepath.Join(dir, "master.key"), NextKey: filepath.Join(dir, "master.key.next"),
	}}
}

// stretch is Argon2id that costs little, and is counted.
func (h *house) stretch(passphrase, salt []byte, a Argon2) []byte {
	h.stretched.Add(1)
	return argon2.IDKey(passphrase, append(salt, fmt.Sprint(a)...), 1, 8, 1, KeySize)
}

func (h *house) sources(use Source, passphrase string) Sources {
	return Sources{Use: use, Variable: passphrase, Ring: h.ring, Name: "default", Stretch: h.stretch, Now: func() int64 { return 1 }}
}

// try opens the vault as a daemon that starts does, and lets the store remember it.
func (h *house) try(s Sources) (*Keeper, error) {
	k, err := Open(context.Background(), h.files, s, h.memory, true)
	if err != nil {
		return nil, err
	}
	if _, err := k.Settle(); err != nil {
		return nil, err
	}
	h.remember(k)
	return k, nil
}

func (h *house) remember(k *Keeper) { h.memory = Memory{Public: k.Public(), Envelope: k.Copy()} }

func (h *house) open(s Sources) *Keeper {
	h.t.Helper()
	k, err := h.try(s)
	if err != nil {
		h.t.Fatal(err)
	}
	return k
}

func phrase(t *testing.T, text string) *Secret {
	t.Helper()
	s, err := NewPassphrase("the test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (h *house) exists(path string) bool { return !missing(path) }
