package db

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// forkWindow is how long a lock that is held may be that of a child between fork and
// exec, which holds a copy of every descriptor of a parent that has closed its own.
const forkWindow = 400 * time.Millisecond

// fileLock is a lock that dies with the process.
type fileLock struct{ f *os.File }

// lockFile takes the lock or says who holds it. The file stays when the lock is
// given back: removing it would let two processes hold two files of one name.
func lockFile(path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.New(fault.Permission, "open the lock file: %w", err)
	}
	held, err := tryLock(f)
	for end := time.Now().Add(forkWindow); held && err == nil && time.Now().Before(end); {
		<-time.After(forkWindow / 20)
		held, err = tryLock(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, fault.New(fault.Permission, "lock %s: %w", path, err)
	}
	if held {
		who := holder(f)
		_ = f.Close()
		return nil, fault.New(fault.Running, "another ombud (%s) is running on %s", who, path).
			WithHint("talk to it with 'ombud status', or end it with 'ombud stop'")
	}
	// The process id is for the message only, so a full disk does not keep the
	// daemon from starting. One write of a fixed width never shows half of it.
	_, _ = f.WriteAt(fmt.Appendf(nil, "%-10d\n", os.Getpid()), 0)
	return &fileLock{f}, nil
}

func holder(f *os.File) string {
	text, _ := io.ReadAll(io.NewSectionReader(f, 0, 32)) // only for the message
	first, _, _ := bytes.Cut(text, []byte("\n"))
	if pid := strings.TrimSpace(string(first)); pid != "" {
		return "process " + pid
	}
	return "process unknown"
}

func (l *fileLock) unlock() { _ = l.f.Close() } // closing gives the lock back
