// Package wholefile writes files whole or not at all: whoever reads one, also after a
// crash or a power cut, finds the old content or the new.
package wholefile

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace puts data at path, mode 0600, in place of what is there.
func Replace(path string, data []byte) error { return put(path, data, os.Rename) }

// Create is Replace for a path that has to be free: else its error is fs.ErrExist.
func Create(path string, data []byte) error { return put(path, data, os.Link) }

// put writes a file of another name beside path, and names it path when it is on disk.
func put(path string, data []byte, name func(from, to string) error) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, ".part-*") // 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // it has another name by now, or is no harm
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := name(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}
