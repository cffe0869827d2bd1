package vault

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

// creator makes this test binary a process that opens one key file.
var creator = flag.String("creator", "", "open this key file, print its fingerprint and exit")

func TestMain(m *testing.M) {
	flag.Parse()
	if *creator != "" {
		v, err := OpenKeyFile(*creator)
		if err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Stdout.WriteString(v.Keys().Fingerprint())
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestKeyFileIsMadeOnceAndPrivate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "master.key")
	if err := CheckKeyFile(path); err == nil {
		t.Fatal("checking made a key")
	}
	a, err := OpenKeyFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := OpenKeyFile(path)
	if err != nil || !a.SigningKey().Equal(b.SigningKey()) {
		t.Errorf("second opening: another key, %v", err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() != KeySize || modesMatter && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestRacingCreatorsEndWithOneKey(t *testing.T) {
	t.Parallel()
	for range 50 {
		path := filepath.Join(t.TempDir(), "master.key")
		race(t, 8, func() (string, error) {
			v, err := OpenKeyFile(path)
			if err != nil {
				return "", err
			}
			return v.Keys().Fingerprint(), nil
		})
	}
}

func TestRacingProcessesEndWithOneKey(t *testing.T) {
	t.Parallel()
	for range 3 {
		path := filepath.Join(t.TempDir(), "master.key")
		race(t, 4, func() (string, error) {
			out, err := exec.CommandContext(t.Context(), os.Args[0], "-creator", path).Output()
			return string(out), err
		})
	}
}

func race(t *testing.T, n int, open func() (string, error)) {
	t.Helper()
	var wg sync.WaitGroup
	got := make([]string, n)
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			fp, err := open()
			if err != nil {
				t.Errorf("creator %d: %v", i, err)
			}
			got[i] = fp
		})
	}
	close(start)
	wg.Wait()
	for _, fp := range got {
		if fp != got[0] || fp == "" {
			t.Fatalf("keys %v", got)
		}
	}
}

func TestUnusableKeyFilesAreRefusedAndKept(t *testing.T) {
	t.Parallel()
	good := bytes.Repeat([]byte{1}, KeySize)
	for name, c := range map[string]struct {
		content []byte
		mode    os.FileMode
		class   fault.Class
		hint    string
	}{
		"group can read":   {good, 0o640, fault.Permission, "chmod 600"},
		"others can read":  {good, 0o604, fault.Permission, "chmod 600"},
		"others can write": {good, 0o602, fault.Permission, "chmod 600"},
		"empty":            {nil, 0o600, fault.Config, "backup"},
		"short":            {good[1:], 0o600, fault.Config, "backup"},
		"long":             {append(good, '\n'), 0o600, fault.Config, "backup"},
		"zeros":            {make([]byte, KeySize), 0o600, fault.Config, "backup"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !modesMatter && c.class == fault.Permission {
				t.Skip("modes do not show who can read here")
			}
			path := filepath.Join(t.TempDir(), "master.key")
			if err := os.WriteFile(path, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			_, err := OpenKeyFile(path)
			if !fault.Is(err, c.class) || !strings.Contains(fault.HintOf(err), c.hint) {
				t.Errorf("%v, hint %q", err, fault.HintOf(err))
			}
			kept, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(kept, c.content) {
				t.Errorf("the file is now %x, %v", kept, err)
			}
		})
	}
}

func TestKeyFileNeedsItsDirectory(t *testing.T) {
	t.Parallel()
	if _, err := OpenKeyFile(filepath.Join(t.TempDir(), "none", "master.key")); !fault.Is(err, fault.Unavailable) {
		t.Errorf("no directory: %v", err)
	}
	if _, err := OpenKeyFile(t.TempDir()); !fault.Is(err, fault.Config) {
		t.Errorf("a directory: %v", err)
	}
}
