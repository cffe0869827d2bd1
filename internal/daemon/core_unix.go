//go:build unix

package daemon

import "golang.org/x/sys/unix"

// noCore keeps keys in memory from ending in a core file, here and in whatever is
// started from here. A limit that cannot be set was lower already, or it is nothing
// to end a daemon for.
func noCore() { _ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) }
