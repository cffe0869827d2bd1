//go:build unix

package db

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/ombud-run/ombud/internal/fault"
)

// fileLock is an advisory lock that dies with the process.
type fileLock struct{ f *os.File }

// lockFile takes the lock or says who holds it. The file stays when the lock is
// given back: removing it would let two processes hold two files of one name.
func lockFile(path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.New(fault.Permission, "open the lock file: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 32)) // only for the message
		_ = f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fault.New(fault.Permission, "lock %s: %w", path, err)
		}
		return nil, fault.New(fault.Running, "another ombud (process %s) is running on %s", strings.TrimSpace(string(holder)), path).
			WithHint("talk to it with 'ombud status', or end it with 'ombud stop'")
	}
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
		if err != nil {
			_ = f.Close()
			return nil, fault.New(fault.Unavailable, "write the lock file: %w", err)
		}
	}
	return &fileLock{f}, nil
}

func (l *fileLock) unlock() { _ = l.f.Close() } // closing gives the lock back
