// Package signedtest makes artifacts of signed loops for tests: ours, and those of the
// described system, which ombud reads and never writes.
package signedtest

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/wasmloop"
)

// Module is the smallest module that is a loop: it exports a memory, and a run that does
// nothing. note makes it another file.
func Module(note string) []byte {
	m := []byte("\x00asm\x01\x00\x00\x00\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x05\x03\x01\x00\x01" +
		"\x07\x10\x02\x06memory\x02\x00\x03run\x00\x00\x0a\x04\x01\x02\x00\x0b")
	if note != "" {
		m = append(m, 0)
		m = binary.AppendUvarint(m, uint64(len(note)+2))
		m = append(m, 1, 'n')
		m = append(m, note...)
	}
	return m
}

// Key is a publisher's or registry's key, the same for the same name.
func Key(name string) ed25519.PrivateKey {
	seed := sha256.Sum256([]byte("signedtest " + name))
	return ed25519.NewKeyFromSeed(seed[:])
}

// Public is the public half of Key, as manifests and trust have it.
func Public(name string) string {
	return wasmloop.EncodeKey(Key(name).Public().(ed25519.PublicKey)) //nolint:forcetypeassert // what it returns
}

// V2 is an artifact of our format. publisher and registry name keys; "" for no signature.
func V2(t testing.TB, m wasmloop.Manifest, module []byte, publisher, registry string) []byte {
	t.Helper()
	m = filled(m, module, publisher)
	var sigs []wasmloop.Signature
	if publisher != "" {
		sigs = append(sigs, wasmloop.Sign(&m, wasmloop.RolePublisher, Key(publisher)))
	}
	if registry != "" {
		sigs = append(sigs, wasmloop.Sign(&m, wasmloop.RoleRegistry, Key(registry)))
	}
	data, err := wasmloop.Pack(m, module, sigs)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// V1 is an artifact of the described system: description, tools and provided tools are not
// in what is signed.
func V1(t testing.TB, m wasmloop.Manifest, module []byte, publisher, registry string) []byte {
	t.Helper()
	m = filled(m, module, publisher)
	var sigs []wasmloop.Signature
	for role, name := range map[wasmloop.Role]string{wasmloop.RolePublisher: publisher, wasmloop.RoleRegistry: registry} {
		if name != "" {
			sigs = append(sigs, wasmloop.Signature{Role: role, Key: Public(name), Sig: base64.RawURLEncoding.EncodeToString(ed25519.Sign(Key(name), signedV1(m)))})
		}
	}
	return PackV1(t, m, module, sigs)
}

// PackV1 is V1 with the signatures given, whatever they are over.
func PackV1(t testing.TB, m wasmloop.Manifest, module []byte, sigs []wasmloop.Signature) []byte {
	t.Helper()
	head, err := json.Marshal(struct {
		Manifest   wasmloop.Manifest    `json:"manifest"`
		Signatures []wasmloop.Signature `json:"signatures"`
	}{m, sigs})
	if err != nil {
		t.Fatal(err)
	}
	out := binary.BigEndian.AppendUint32([]byte("KMXLOOP\x01"), uint32(len(head))) //nolint:gosec // a header of a test
	return append(append(out, head...), module...)
}

func filled(m wasmloop.Manifest, module []byte, publisher string) wasmloop.Manifest {
	sum := sha256.Sum256(module)
	m.SHA256 = hex.EncodeToString(sum[:])
	if m.Name == "" {
		m.Name = "hello"
	}
	if m.Version == "" {
		m.Version = "1.0.0"
	}
	if publisher != "" {
		m.Publisher = Public(publisher)
	}
	return m
}

// signedV1 is what a signature of the described system is over.
func signedV1(m wasmloop.Manifest) []byte {
	list := func(s []string) string {
		s = slices.Clone(s)
		slices.Sort(s)
		return strings.Join(s, ",")
	}
	return []byte(strings.Join([]string{
		"karmax-loop-v1", "name=" + m.Name, "version=" + m.Version, "publisher=" + m.Publisher, "host=" + list(m.Host),
		"caps=" + list(m.Capabilities), "schedule=" + m.Schedule, "events=" + list(m.Events), "webhook=" + m.Webhook,
		"memory_mb=" + strconv.Itoa(m.MemoryMB), "sha256=" + m.SHA256, "source=" + m.SourceURL, "built=" + strconv.FormatInt(m.BuiltAt, 10),
	}, "|"))
}
