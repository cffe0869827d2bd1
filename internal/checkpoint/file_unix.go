//go:build linux || darwin

package checkpoint

import (
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownedByUs reports whether a directory is our user's. Objects that we wrote into
// somebody else's repository would lock its owner out of them.
func ownedByUs(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// stamp is what tells that a file has changed. It is compared whole.
type stamp struct {
	dev, ino     uint64
	size         int64
	mode         fs.FileMode
	mtime, ctime int64 // ns
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), mode: info.Mode(), mtime: info.ModTime().UnixNano()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.dev, s.ino, s.ctime = uint64(st.Dev), st.Ino, ctimeOf(st) //nolint:unconvert // its width differs by system
	}
	return s
}

// openFlags open a file for reading without following a link or waiting for the
// other end of a pipe.
const openFlags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
