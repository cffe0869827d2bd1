package vault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/argon2"
	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/fault"
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

func TestAFreshVaultIsMadeInTheFormItsSourceNames(t *testing.T) {
	t.Parallel()
	for use, want := range map[Source]Kind{FromAuto: ByFile, FromFile: ByFile, FromEnv: ByPassphrase, FromKeyring: ByKeyring} {
		t.Run(string(use), func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			variable := ""
			if use == FromEnv {
				variable = "correct horse"
			}
			k := h.open(h.sources(use, variable))
			if st := k.State(); st.OpenedBy != want || len(st.Wraps) != 1 || h.exists(h.files.Key) != (want == ByFile) {
				t.Errorf("%+v", st)
			}
			again := h.open(h.sources(use, variable))
			if again.Public() != k.Public() {
				t.Error("another master")
			}
			if want == ByFile {
				key, err := os.ReadFile(h.files.Key)
				if err != nil {
					t.Fatal(err)
				}
				if v, err := New(key); err != nil || publicOf(v) == k.Public() {
					t.Errorf("the key file is the master itself, %v", err)
				}
			}
		})
	}
}

func TestAKeyFileFromBeforeGoesOnOpening(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	v, err := OpenKeyFile(h.files.Key)
	if err != nil {
		t.Fatal(err)
	}
	h.memory.Public = publicOf(v)
	before, err := os.ReadFile(h.files.Key)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		k := h.open(h.sources(FromAuto, ""))
		if k.Public() != publicOf(v) || !strings.Contains(strings.Join(k.State().Exposed, "\n"), "first key file") {
			t.Errorf("%s, %+v", k.Public(), k.State())
		}
	}
	if after, err := os.ReadFile(h.files.Key); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the key file was changed: %v", err)
	}
	if raw, err := os.ReadFile(h.files.Envelope); err != nil || bytes.Contains(raw, before) {
		t.Errorf("no envelope, or the master in it: %v", err)
	}
}

func TestAPassphraseTakesThePlaceOfTheKeyFile(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	k := h.open(h.sources(FromAuto, ""))
	if err := k.SetPassphrase(t.Context(), phrase(t, "correct horse"), false); err != nil {
		t.Fatal(err)
	}
	h.remember(k)
	if h.exists(h.files.Key) {
		t.Error("the key file is still there")
	}
	if got := h.open(h.sources(FromAuto, "correct horse")); got.Public() != k.Public() {
		t.Error("another master")
	}
	_, err := h.try(h.sources(FromAuto, "wrong horses"))
	if !fault.Is(err, fault.Permission) || !errors.Is(err, errWrongKey) || !strings.Contains(fault.HintOf(err), "recover") {
		t.Errorf("wrong passphrase: %s %v", fault.ClassOf(err), err)
	}
	_, err = h.try(h.sources(FromAuto, ""))
	if !fault.Is(err, fault.Permission) || !strings.Contains(err.Error(), "no OMBUD_PASSPHRASE") {
		t.Errorf("no passphrase: %s %v", fault.ClassOf(err), err)
	}
	if _, err = h.try(h.sources(FromFile, "correct horse")); !fault.Is(err, fault.Permission) {
		t.Errorf("the wrong source: %s %v", fault.ClassOf(err), err)
	}
}

func TestKeepingTheKeyFileBesideAPassphrase(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	k := h.open(h.sources(FromAuto, ""))
	if err := k.SetPassphrase(t.Context(), phrase(t, "correct horse"), true); err != nil {
		t.Fatal(err)
	}
	h.remember(k)
	for _, s := range []Sources{h.sources(FromFile, ""), h.sources(FromEnv, "correct horse")} {
		if got := h.open(s); got.Public() != k.Public() {
			t.Error("another master")
		}
	}
}

func TestAChangeThatTheConfiguredSourceCouldNotOpenIsRefused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	k := h.open(h.sources(FromFile, ""))
	before := k.Copy()
	for name, change := range map[string]func() error{
		"passphrase": func() error { return k.SetPassphrase(t.Context(), phrase(t, "correct horse"), false) },
		"keyring":    func() error { return k.Rotate(t.Context(), ByKeyring, nil) },
	} {
		if err := change(); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "vault.source") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !bytes.Equal(before, k.Copy()) || !h.exists(h.files.Key) {
		t.Error("it was changed")
	}
	if n := h.ring.len(); n != 0 {
		t.Errorf("%d keys were left in the keyring", n)
	}
}

