package backup

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// writeOut starts writing a piece to the disk and waits for the one before it, so
// that little is ever waiting for the disk at once. It flushes nothing: that is done
// at the end.
func writeOut(f *os.File, at, size int64) error {
	fd := int(f.Fd())
	_ = unix.SyncFileRange(fd, at, size, unix.SYNC_FILE_RANGE_WRITE) // file systems without it write at the end
	if at >= size {
		_ = unix.SyncFileRange(fd, at-size, size, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
		_ = unix.Fadvise(fd, at-size, size, unix.FADV_DONTNEED)
	}
	return nil
}

// reserve takes the room of the file before it is written. Blocks that are taken while
// it grows would have to be on the disk before any other file's flush that grows it,
// such as that of the store's log, comes to its end.
func reserve(f *os.File, size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.ENOSPC) {
		return err
	}
	return nil // file systems without it take room as the file grows
}

// forget drops what the system keeps of the file in memory, so that reading it back
// reads the disk.
func forget(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) }
