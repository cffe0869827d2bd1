//go:build !linux

package cli

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// lockHolder goes by the process id in the lock file: where the kernel cannot be
// asked, only trying would tell, and that may keep a starting daemon from the lock.
func lockHolder(path string) (pid string, held bool, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, fault.New(fault.Unavailable, "look at the lock: %w", err)
	}
	pid = strings.TrimSpace(string(text))
	n, err := strconv.Atoi(pid)
	if err != nil || n <= 0 {
		return "", false, nil
	}
	return pid, alive(n), nil
}