func TestArgon2idRunsOnceAtAStart(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	s := h.sources(FromEnv, "correct horse")
	h.open(s)
	if n := h.stretched.Swap(0); n != 1 {
		t.Errorf("the first start stretched %d times", n)
	}
	h.open(s)
	if n := h.stretched.Swap(0); n != 1 {
		t.Errorf("a start stretched %d times", n)
	}
	s.Variable = "wrong horses"
	if _, err := h.try(s); err == nil || h.stretched.Load() != 1 {
		t.Errorf("a wrong one stretched %d times: %v", h.stretched.Load(), err)
	}
	h.stretched.Store(0)
	newHouse(t).open(h.sources(FromFile, ""))
	if n := h.stretched.Load(); n != 0 {
		t.Errorf("a key file was stretched %d times", n)
	}
}

// TestArgon2idIsTheOneOfTheRFC compares with the reference vector of RFC 9106's
// algorithm as x/crypto has it, by the recommended parameters.
func TestArgon2idTakesItsParametersFromTheEnvelope(t *testing.T) {
	t.Parallel()
	a := Argon2{Version: 19, Memory: 8 << 10, Time: 2, Threads: 3}
	want := argon2.IDKey([]byte("p"), []byte("12345678"), 2, 8<<10, 3, 32)
	if got := Argon2id([]byte("p"), []byte("12345678"), a); !bytes.Equal(got, want) {
		t.Error("another key")
	}
	if r := recommended(); r.Memory != 64<<10 || r.Time != 3 || r.Threads != 4 || r.Version != 0x13 || r.sane() != nil {
		t.Errorf("%+v", r)
	}
}

func TestARecoveryKeyOpensAndSetsAnew(t *testing.T) {
	t.Parallel()
	for _, to := range []string{"passphrase", "file"} {
		for _, running := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s running=%t", to, running), func(t *testing.T) {
				t.Parallel()
				h := newHouse(t)
				k := h.open(h.sources(FromEnv, "correct horse"))
				old, err := k.NewRecoveryKey()
				if err != nil {
					t.Fatal(err)
				}
				shown, err := k.NewRecoveryKey()
				if err != nil {
					t.Fatal(err)
				}
				h.remember(k)
				secret := func(text string) *Secret {
					s, err := NewRecoverySecret([]byte(text))
					if err != nil {
						t.Fatal(err)
					}
					return s
				}
				s := h.sources(FromAuto, "")
				if !running {
					s.Recovery = secret(old)
					if _, err := h.try(s); !fault.Is(err, fault.Permission) {
						t.Errorf("the one before still opens: %v", err)
					}
					s.Recovery = secret(strings.ToLower(shown))
					k = h.open(s)
				} else if err := k.Recover(t.Context(), secret(old), phrase(t, "battery staple")); !fault.Is(err, fault.Permission) {
					t.Errorf("the one before still opens: %v", err)
				}
				var fresh *Secret
				variable := ""
				if to == "passphrase" {
					fresh, variable = phrase(t, "battery staple"), "battery staple"
				}
				if running && to == "file" {
					k.sources.Use = FromAuto
				}
				if err := k.Recover(t.Context(), secret(shown), fresh); err != nil {
					t.Fatal(err)
				}
				h.remember(k)
				if got := h.open(h.sources(FromAuto, variable)); got.Public() != k.Public() {
					t.Error("another master")
				}
				if _, err := h.try(h.sources(FromEnv, "correct horse")); err == nil {
					t.Error("the forgotten passphrase still opens")
				}
			})
		}
	}
}

