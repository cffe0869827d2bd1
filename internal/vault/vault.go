// Package vault protects what ombud stores. One master key of 32 random bytes
// never leaves it; every use has a key of its own derived from the master by
// HKDF-SHA256.
//
// A sealed value is XChaCha20-Poly1305 with a fresh random nonce, bound to the
// number of its field and the id of its row: moved to another row or column it
// does not open. A blind value is an HMAC, equal for equal input, for columns
// that must be unique or looked up. Sealing hides content, not length.
//
// Losing the master key loses everything sealed; there is no second way in.
package vault

import (
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"log/slog"
	"strings"
	"sync"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/ombud-run/ombud/internal/fault"
)

// KeySize is the length of the master key in bytes.
const KeySize = 32

// Overhead is how many bytes a sealed value is longer than its content.
const Overhead = 1 + chacha20poly1305.NonceSizeX + chacha20poly1305.Overhead

// format is the first byte of a sealed value.
const format = 1

// salt separates the keys of this scheme from any other use of the master.
const salt = "ombud vault v1"

// Vault holds derived keys. It is safe for concurrent use and prints as its
// fingerprint only.
type Vault struct {
	prk     []byte // HKDF's pseudorandom key, from which all others expand
	aeads   map[domain]cipher.AEAD
	blinds  map[Field][]byte
	macs    sync.Map // domain name → []byte, filled as domains are used
	states  sync.Map // domain name → *sync.Pool of hash.Hash: a MAC costs more to set up than to do
	audit   []byte
	signing ed25519.PrivateKey
}

// New returns the vault of a master key. The caller may wipe master afterwards.
func New(master []byte) (*Vault, error) {
	if len(master) != KeySize {
		return nil, fault.New(fault.Config, "a master key has %d bytes, this one %d", KeySize, len(master))
	}
	prk, err := hkdf.Extract(sha256.New, master, []byte(salt))
	if err != nil {
		return nil, fault.New(fault.Internal, "extract keys: %w", err)
	}
	v := &Vault{prk: prk, aeads: map[domain]cipher.AEAD{}, blinds: map[Field][]byte{}}
	for f, info := range fields {
		switch {
		case info.kind == blind:
			v.blinds[f] = v.derive("blind/" + info.name)
		case v.aeads[info.domain] == nil:
			aead, err := chacha20poly1305.NewX(v.derive("seal/" + string(info.domain)))
			if err != nil {
				return nil, fault.New(fault.Internal, "make cipher: %w", err)
			}
			v.aeads[info.domain] = aead
		}
	}
	v.audit = v.derive("audit")
	v.signing = ed25519.NewKeyFromSeed(v.derive("sign/ed25519"))
	return v, nil
}

// derive expands the key for one purpose. The purposes are ours and short, so
// the only error HKDF knows, asking for too much, cannot happen.
func (v *Vault) derive(purpose string) []byte {
	key, err := hkdf.Expand(sha256.New, v.prk, purpose, 32)
	if err != nil {
		panic("vault: derive key for " + purpose + ": " + err.Error())
	}
	return key
}

// Seal encrypts plain for one field of one row. A field that is not sealed or an
// empty row id is a defect of the caller and panics: such a value would open
// where it must not.
func (v *Vault) Seal(field Field, rowID string, plain []byte) []byte {
	if rowID == "" {
		panic("vault: seal " + field.String() + " without a row id")
	}
	info := mustBe(field, sealed)
	out := make([]byte, 1+chacha20poly1305.NonceSizeX, len(plain)+Overhead)
	out[0] = format
	nonce := out[1:]
	if _, err := rand.Read(nonce); err != nil {
		panic("vault: no system randomness: " + err.Error())
	}
	return v.aeads[info.domain].Seal(out, nonce, plain, binding(field, rowID))
}

