//go:build unix

package ipc

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/ombud-run/ombud/internal/fault"
)

// maxSocketPath is what the address of a unix socket holds on Linux, less its
// final zero; macOS holds 103.
const maxSocketPath = 107

// listen opens the socket at path with mode 0600 in a directory that only its
// owner may enter. What is already there is removed only if it is a socket and
// the caller holds the instance lock, so that it cannot be in use.
func listen(path string, holdsLock bool) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fault.New(fault.Config, "socket path %s has %d bytes, %d at most", path, len(path), maxSocketPath)
	}
	if err := privateDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := removeLeftover(path, holdsLock); err != nil {
		return nil, err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, classify(err, "listen on %s: %w", path, err)
	}
	// The directory already keeps others out, also before this line.
	if err := os.Chmod(path, 0o600); err != nil {
		_ = ln.Close() // the chmod is what failed
		return nil, classify(err, "protect socket: %w", err)
	}
	return ln, nil
}

func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return classify(err, "make socket directory: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return classify(err, "look at socket directory: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fault.New(fault.Permission, "others may enter the socket directory %s (mode %#o)", dir, mode).
			WithHint("chmod 700 %s", dir)
	}
	return nil
}

func removeLeftover(path string, holdsLock bool) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return classify(err, "look at socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fault.New(fault.Conflict, "%s is not a socket and is left alone", path).WithHint("move it away")
	case !holdsLock:
		return fault.New(fault.Running, "socket %s is there and may be in use", path).
			WithHint("ombud status tells whether a daemon answers")
	}
	if err := os.Remove(path); err != nil {
		return classify(err, "remove leftover socket: %w", err)
	}
	return nil
}

func classify(err error, format string, args ...any) error {
	class := fault.Unavailable
	if errors.Is(err, fs.ErrPermission) {
		class = fault.Permission
	}
	return fault.New(class, format, args...)
}
