package vault

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/argon2"

	"github.com/ombud-run/ombud/internal/fault"
)

func TestTheStoresCopyMendsAVaultFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm func(h *house) error
		says string
	}{
		"lost":    {func(h *house) error { return os.Remove(h.files.Envelope) }, "was lost"},
		"torn":    {func(h *house) error { return os.Truncate(h.files.Envelope, 100) }, "damaged"},
		"empty":   {func(h *house) error { return os.Truncate(h.files.Envelope, 0) }, "damaged"},
		"garbage": {func(h *house) error { return os.WriteFile(h.files.Envelope, []byte("{}"), 0o600) }, "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			k := h.open(h.sources(FromEnv, "correct horse"))
			if err := c.harm(h); err != nil {
				t.Fatal(err)
			}
			alone := &house{t: t, files: h.files, ring: h.ring, memory: Memory{Public: h.memory.Public}}
			_, err := alone.try(h.sources(FromEnv, "correct horse"))
			if !fault.Is(err, fault.Verification) || fault.HintOf(err) == "" {
				t.Errorf("without a copy: %s %v", fault.ClassOf(err), err)
			}
			got := h.open(h.sources(FromEnv, "correct horse"))
			if got.Public() != k.Public() || !strings.Contains(strings.Join(got.State().Notes, "\n"), c.says) {
				t.Errorf("%+v", got.State())
			}
			if _, err := ReadEnvelope(h.files.Envelope); err != nil {
				t.Errorf("not mended: %v", err)
			}
		})
	}
}

