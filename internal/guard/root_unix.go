//go:build unix

package guard

import "errors"

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
