//go:build unix

package vault

import (
	"errors"
	"os"
)

const modesMatter = true

// syncDir makes a new name in dir survive a power cut.
func syncDir(dir string) (err error) {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.Sync()
}
