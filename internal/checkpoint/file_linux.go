package checkpoint

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func ctimeOf(st *syscall.Stat_t) int64 { return st.Ctim.Nano() }

// flush writes to disk what was written to the file system dir is on. What cannot be
// flushed is at worst a checkpoint that a power cut takes.
func flush(dir string) {
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	_ = unix.Syncfs(int(f.Fd())) // see above
}
