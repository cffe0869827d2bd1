package vault

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/argon2"

	"github.com/ombud-run/ombud/internal/fault"
)

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
