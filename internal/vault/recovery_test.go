package vault

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/fault"
)

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
