package vault

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

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
