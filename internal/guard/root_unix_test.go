//go:build unix

package guard

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

func TestAPipeIsRefusedWithoutWaiting(t *testing.T) {
	t.Parallel()
	r, ws, _ := setup(t, nil)
	if err := syscall.Mkfifo(filepath.Join(ws, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Open("pipe"); !fault.Is(err, fault.Invalid) {
		t.Errorf("open: %v", err)
	}
	if err := r.Write("pipe", nil, ""); !fault.Is(err, fault.Invalid) {
		t.Errorf("write: %v", err)
	}
	if _, err := r.Open("sub"); !fault.Is(err, fault.Invalid) {
		t.Errorf("open a directory: %v", err)
	}
}
