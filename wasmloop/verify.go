package wasmloop

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Role says which signature this is.
type Role string

// The roles. Both sign the same manifest.
const (
	RolePublisher Role = "publisher" // who made it
	RoleRegistry  Role = "registry"  // who reviewed it
)

// Signature is one attestation over the manifest.
type Signature struct {
	Role Role   `json:"role"`
	Key  string `json:"key"` // Ed25519 public key, base64 raw URL
	Sig  string `json:"sig"` // 64 bytes, base64 raw URL
}

// Tier is how much an artifact was vouched for.
type Tier string

const (
	// TierRegistry is countersigned by a registry key the operator trusts: it was reviewed.
	TierRegistry Tier = "registry"
	// TierCommunity carries only its publisher's signature.
	TierCommunity Tier = "community"
	// TierUntrusted carries no valid signature at all: nothing is known of where it came
	// from. It is there for what a developer has just built.
	TierUntrusted Tier = "untrusted"
)

// Trust is the operator's configuration for what to accept.
type Trust struct {
	// Registries are the countersigning keys this instance trusts. With none nothing
	// reaches the registry tier.
	Registries []string
	// Revoked lists publisher or registry keys that are refused, whatever else holds.
	Revoked []string
	// AllowCommunity accepts artifacts with a publisher's signature only.
	AllowCommunity bool
	// AllowUntrusted accepts an artifact with no signature. It is set for one install by
	// an operator who typed the loop's name, and is never stored.
	AllowUntrusted bool

	// broken is why the stored trust cannot be read. With it nothing is let in: a list of
	// revoked keys that is lost must not be an empty one.
	broken error
}

// Verdict is the result of verifying an artifact.
type Verdict struct {
	Tier Tier
	// Publisher is the key that signed it, "" if nobody did.
	Publisher string
	// Registry is the countersigning key, when there is one that is trusted.
	Registry string
}

// Sign produces a signature over a manifest, of format v2: over its role and every field.
// Name, Version, Publisher and SHA256 must be set before.
func Sign(m *Manifest, role Role, priv ed25519.PrivateKey) Signature {
	return sign(signedV2(m, role), role, priv)
}

func sign(text []byte, role Role, priv ed25519.PrivateKey) Signature {
	return Signature{
		Role: role,
		Key:  EncodeKey(priv.Public().(ed25519.PublicKey)), //nolint:forcetypeassert // what it returns
		Sig:  base64.RawURLEncoding.EncodeToString(ed25519.Sign(priv, text)),
	}
}

// signedV2 is what a signature of format v2 is over. A manifest that JSON cannot hold
// gives a text that no artifact has, since it cannot be packed either.
func signedV2(m *Manifest, role Role) []byte {
	text := []byte("ombud-loop-v2\nrole=" + string(role) + "\n")
	body, err := json.Marshal(m)
	if err != nil {
		return text
	}
	return append(text, body...)
}

// signedV1 is what a signature of format v1 is over, for either role. Description, Tools
// and Provides are not in it.
func signedV1(m *Manifest) []byte {
	list := func(s []string) string {
		s = slices.Clone(s)
		slices.Sort(s)
		return strings.Join(s, ",")
	}
	return []byte(strings.Join([]string{
		"karmax-loop-v1",
		"name=" + m.Name,
		"version=" + m.Version,
		"publisher=" + m.Publisher,
		"host=" + list(m.Host),
		"caps=" + list(m.Capabilities),
		"schedule=" + m.Schedule,
		"events=" + list(m.Events),
		"webhook=" + m.Webhook,
		"memory_mb=" + strconv.Itoa(m.MemoryMB),
		"sha256=" + strings.ToLower(m.SHA256),
		"source=" + m.SourceURL,
		"built=" + strconv.FormatInt(m.BuiltAt, 10),
	}, "|"))
}

func (a *Artifact) signed(role Role) []byte {
	if a.v1 {
		return signedV1(&a.Manifest)
	}
	return signedV2(&a.Manifest, role)
}

// EncodeKey spells a public key as manifests and trust files do: base64 raw URL.
func EncodeKey(k ed25519.PublicKey) string { return base64.RawURLEncoding.EncodeToString(k) }

// ParseKey reads what [EncodeKey] writes.
func ParseKey(s string) (ed25519.PublicKey, error) {
	b, err := decode(s, ed25519.PublicKeySize)
	if err != nil {
		return nil, fmt.Errorf("key %q: %w", s, err)
	}
	return b, nil
}

