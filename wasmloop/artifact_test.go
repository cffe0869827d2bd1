package wasmloop

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

func TestWhatIsPackedIsUnpacked(t *testing.T) {
	t.Parallel()
	m, module := sample()
	data := packed(t, m, module, "maker")
	a, err := Unpack(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Pack(a.Manifest, a.Module, a.Signatures)
	if err != nil || !bytes.Equal(again, data) {
		t.Errorf("packed again it differs: %v", err)
	}
	if a.Digest() != m.SHA256 || a.Format() != 2 || len(a.Unsigned()) != 0 {
		t.Errorf("%s, format %d, unsigned %q", a.Digest(), a.Format(), a.Unsigned())
	}
}

// The bytes of v1, written out.
func TestTheBytesOfV1(t *testing.T) {
	t.Parallel()
	head := `{"manifest":{"name":"a","version":"1","description":"d \u0026 e","publisher":"","host":["log"],"capabilities":null,"sha256":"` +
		digest([]byte("m")) + `","later":{"x":1}},"signatures":null}`
	data := append([]byte{0x4b, 0x4d, 0x58, 0x4c, 0x4f, 0x4f, 0x50, 0x01, 0, 0, 0, byte(len(head))}, head+"m"...)
	a, v, err := VerifyBytes(data, Trust{AllowUntrusted: true})
	if err != nil {
		t.Fatal(err)
	}
	if a.Manifest.Name != "a" || a.Manifest.Description != "d & e" || v.Tier != TierUntrusted || a.Format() != 1 {
		t.Errorf("%+v %+v", a.Manifest, v)
	}
	m, module := sample()
	const want = `karmax-loop-v1|name=sample|version=1.2.0|publisher=`
	if got := string(signedV1(&m)); !strings.HasPrefix(got, want) || !strings.HasSuffix(got,
		`|host=ask,http,log,tool|caps=http:api.example.com,memory:main:write,tool:agent.ask|schedule=0 */5 * * * *|events=comms.message|`+
			`webhook=/hooks/sample|memory_mb=32|sha256=`+digest(module)+`|source=https://example.com/sample|built=1780000000`) {
		t.Errorf("what is signed: %s", got)
	}
}

func TestWhatIsNotAnArtifactIsRefused(t *testing.T) {
	t.Parallel()
	m, module := sample()
	whole := packed(t, m, module, "maker")
	claim := func(n uint32) []byte {
		b := bytes.Clone(whole)
		binary.BigEndian.PutUint32(b[len(magicV2):], n)
		return b
	}
	spaced := func() []byte {
		head := bytes.Replace(whole[headStart:len(whole)-len(module)], []byte(`,"version"`), []byte(`, "version"`), 1)
		out := binary.BigEndian.AppendUint32([]byte(magicV2), uint32(len(head))) //nolint:gosec // small
		return append(append(out, head...), module...)
	}
	twice := func() []byte {
		head := bytes.Replace(whole[headStart:len(whole)-len(module)], []byte(`"version":"1.2.0"`), []byte(`"version":"6","version":"1.2.0"`), 1)
		out := binary.BigEndian.AppendUint32([]byte(magicV2), uint32(len(head))) //nolint:gosec // small
		return append(append(out, head...), module...)
	}
	for name, data := range map[string][]byte{
		"nothing": {}, "another magic": []byte("PK\x03\x04 and more of it"), "cut in the header": whole[:40],
		"no module": whole[:len(whole)-len(module)], "a header too long": claim(maxHeaderV2 + 1), "a header past the end": claim(uint32(len(whole))), //nolint:gosec // small
		"a header of nothing": claim(0), "a header with other spaces": spaced(), "a key twice": twice(),
		"a module too long": append(bytes.Clone(whole), make([]byte, maxModule)...),
	} {
		if _, err := Unpack(data); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for cut := range len(whole) - len(module) {
		if _, err := Unpack(whole[:cut]); !errors.Is(err, ErrMalformed) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	if _, err := Pack(m, nil, nil); !errors.Is(err, ErrMalformed) {
		t.Errorf("packed without a module: %v", err)
	}
	m.Description = strings.Repeat("d", maxHeaderV2)
	if _, err := Pack(m, module, nil); !errors.Is(err, ErrMalformed) {
		t.Errorf("packed with a header too long: %v", err)
	}
}

func FuzzUnpack(f *testing.F) {
	m, module := sample()
	f.Add(packed(f, m, module, "maker", "reviewer"))
	f.Add(packedV1(f, m, module, "maker", "reviewer"))
	f.Add(packed(f, Manifest{Name: "n", Version: "1"}, module))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := Unpack(data)
		if err != nil {
			if !errors.Is(err, ErrMalformed) || a != nil {
				t.Fatalf("%v %v", a, err)
			}
			return
		}
		if _, err := Verify(a, Trust{AllowUntrusted: true}); err != nil && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrAltered) {
			t.Fatal(err)
		}
		Describe(a.Manifest)
		if a.Format() == 1 {
			return // its headers are spelled freely
		}
		again, err := Pack(a.Manifest, a.Module, a.Signatures)
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("packed again it differs: %v", err)
		}
	})
}
