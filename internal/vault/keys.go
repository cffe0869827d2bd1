package vault

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"log/slog"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

const publicPrefix = "ombud-ed25519:"

// Keys is what verifying needs. With the public key alone an auditor checks
// signatures and hashes; with Audit set the chain's MACs are checked too.
type Keys struct {
	Public ed25519.PublicKey
	Audit  []byte // nil for an auditor without secrets
}

// Keys returns both keys, for verifying one's own store.
func (v *Vault) Keys() Keys { return Keys{Public: v.PublicKey(), Audit: v.AuditKey()} }

// ParsePublicKey reads the form PublicString writes.
func ParsePublicKey(s string) (Keys, error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(s), publicPrefix)
	raw, err := base64.RawStdEncoding.Strict().DecodeString(rest)
	if !ok || err != nil || len(raw) != ed25519.PublicKeySize {
		return Keys{}, fault.New(fault.Invalid, "not a public key of ombud").
			WithHint("it looks like %s and 43 more characters", publicPrefix)
	}
	return Keys{Public: raw}, nil
}

// PublicString returns the public key in its printable form.
func (k Keys) PublicString() string {
	return publicPrefix + base64.RawStdEncoding.EncodeToString(k.Public)
}

// Fingerprint names the key in 16 hex digits, for people to compare.
func (k Keys) Fingerprint() string {
	sum := sha256.Sum256(k.Public)
	return hex.EncodeToString(sum[:8])
}

// Verify returns fault.Verification unless sig is this key's signature of msg.
func (k Keys) Verify(msg, sig []byte) error {
	if len(k.Public) != ed25519.PublicKeySize || !ed25519.Verify(k.Public, msg, sig) {
		return fault.New(fault.Verification, "the signature is not by key %s", k.Fingerprint())
	}
	return nil
}

// String names the public key and hides the other.
func (k Keys) String() string { return "keys " + k.Fingerprint() }

// GoString is String.
func (k Keys) GoString() string { return k.String() }

// LogValue is String for structured logs.
func (k Keys) LogValue() slog.Value { return slog.StringValue(k.String()) }
