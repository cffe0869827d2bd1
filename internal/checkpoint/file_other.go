//go:build !linux && !darwin

package checkpoint

import (
	"io/fs"
	"os"
)

func ownedByUs(string) bool { return true }

// stamp is what tells that a file has changed. It is compared whole.
type stamp struct {
	size         int64
	mode         fs.FileMode
	mtime, ctime int64 // ns
}

func stampOf(info fs.FileInfo) stamp {
	return stamp{size: info.Size(), mode: info.Mode(), mtime: info.ModTime().UnixNano()}
}

const openFlags = os.O_RDONLY

func flush(string) {}
