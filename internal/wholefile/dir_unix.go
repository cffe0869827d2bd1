//go:build unix

package wholefile

import (
	"errors"
	"os"
)

// SyncDir makes the names in dir survive a power cut.
func SyncDir(dir string) (err error) {
	d, err := os.Open(dir) //nolint:gosec // the caller's own
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.Sync()
}