func TestARecoveryKeyWithATypoIsFound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), recoverySize, recoverySize).Draw(t, "key")
		shown := showRecoveryKey(key)
		sloppy := strings.NewReplacer("-", rapid.SampledFrom([]string{"", " ", "--", "\n"}).Draw(t, "gap"), "0", "o", "1", "L").Replace(shown)
		for _, text := range []string{shown, strings.ToLower(shown), sloppy} {
			got, err := NewRecoverySecret([]byte(text))
			if err != nil || !bytes.Equal(got.bytes, key) {
				t.Fatalf("%q: %v", text, err)
			}
		}
		signs := strings.ReplaceAll(shown, "-", "")
		at := rapid.IntRange(0, len(signs)-1).Draw(t, "at")
		other := rapid.SampledFrom([]byte(alphabet)).Filter(func(b byte) bool { return b != signs[at] }).Draw(t, "other")
		wrong := signs[:at] + string(other) + signs[at+1:]
		bad := []string{wrong, signs[:at] + signs[at+1:], signs[:at] + string(other) + signs[at:], "", "U" + signs[1:]}
		if at+1 < len(signs) && signs[at] != signs[at+1] {
			bad = append(bad, signs[:at]+string(signs[at+1])+string(signs[at])+signs[at+2:])
		}
		for _, text := range bad {
			_, err := NewRecoverySecret([]byte(text))
			if !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), signs[2:8]) {
				t.Fatalf("%q: %v", text, err)
			}
		}
	})
}

func TestRotatingReplacesEverySecretAndKeepsTheMaster(t *testing.T) {
	t.Parallel()
	for _, start := range []Kind{ByFile, ByPassphrase, ByKeyring} {
		for _, to := range []Kind{"", ByFile, ByKeyring} {
			t.Run(string(start)+" to "+string(to), func(t *testing.T) {
				t.Parallel()
				h := newHouse(t)
				use := map[Kind]Source{ByFile: FromFile, ByPassphrase: FromEnv, ByKeyring: FromKeyring}[start]
				h.open(h.sources(use, "correct horse"))
				variable := ""
				if start == ByPassphrase {
					variable = "correct horse"
				}
				k := h.open(h.sources(FromAuto, variable))
				shown, err := k.NewRecoveryKey()
				if err != nil {
					t.Fatal(err)
				}
				before := k.State()
				oldKey, _ := os.ReadFile(h.files.Key)
				if err := k.Rotate(t.Context(), to, phrase(t, "correct horse")); err != nil {
					t.Fatal(err)
				}
				h.remember(k)
				after := k.State()
				want := to
				if to == "" {
					want = start
				}
				if len(after.Wraps) != 2 || !slices.ContainsFunc(after.Wraps, func(w Wrap) bool { return w.Kind == want }) {
					t.Errorf("%+v", after.Wraps)
				}
				for _, w := range before.Wraps {
					if w.Kind != ByRecovery && slices.ContainsFunc(after.Wraps, func(o Wrap) bool { return o.ID == w.ID }) {
						t.Errorf("wrap %s is the old one", w.Kind)
					}
				}
				if want == ByFile == missing(h.files.Key) || !missing(h.files.NextKey) || h.ring.len() != map[bool]int{true: 1}[want == ByKeyring] {
					t.Errorf("left: key %t, next %t, ring %d", h.exists(h.files.Key), h.exists(h.files.NextKey), h.ring.len())
				}
				if key, _ := os.ReadFile(h.files.Key); len(key) > 0 && bytes.Equal(key, oldKey) {
					t.Error("the key file is the old one")
				}
				if to != "" {
					variable = ""
				}
				if got := h.open(h.sources(FromAuto, variable)); got.Public() != k.Public() {
					t.Error("another master")
				}
				s := h.sources(FromAuto, "")
				if s.Recovery, err = NewRecoverySecret([]byte(shown)); err != nil {
					t.Fatal(err)
				}
				if got := h.open(s); got.Public() != k.Public() {
					t.Error("the recovery key opens another master")
				}
			})
		}
	}
}

func TestRotatingNeedsTheRightPassphrase(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	k := h.open(h.sources(FromEnv, "correct horse"))
	before := k.Copy()
	if err := k.Rotate(t.Context(), "", nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("none: %v", err)
	}
	if err := k.Rotate(t.Context(), "", phrase(t, "wrong horses")); !fault.Is(err, fault.Permission) {
		t.Errorf("wrong: %v", err)
	}
	if !bytes.Equal(before, k.Copy()) {
		t.Error("it was changed")
	}
}

