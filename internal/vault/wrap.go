package vault

import (
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"runtime/debug"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/chacha20poly1305"

	"github.com/ombud-run/ombud/internal/fault"
)

const (
	saltSize  = 32
	checkSize = 16
	boxSize   = chacha20poly1305.NonceSizeX + KeySize + chacha20poly1305.Overhead
)

// Argon2 are the parameters a passphrase is stretched with.
type Argon2 struct {
	Version int    `json:"version"`    // 19, which is 0x13
	Memory  uint32 `json:"memory_kib"` // KiB
	Time    uint32 `json:"time"`       // passes
	Threads uint8  `json:"threads"`
}

// recommended is the second choice of RFC 9106: the first wants 2 GiB.
func recommended() Argon2 {
	return Argon2{Version: argon2.Version, Memory: 64 << 10, Time: 3, Threads: 4}
}

// Bounds of what a file may ask for: at least 8 MiB, so that a written-down weakness
// shows, at most what a machine can give in some seconds.
const (
	minMemory, maxMemory = 8 << 10, 1 << 20 // KiB
	maxTime, maxThreads  = 16, 16
	maxWork              = 4 << 20 // KiB written, passes included
)

func (a Argon2) sane() error {
	if a.Version != argon2.Version || a.Memory < minMemory || a.Memory > maxMemory || a.Time < 1 || a.Time > maxTime ||
		a.Threads < 1 || a.Threads > maxThreads || uint64(a.Memory)*uint64(a.Time) > maxWork {
		return damaged("Argon2id version %d with %d KiB, %d passes and %d threads is out of bounds", a.Version, a.Memory, a.Time, a.Threads)
	}
	return nil
}

// Stretch makes a key of a passphrase.
type Stretch func(passphrase, salt []byte, a Argon2) []byte

// Argon2id is the Stretch of what we ship. The memory it worked in is given back to
// the system at once, which wipes it.
func Argon2id(passphrase, salt []byte, a Argon2) []byte {
	key := argon2.IDKey(passphrase, salt, a.Time, a.Memory, a.Threads, KeySize)
	debug.FreeOSMemory()
	return key
}

// errWrongKey is in the chain of the error about a key that is not this wrap's.
var errWrongKey = errors.New("another key")

// kek is the key of one wrap, expanded: what proves it and what seals.
type kek struct{ check, seal []byte }

func (k kek) wipe() { clear(k.seal) }

// kekOf derives it from the secret: stretched if a person made it up, as it is if
// it is random already.
func kekOf(w Wrap, secret []byte, stretch Stretch) (kek, error) {
	raw := secret
	if w.Kind == ByPassphrase {
		raw = stretch(secret, w.Salt, *w.Argon2)
		defer clear(raw)
	}
	prk, err := hkdf.Extract(sha256.New, raw, w.Salt)
	if err != nil {
		return kek{}, fault.New(fault.Internal, "derive a wrapping key: %w", err)
	}
	defer clear(prk)
	check, err := hkdf.Expand(sha256.New, prk, "ombud vault check v1 "+string(w.Kind), checkSize)
	if err != nil {
		return kek{}, fault.New(fault.Internal, "derive a check: %w", err)
	}
	seal, err := hkdf.Expand(sha256.New, prk, "ombud vault wrap v1 "+string(w.Kind), KeySize)
	if err != nil {
		return kek{}, fault.New(fault.Internal, "derive a wrapping key: %w", err)
	}
	return kek{check, seal}, nil
}

// seals makes a wrap of master for a secret. w says its kind and parameters.
func (e Envelope) seals(w Wrap, secret, master []byte, stretch Stretch) (Wrap, error) {
	w.ID, w.Salt = newID(), make([]byte, saltSize)
	random(w.Salt)
	k, err := kekOf(w, secret, stretch)
	if err != nil {
		return Wrap{}, err
	}
	defer k.wipe()
	w.Check = k.check
	aead, err := chacha20poly1305.NewX(k.seal)
	if err != nil {
		return Wrap{}, fault.New(fault.Internal, "make cipher: %w", err)
	}
	nonce := make([]byte, chacha20poly1305.NonceSizeX)
	random(nonce)
	w.Box = aead.Seal(nonce, nonce, master, e.bound(w))
	return w, nil
}

// opens returns the master. A wrong secret has errWrongKey in the chain of its
// error; with the right one, anything that was changed is fault.Verification.
func (e Envelope) opens(w Wrap, secret []byte, stretch Stretch) ([]byte, error) {
	k, err := kekOf(w, secret, stretch)
	if err != nil {
		return nil, err
	}
	defer k.wipe()
	if subtle.ConstantTimeCompare(k.check, w.Check) != 1 {
		return nil, fault.New(fault.Permission, "the %s is not the one this vault was closed with: %w", w.Kind, errWrongKey)
	}
	aead, err := chacha20poly1305.NewX(k.seal)
	if err != nil {
		return nil, fault.New(fault.Internal, "make cipher: %w", err)
	}
	nonce, box := w.Box[:chacha20poly1305.NonceSizeX], w.Box[chacha20poly1305.NonceSizeX:]
	master, err := aead.Open(nil, nonce, box, e.bound(w))
	if err != nil {
		return nil, damaged("the %s is right, but what it wraps was changed", w.Kind)
	}
	return master, nil
}

// terms are what a wrap is bound to. Their names and order are part of it.
type terms struct {
	Format string `json:"Format"`
	Vault  string `json:"Vault"`
	Public string `json:"Public"`
	Wrap   Wrap   `json:"Wrap"`
}

// bound is the additional data of a wrap: all that is known of it, and whose it is.
func (e Envelope) bound(w Wrap) []byte {
	w.Box = nil
	data, err := json.Marshal(terms{envelopeMagic + " 1", e.Vault, e.Public, w})
	if err != nil {
		panic("vault: encode the terms of a wrap: " + err.Error()) // plain fields
	}
	return data
}
