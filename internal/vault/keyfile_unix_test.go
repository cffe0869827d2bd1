//go:build unix

package vault

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

// A daemon that opened a pipe for its key would wait for a writer for ever.
func TestPipeIsNoKeyFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "master.key")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckKeyFile(path); !fault.Is(err, fault.Config) {
		t.Errorf("a pipe as key file: %v", err)
	}
}