// Open decrypts what Seal returned for the same field and row. Anything else is
// fault.Verification that names the column and the row, without telling which part
// did not match.
func (v *Vault) Open(field Field, rowID string, value []byte) ([]byte, error) {
	info := mustBe(field, sealed)
	if len(value) < Overhead {
		return nil, fault.New(fault.Verification, "open %s of row %q: %d bytes are too short for a sealed value", field.Column(), rowID, len(value))
	}
	if value[0] != format {
		return nil, fault.New(fault.Verification, "open %s of row %q: unknown sealed format %d", field.Column(), rowID, value[0]).
			WithHint("a newer ombud may have written it")
	}
	nonce, body := value[1:1+chacha20poly1305.NonceSizeX], value[1+chacha20poly1305.NonceSizeX:]
	plain, err := v.aeads[info.domain].Open(nil, nonce, body, binding(field, rowID))
	if err != nil {
		return nil, fault.New(fault.Verification, "open %s of row %q: the value was changed, moved, or sealed under another key", field.Column(), rowID)
	}
	return plain, nil
}

// Blind returns 32 bytes that are equal exactly when value is equal apart from
// white space around it. Case is kept: not every channel ignores it.
func (v *Vault) Blind(field Field, value string) []byte {
	mustBe(field, blind)
	m := hmac.New(sha256.New, v.blinds[field])
	m.Write([]byte(strings.TrimSpace(value)))
	return m.Sum(nil)
}

// MAC returns 32 bytes over the parts, each with its length, under a key of the
// named domain. Domains are constants of the program, never input.
func (v *Vault) MAC(domain string, parts ...[]byte) []byte {
	p, ok := v.states.Load(domain)
	if !ok {
		p, _ = v.states.LoadOrStore(domain, &sync.Pool{New: func() any { return v.Digest(domain) }})
	}
	pool := p.(*sync.Pool)
	m := pool.Get().(hash.Hash)
	defer pool.Put(m)
	m.Reset()
	var size [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(size[:], uint64(len(p)))
		m.Write(size[:])
		m.Write(p)
	}
	return m.Sum(make([]byte, 0, sha256.Size))
}

// Digest returns a keyed hash of a stream, for content too large to hold. Its
// result differs from MAC of the same bytes; keep to one of them in a domain.
func (v *Vault) Digest(domain string) hash.Hash {
	key, ok := v.macs.Load(domain)
	if !ok {
		key, _ = v.macs.LoadOrStore(domain, v.derive("mac/"+domain))
	}
	return hmac.New(sha256.New, key.([]byte))
}

// AuditKey returns the key of the audit chain's MAC.
func (v *Vault) AuditKey() []byte { return append([]byte(nil), v.audit...) }

// SigningKey returns the instance's Ed25519 key; it is derived, so it lives as
// long as the master key does.
func (v *Vault) SigningKey() ed25519.PrivateKey {
	return append(ed25519.PrivateKey(nil), v.signing...)
}

// PublicKey returns the public half of SigningKey.
func (v *Vault) PublicKey() ed25519.PublicKey {
	return v.signing.Public().(ed25519.PublicKey)
}

// String returns "vault" and the fingerprint of the public key.
func (v *Vault) String() string { return "vault " + v.Keys().Fingerprint() }

// GoString is String, so that %#v prints no key either.
func (v *Vault) GoString() string { return v.String() }

// LogValue is String for structured logs.
func (v *Vault) LogValue() slog.Value { return slog.StringValue(v.String()) }

func mustBe(field Field, k kind) fieldInfo {
	info, ok := fields[field]
	if !ok || info.kind != k {
		panic("vault: " + field.String() + " is used as what it is not declared to be")
	}
	return info
}

// binding is the additional data of a sealed value. The number has a fixed width,
// so no two pairs share one.
func binding(field Field, rowID string) []byte {
	b := make([]byte, 2, 2+len(rowID))
	binary.BigEndian.PutUint16(b, uint16(field))
	return append(b, rowID...)
}
