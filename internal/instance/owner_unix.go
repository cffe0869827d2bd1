//go:build unix

package instance

import (
	"io/fs"
	"os"
	"syscall"
)

func ownedByUs(info fs.FileInfo) (uid uint32, ours bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return st.Uid, st.Uid == uint32(os.Geteuid())
}

func openTo(info fs.FileInfo, refuse fs.FileMode) fs.FileMode {
	return info.Mode().Perm() & refuse
}