// decode reads base64 raw URL of n bytes, in the one spelling there is.
func decode(s string, n int) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != n || strings.ContainsAny(s, "\r\n") {
		return nil, fmt.Errorf("%w: it is not %d bytes in base64 (raw, URL)", ErrMalformed, n)
	}
	return b, nil
}

// VerifyBytes is Unpack plus Verify, which is the only correct order.
func VerifyBytes(data []byte, t Trust) (*Artifact, *Verdict, error) {
	a, err := Unpack(data)
	if err != nil {
		return nil, nil, err
	}
	v, err := Verify(a, t)
	if err != nil {
		return nil, nil, err
	}
	return a, v, nil
}

// Verify checks an artifact end to end and reports what it may be trusted as. Any
// signature that does not hold refuses the whole.
func Verify(a *Artifact, t Trust) (*Verdict, error) {
	m := &a.Manifest
	if err := m.named(); err != nil {
		return nil, err
	}
	if t.broken != nil {
		return nil, fmt.Errorf("%w: %s: what is trusted cannot be read: %w", ErrUntrusted, m.Name, t.broken)
	}
	if got := a.Digest(); !sameDigest(m.SHA256, got, a.v1) {
		return nil, fmt.Errorf("%w: the module of %s has the sha256 %s and its manifest says %q", ErrAltered, m.Name, got, m.SHA256)
	}
	v := &Verdict{Tier: TierUntrusted}
	if m.Publisher != "" {
		if _, err := ParseKey(m.Publisher); err != nil {
			return nil, fmt.Errorf("publisher of %s: %w", m.Name, err)
		}
		if slices.Contains(t.Revoked, m.Publisher) {
			return nil, fmt.Errorf("%w: the publisher of %s is revoked: %s", ErrUntrusted, m.Name, m.Publisher)
		}
	} else if len(a.Signatures) > 0 {
		return nil, fmt.Errorf("%w: %s is signed and names no publisher", ErrAltered, m.Name)
	}
	for _, s := range a.Signatures {
		if err := v.take(a, s, t); err != nil {
			return nil, err
		}
	}
	switch {
	case v.Publisher == "":
		v.Tier = TierUntrusted
	case v.Registry != "":
		v.Tier = TierRegistry
	default:
		v.Tier = TierCommunity
	}
	if err := t.admit(m, v.Tier); err != nil {
		return nil, err
	}
	return v, nil
}

// take checks one signature and notes what it attests.
func (v *Verdict) take(a *Artifact, s Signature, t Trust) error {
	name := a.Manifest.Name
	key, err := ParseKey(s.Key)
	if err != nil {
		return fmt.Errorf("%s signature of %s: %w", s.Role, name, err)
	}
	sig, err := decode(s.Sig, ed25519.SignatureSize)
	if err != nil {
		return fmt.Errorf("%s signature of %s: %w", s.Role, name, err)
	}
	if !ed25519.Verify(key, a.signed(s.Role), sig) {
		return fmt.Errorf("%w: the %s signature of %s does not hold: the manifest was changed after it was signed", ErrAltered, s.Role, name)
	}
	if slices.Contains(t.Revoked, s.Key) {
		return fmt.Errorf("%w: %s is signed by a revoked key: %s", ErrUntrusted, name, s.Key)
	}
	switch s.Role {
	case RolePublisher:
		if s.Key != a.Manifest.Publisher {
			return fmt.Errorf("%w: %s is signed by %s and names %s as its publisher", ErrAltered, name, s.Key, a.Manifest.Publisher)
		}
		v.Publisher = s.Key
	case RoleRegistry:
		if slices.Contains(t.Registries, s.Key) {
			v.Registry = s.Key
		}
	default:
		return fmt.Errorf("%w: a signature of %s has the role %q, which is none", ErrMalformed, name, s.Role)
	}
	return nil
}

// admit refuses a tier that the operator does not accept.
func (t Trust) admit(m *Manifest, tier Tier) error {
	switch {
	case tier == TierRegistry, t.AllowUntrusted, tier == TierCommunity && t.AllowCommunity:
		return nil
	case tier == TierCommunity:
		return fmt.Errorf("%w: %s is signed by its publisher only, and no registry you trust has reviewed it; trust the publisher's registry, or accept this one loop by its name", ErrUntrusted, m.Name)
	}
	return fmt.Errorf("%w: %s has no signature; sign it, or accept this one loop by its name", ErrUntrusted, m.Name)
}

// sameDigest compares the digest a manifest names. Writers of v1 were free in its case.
func sameDigest(named, is string, v1 bool) bool {
	if v1 {
		named = strings.ToLower(named)
	}
	return named == is
}
