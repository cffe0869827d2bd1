//go:build unix

package db

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// A process that starts another one shares the lock with it until the child has
// executed its program: whoever asks in that moment has to be let in after it.
func TestALockThatAForkHoldsForAMomentIsTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "daemon.lock")
	first, err := lockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := syscall.Dup(int(first.f.Fd())) // as a fork does
	if err != nil {
		t.Fatal(err)
	}
	first.unlock()
	executed := time.AfterFunc(forkWindow/8, func() { _ = syscall.Close(copied) })
	defer executed.Stop()
	second, err := lockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.unlock()
	if _, err := lockFile(path); !fault.Is(err, fault.Running) {
		t.Errorf("a lock that stays held: %v", err)
	}
}
