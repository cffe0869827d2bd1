//go:build unix

package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

// Opening a pipe nobody writes to would wait for ever, and a device need not end.
func TestOnlyAFileIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, endless := filepath.Join(dir, "pipe"), filepath.Join(dir, "endless")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", endless); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, endless} {
		if _, err := Load(Input{File: path}); !fault.Is(err, fault.Config) || !strings.Contains(err.Error(), "is not a file") {
			t.Errorf("%s: %v", path, err)
		}
	}
	long := filepath.Join(dir, "long")
	if err := os.WriteFile(long, []byte(strings.Repeat("# x\n", maxFile)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(Input{File: long}); !fault.Is(err, fault.Config) || !strings.Contains(err.Error(), "more than 262144 bytes") {
		t.Errorf("a long file: %v", err)
	}
}
