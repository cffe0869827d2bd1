package cli

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/ombud-run/ombud/internal/fault"
)

// lockHolder tells who holds the instance lock. It asks the kernel instead of
// trying: whoever tries may keep a daemon that starts just now from getting it.
func lockHolder(path string) (pid string, held bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fault.New(fault.Unavailable, "look at the lock: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", false, fault.New(fault.Internal, "the lock file has no inode")
	}
	return lookForHolder(stat.Ino, func() ([]byte, error) { return os.ReadFile("/proc/locks") })
}

func lookForHolder(inode uint64, list func() ([]byte, error)) (pid string, held bool, err error) {
	for range looks {
		locks, err := list()
		if err != nil {
			return "", false, fault.New(fault.Unavailable, "ask for locks: %w", err)
		}
		if pid, held = holderIn(locks, inode); held {
			return pid, true, nil
		}
	}
	return "", false, nil
}

// looks is how often a lock has to be missing to be taken for free: the kernel
// tells the list in pieces, and one that lies between two of them is left out
// when others come and go.
const looks = 5

// holderIn finds the holder of a whole-file lock on an inode in /proc/locks:
// "1: FLOCK  ADVISORY  WRITE 42 fe:01:1234 0 EOF". The device is not compared: an
// overlay shows another one there.
func holderIn(locks []byte, inode uint64) (pid string, held bool) {
	suffix := fmt.Sprintf(":%d", inode)
	for s := bufio.NewScanner(bytes.NewReader(locks)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) >= 6 && f[1] == "FLOCK" && strings.HasSuffix(f[5], suffix) {
			return f[4], true
		}
	}
	return "", false
}
