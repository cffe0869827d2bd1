package db

import (
	"os"

	"golang.org/x/sys/windows"

	"github.com/ombud-run/ombud/internal/fault"
)

// fileLock is a lock that dies with the process.
type fileLock struct{ f *os.File }

func lockFile(path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.New(fault.Permission, "open the lock file: %w", err)
	}
	var overlapped windows.Overlapped
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &overlapped)
	if err != nil {
		_ = f.Close()
		return nil, fault.New(fault.Running, "another ombud is running on %s", path).
			WithHint("talk to it with 'ombud status', or end it with 'ombud stop'")
	}
	return &fileLock{f}, nil
}

func (l *fileLock) unlock() { _ = l.f.Close() } // closing gives the lock back
