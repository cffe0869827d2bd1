//go:build !linux

package db

import "os"

// freeBytes is not known here; a full disk is then judged by SQLite's error alone
// and by whether the reserve can be written again.
func freeBytes(string) (int64, bool) { return 0, false }

func allocate(f *os.File, size int64) error {
	zero := make([]byte, 1<<20)
	for off := int64(0); off < size; off += int64(len(zero)) {
		if _, err := f.WriteAt(zero, off); err != nil {
			return err
		}
	}
	return f.Sync()
}
