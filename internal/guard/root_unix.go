//go:build unix

package guard

import (
	"errors"
	"io/fs"
	"syscall"
)

// syncDir makes a changed name in dir durable.
func (r *Root) syncDir(dir string) error {
	f, err := r.root.Open(dir)
	if err != nil {
		return fileFault("sync", dir, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fileFault("sync", dir, err)
	}
	return nil
}

// names returns how many names a file has.
func names(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink) //nolint:unconvert // another type elsewhere
	}
	return 1
}