// Of changes at the same time one is made and the others are refused or made after
// it, and whatever came last opens.
func TestChangesAtTheSameTimeDoNotMix(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	k := h.open(h.sources(FromAuto, ""))
	var wg sync.WaitGroup
	var done atomic.Int64
	for range 16 {
		wg.Go(func() {
			switch err := k.Rotate(t.Context(), "", nil); {
			case err == nil:
				done.Add(1)
			case !fault.Is(err, fault.Conflict):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if done.Load() == 0 {
		t.Error("none was made")
	}
	h.remember(k)
	if got := h.open(h.sources(FromAuto, "")); got.Public() != k.Public() {
		t.Error("another master")
	}
	// Another process cannot come in between either: what it finds changed it leaves.
	other := h.open(h.sources(FromAuto, ""))
	if err := other.Rotate(t.Context(), "", nil); err != nil {
		t.Fatal(err)
	}
	if err := k.Rotate(t.Context(), "", nil); !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "somebody else") {
		t.Errorf("%v", err)
	}
}

func TestManyStartsMakeOneMaster(t *testing.T) {
	t.Parallel()
	for _, use := range []Source{FromFile, FromEnv} {
		for range 20 {
			h := newHouse(t)
			race(t, 8, func() (string, error) {
				for {
					k, err := Open(context.Background(), h.files, h.sources(use, "correct horse"), Memory{}, true)
					if err == nil {
						_, err = k.Settle()
					}
					if fault.Is(err, fault.Conflict) { // another start was first
						continue
					}
					if err != nil {
						return "", err
					}
					return k.Public(), nil
				}
			})
		}
	}
}

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

func TestPassphraseFilesThatCannotBeTrustedAreRefused(t *testing.T) {
	t.Parallel()
	put := func(text string, mode os.FileMode) func(path string) error {
		return func(path string) error {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				return err
			}
			return os.Chmod(path, mode)
		}
	}
	for name, c := range map[string]struct {
		make  func(path string) error
		class fault.Class // "" opens
		says  string
	}{
		"a line":            {put("correct horse\n", 0o600), "", ""},
		"a line of Windows": {put("correct horse\r\n", 0o400), "", ""},
		"no line end":       {put("correct horse", 0o600), "", ""},
		"world-readable":    {put("correct horse", 0o644), fault.Permission, "0644"},
		"group-readable":    {put("correct horse", 0o640), fault.Permission, "0640"},
		"world-writable":    {put("correct horse", 0o602), fault.Permission, "0602"},
		"empty":             {put("", 0o600), fault.Config, "no passphrase"},
		"only a line end":   {put("\n", 0o600), fault.Config, "no passphrase"},
		"two lines":         {put("correct\nhorse\n", 0o600), fault.Config, "several lines"},
		"a NUL":             {put("correct\x00horse", 0o600), fault.Config, "several lines or control"},
		"not text":          {put("correct\xff\xfehorse", 0o600), fault.Config, "UTF-8"},
		"long":              {put(strings.Repeat("x", 2000), 0o600), fault.Config, "1024"},
		"missing":           {func(string) error { return nil }, fault.Config, "not there"},
		"a directory":       {func(p string) error { return os.Mkdir(p, 0o700) }, fault.Config, "directory"},
		"a link": {func(p string) error {
			if err := os.WriteFile(p+"-target", []byte("correct horse"), 0o600); err != nil {
				return err
			}
			return os.Symlink(p+"-target", p)
		}, fault.Config, "is a link"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !modesMatter && c.class == fault.Permission {
				t.Skip("modes do not show who can read here")
			}
			h := newHouse(t)
			k := h.open(h.sources(FromEnv, "correct horse"))
			path := filepath.Join(t.TempDir(), "passphrase")
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			s := h.sources(FromPassphrase, "")
			s.PassphraseFile = path
			got, err := h.try(s)
			if c.class == "" {
				if err != nil || got.Public() != k.Public() || !strings.Contains(got.State().From, path) {
					t.Errorf("%v", err)
				}
				return
			}
			if !fault.Is(err, c.class) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "horse") {
				t.Errorf("%s %v", fault.ClassOf(err), err)
			}
		})
	}
}

