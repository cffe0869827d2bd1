//go:build unix

package cli

import (
	"syscall"

	"github.com/ombud-run/ombud/internal/fault"
)

// modesMatter: who may read a file is in its mode.
const modesMatter = true

// freeSpace returns what is left for us on the file system of a directory.
func freeSpace(dir string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, fault.New(fault.Unavailable, "look at the disk of %s: %w", dir, err)
	}
	return int64(s.Bavail) * int64(s.Bsize), nil //nolint:unconvert // the types differ between systems
}
