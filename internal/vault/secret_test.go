package vault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

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