func TestAnOlderVaultFileGivesWayToTheStoresCopy(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	k := h.open(h.sources(FromEnv, "correct horse"))
	old, err := os.ReadFile(h.files.Envelope)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.SetPassphrase(t.Context(), phrase(t, "battery staple"), false); err != nil {
		t.Fatal(err)
	}
	h.remember(k)
	if err := os.WriteFile(h.files.Envelope, old, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.try(h.sources(FromEnv, "correct horse")); !fault.Is(err, fault.Permission) {
		t.Errorf("the old passphrase: %v", err)
	}
	if got := h.open(h.sources(FromEnv, "battery staple")); !strings.Contains(strings.Join(got.State().Notes, "\n"), "older") {
		t.Errorf("%+v", got.State())
	}
}

func TestFilesOfAnotherStoreAreRefusedAndKept(t *testing.T) {
	t.Parallel()
	a, b := newHouse(t), newHouse(t)
	a.open(a.sources(FromFile, ""))
	b.open(b.sources(FromFile, ""))
	b.files.Envelope = a.files.Envelope
	before, err := os.ReadFile(a.files.Envelope)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.try(b.sources(FromFile, "")); !fault.Is(err, fault.Verification) || !strings.Contains(err.Error(), "not the one of this store") {
		t.Errorf("%v", err)
	}
	if after, err := os.ReadFile(a.files.Envelope); err != nil || !bytes.Equal(before, after) {
		t.Errorf("it was changed: %v", err)
	}
}

// Whatever is cut off or flipped is found before anything is computed from it, and
// never taken for a wrong passphrase.
func TestAnEnvelopeTornOrChangedAtEachByteIsFound(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	k := h.open(h.sources(FromEnv, "correct horse"))
	if _, err := k.NewRecoveryKey(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(h.files.Envelope)
	if err != nil {
		t.Fatal(err)
	}
	h.stretched.Store(0)
	memory := Memory{Public: k.Public()}
	for n := range whole {
		flipped := bytes.Clone(whole)
		flipped[n] ^= 1 << (n % 8)
		for what, data := range map[string][]byte{"torn": whole[:n], "changed": flipped} {
			if err := os.WriteFile(h.files.Envelope, data, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Open(t.Context(), h.files, h.sources(FromEnv, "correct horse"), memory, true)
			if c := fault.ClassOf(err); c != fault.Verification && !errors.Is(err, errEnvelopeVersion) || errors.Is(err, errWrongKey) || fault.HintOf(err) == "" {
				t.Fatalf("%s at byte %d: %s %v", what, n, c, err)
			}
		}
	}
	if n := h.stretched.Load(); n != 0 {
		t.Errorf("it was stretched %d times for a damaged file", n)
	}
}

// Somebody who writes the file writes its checksum too. Then the wraps themselves
// tell, or what they say is refused before it costs anything.
func TestAForgedEnvelopeIsRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	k := h.open(h.sources(FromEnv, "correct horse"))
	if _, err := k.NewRecoveryKey(); err != nil {
		t.Fatal(err)
	}
	good, err := ReadEnvelope(h.files.Envelope)
	if err != nil {
		t.Fatal(err)
	}
	other := newHouse(t)
	foreign := other.open(other.sources(FromEnv, "correct horse"))
	params := func(a Argon2) func(*Envelope) { return func(e *Envelope) { e.Wraps[0].Argon2 = &a } }
	for name, c := range map[string]struct {
		forge func(*Envelope)
		class fault.Class
		wrong bool // taken for a wrong passphrase, as nothing can tell it from one
	}{
		"a tebibyte":          {params(Argon2{19, 1 << 30, 3, 4}), fault.Verification, false},
		"most memory":         {params(Argon2{19, 1<<32 - 1, 1, 1}), fault.Verification, false},
		"many passes":         {params(Argon2{19, 64 << 10, 1 << 31, 4}), fault.Verification, false},
		"much of both":        {params(Argon2{19, 1 << 20, 16, 4}), fault.Verification, false},
		"no memory":           {params(Argon2{19, 0, 3, 4}), fault.Verification, false},
		"little memory":       {params(Argon2{19, 8, 1, 1}), fault.Verification, false},
		"no passes":           {params(Argon2{19, 64 << 10, 0, 4}), fault.Verification, false},
		"no threads":          {params(Argon2{19, 64 << 10, 3, 0}), fault.Verification, false},
		"255 threads":         {params(Argon2{19, 64 << 10, 3, 255}), fault.Verification, false},
		"old version":         {params(Argon2{16, 64 << 10, 3, 4}), fault.Verification, false},
		"weaker parameters":   {params(Argon2{19, 8 << 10, 1, 1}), fault.Permission, true},
		"no parameters":       {func(e *Envelope) { e.Wraps[0].Argon2 = nil }, fault.Verification, false},
		"another kind":        {func(e *Envelope) { e.Wraps[0].Kind = "plain" }, fault.Verification, false},
		"another salt":        {func(e *Envelope) { e.Wraps[0].Salt[0] ^= 1 }, fault.Permission, true},
		"a short salt":        {func(e *Envelope) { e.Wraps[0].Salt = e.Wraps[0].Salt[1:] }, fault.Verification, false},
		"another box":         {func(e *Envelope) { e.Wraps[0].Box[30] ^= 1 }, fault.Verification, false},
		"a time":              {func(e *Envelope) { e.Wraps[0].Made++ }, fault.Verification, false},
		"a name":              {func(e *Envelope) { e.Wraps[0].ID = newID() }, fault.Verification, false},
		"the vault's name":    {func(e *Envelope) { e.Vault = newID() }, fault.Verification, false},
		"another public key":  {func(e *Envelope) { e.Public = foreign.Public() }, fault.Verification, false},
		"no wraps":            {func(e *Envelope) { e.Wraps = nil }, fault.Verification, false},
		"too many":            {func(e *Envelope) { e.Wraps = slices.Repeat(e.Wraps, 9) }, fault.Verification, false},
		"one twice":           {func(e *Envelope) { e.Wraps = append(e.Wraps, e.Wraps[0]) }, fault.Verification, false},
		"generation zero":     {func(e *Envelope) { e.Generation = 0 }, fault.Verification, false},
		"a wrap of another":   {func(e *Envelope) { e.Wraps[0] = foreign.envelope.Wraps[0] }, fault.Verification, false},
		"only the other wrap": {func(e *Envelope) { e.Wraps = e.Wraps[1:] }, fault.Permission, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var e Envelope
			raw, err := json.Marshal(good)
			if err == nil {
				err = json.Unmarshal(raw, &e)
			}
			if err != nil {
				t.Fatal(err)
			}
			c.forge(&e)
			f := Files{Envelope: filepath.Join(t.TempDir(), "vault"), Key: filepath.Join(t.TempDir(), "none")}
			if err := os.WriteFile(f.Envelope, e.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = Open(t.Context(), f, h.sources(FromEnv, "correct horse"), Memory{Public: k.Public()}, true)
			if !fault.Is(err, c.class) || errors.Is(err, errWrongKey) != c.wrong || fault.HintOf(err) == "" {
				t.Errorf("%s %v", fault.ClassOf(err), err)
			}
		})
	}
}

func TestAVaultFileOfANewerOmbudIsLeftAlone(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.open(h.sources(FromFile, ""))
	raw, err := os.ReadFile(h.files.Envelope)
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Replace(raw, []byte(envelopeMagic+" 1 "), []byte(envelopeMagic+" 2 "), 1)
	if err := os.WriteFile(h.files.Envelope, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.try(h.sources(FromFile, "")); !fault.Is(err, fault.Config) || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("%v", err)
	}
	if after, err := os.ReadFile(h.files.Envelope); err != nil || !bytes.Equal(after, newer) {
		t.Errorf("it was changed: %v", err)
	}
}

func FuzzParseEnvelope(f *testing.F) {
	h := Envelope{Vault: newID(), Generation: 7, Public: strings.Repeat("ab", 32)}
	master := bytes.Repeat([]byte{7}, KeySize)
	small := recommended()
	w, err := h.seals(Wrap{Kind: ByPassphrase, Argon2: &small}, []byte("x"), master, func(p, s []byte, _ Argon2) []byte { return argon2.IDKey(p, s, 1, 8, 1, 32) })
	if err != nil {
		f.Fatal(err)
	}
	good := h.with(w).Bytes()
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add([]byte(envelopeMagic + " 9 x\n{}"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		// The checksum is right for every body, so that what is behind it is reached.
		for _, d := range [][]byte{data, withChecksum(data)} {
			e, err := ParseEnvelope(d)
			if err != nil {
				if c := fault.ClassOf(err); c != fault.Verification && c != fault.Config {
					t.Fatalf("%s %v", c, err)
				}
				continue
			}
			again, err := ParseEnvelope(e.Bytes())
			if err != nil || !bytes.Equal(again.Bytes(), e.Bytes()) {
				t.Fatalf("not the same again: %v", err)
			}
			for _, w := range e.of(ByPassphrase) {
				if w.Argon2.sane() != nil {
					t.Fatalf("%+v", w.Argon2)
				}
			}
		}
	})
}
