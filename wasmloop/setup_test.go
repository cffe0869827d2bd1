package wasmloop

import (
	"crypto/ed25519"
	"encoding/json"
	"testing"
)

// key makes a key pair of a name: the same one each time.
func key(name string) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	copy(seed, name)
	return ed25519.NewKeyFromSeed(seed)
}

func public(name string) string {
	return EncodeKey(key(name).Public().(ed25519.PublicKey)) //nolint:forcetypeassert // what it returns
}

// sample is a manifest with every field set, of a module that is not one.
func sample() (Manifest, []byte) {
	module := []byte("\x00asm\x01\x00\x00\x00")
	return Manifest{
		Name: "sample", Version: "1.2.0", Description: "does <things> & more", Publisher: public("maker"),
		Host: []string{FnLog, FnHTTP, FnTool, FnAsk}, Tools: []string{"calendar.add"},
		Provides:     []ToolSpec{{Name: "lookup", Description: "looks up", Parameters: json.RawMessage(`{"type":"object"}`)}},
		Capabilities: []string{"http:api.example.com", "memory:main:write", "tool:agent.ask"},
		Schedule:     "0 */5 * * * *", Events: []string{"comms.message"}, Webhook: "/hooks/sample", MemoryMB: 32,
		SHA256: digest(module), SourceURL: "https://example.com/sample", BuiltAt: 1_780_000_000,
	}, module
}

// signed are signatures by the named keys: the first as the publisher, the others as
// registries.
func signed(names []string, by func(Role, ed25519.PrivateKey) Signature) (sigs []Signature) {
	for i, name := range names {
		role := RoleRegistry
		if i == 0 {
			role = RolePublisher
		}
		sigs = append(sigs, by(role, key(name)))
	}
	return sigs
}

// packed is a file of format v2.
func packed(t testing.TB, m Manifest, module []byte, signers ...string) []byte {
	t.Helper()
	data, err := Pack(m, module, signed(signers, func(r Role, k ed25519.PrivateKey) Signature { return Sign(&m, r, k) }))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// packedV1 is what a KARMAX of today writes.
func packedV1(t testing.TB, m Manifest, module []byte, signers ...string) []byte {
	t.Helper()
	sigs := signed(signers, func(r Role, k ed25519.PrivateKey) Signature { return sign(signedV1(&m), r, k) })
	data, err := pack(magicV1, maxHeaderV1, m, module, sigs)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// reviewed trusts the registry "reviewer".
func reviewed() Trust { return Trust{Registries: []string{public("reviewer")}} }