func TestTheOrderOfTheSources(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.open(h.sources(FromEnv, "correct horse"))
	dir := t.TempDir()
	file, credentials := filepath.Join(dir, "passphrase"), filepath.Join(dir, "credentials")
	if err := errors.Join(os.WriteFile(file, []byte("correct horse"), 0o600), os.Mkdir(credentials, 0o700),
		os.WriteFile(filepath.Join(credentials, "ombud-passphrase"), []byte("correct horse"), 0o440)); err != nil {
		t.Fatal(err)
	}
	asked := 0
	all := h.sources(FromAuto, "correct horse")
	all.PassphraseFile, all.Credentials = file, credentials
	all.Ask = func(context.Context, Question) (*Secret, error) {
		asked++
		return phrase(t, []string{"wrong horses", "correct horse"}[min(asked-1, 1)]), nil
	}
	want := []string{"systemd", "passphrase file", "OMBUD_PASSPHRASE", "the test"}
	for _, w := range want {
		k := h.open(all)
		if !strings.Contains(k.State().From, w) {
			t.Errorf("%s, want %s", k.State().From, w)
		}
		switch {
		case all.Credentials != "":
			all.Credentials = ""
		case all.PassphraseFile != "":
			all.PassphraseFile = ""
		default:
			all.Variable = ""
		}
	}
	if asked != 2 { // mistyped once
		t.Errorf("asked %d times", asked)
	}
	all.Handed = phrase(t, "correct horse")
	for range 2 { // it is not used up
		if k := h.open(all); k.State().From != "the test" || asked != 2 {
			t.Errorf("%s", k.State().From)
		}
	}
}

func TestAKeyringThatDoesNotAnswerIsPassedOver(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	k := h.open(h.sources(FromKeyring, ""))
	if err := k.sources.Use.Opens(ByKeyring); err != nil {
		t.Fatal(err)
	}
	k.sources.Use = FromAuto
	if err := k.SetPassphrase(t.Context(), phrase(t, "correct horse"), false); err != nil {
		t.Fatal(err)
	}
	h.remember(k)
	h.ring.broken = fault.New(fault.Unavailable, "the keyring is locked")
	got := h.open(h.sources(FromAuto, "correct horse"))
	if got.State().OpenedBy != ByPassphrase || !strings.Contains(strings.Join(got.State().Notes, "\n"), "the keyring is locked") {
		t.Errorf("%+v", got.State())
	}
	if _, err := h.try(h.sources(FromAuto, "")); !fault.Is(err, fault.Permission) || !strings.Contains(err.Error(), "the keyring is locked") {
		t.Errorf("%v", err)
	}
	if _, err := h.try(h.sources(FromKeyring, "correct horse")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a keyring that was asked for by name: %v", err)
	}
}

func TestNothingOfASecretIsPrinted(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	s := h.sources(FromEnv, "correct horse")
	s.Handed, s.Recovery = phrase(t, "battery staple"), nil
	k := h.open(h.sources(FromEnv, "correct horse"))
	master := k.master
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, what := range []any{s.Handed, *s.Handed, s, k.State()} {
			text := fmt.Sprintf(verb, what)
			for _, secret := range []string{"battery", "correct", fmt.Sprintf("%x", master), fmt.Sprintf("%x", "battery")} {
				if strings.Contains(text, secret) {
					t.Errorf("%s of %T prints it", verb, what)
				}
			}
		}
	}
	if raw, err := json.Marshal(s.Handed); err != nil || strings.Contains(string(raw), "battery") {
		t.Errorf("%s %v", raw, err)
	}
	s.Handed.Wipe()
	if len(s.Handed.Reveal()) != 0 {
		t.Error("wiped, and still there")
	}
}

// Nothing that opens is on disk but where it is meant to be.
func TestTheMasterIsOnDiskInNoForm(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	k := h.open(h.sources(FromAuto, ""))
	master := bytes.Clone(k.master)
	if err := errors.Join(k.Rotate(t.Context(), "", nil), k.SetPassphrase(t.Context(), phrase(t, "correct horse"), false)); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(filepath.Dir(h.files.Envelope), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		for _, secret := range [][]byte{master, []byte(fmt.Sprintf("%x", master)), []byte("correct horse")} {
			if bytes.Contains(raw, secret) {
				t.Errorf("%s holds it", path)
			}
		}
		info, _ := d.Info()
		if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o", path, info.Mode().Perm())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
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

func FuzzRecoveryKey(f *testing.F) {
	f.Add("0000-0000")
	f.Add(showRecoveryKey(make([]byte, recoverySize)))
	f.Fuzz(func(t *testing.T, text string) {
		s, err := NewRecoverySecret([]byte(text))
		if err != nil {
			return
		}
		again, err := NewRecoverySecret([]byte(showRecoveryKey(s.bytes)))
		if err != nil || !again.Equal(s) {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
