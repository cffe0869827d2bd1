//go:build unix

package fs

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

func TestAPipeNobodyWritesToDoesNotHoldACall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if err := syscall.Mkfifo(filepath.Join(b.dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fs.read", "fs.list"} {
		if _, err := b.call(name, map[string]any{"path": "pipe"}); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s = %v, want invalid", name, err)
		}
	}
}
