package vault

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/ombud-run/ombud/internal/fault"
)

// ReadPassphraseFile takes a passphrase out of a file that only its owner can read.
// A link is refused, as who may change where it leads is not seen from here.
func ReadPassphraseFile(path string) (*Secret, error) {
	return readPassphrase("the passphrase file "+path, path, 0o077)
}

// readCredential takes one out of systemd's directory of credentials, which systemd
// makes private. With an access list there, the mode shows the list's mask where
// the group's rights are.
func readCredential(path string) (*Secret, error) {
	return readPassphrase("the systemd credential "+path, path, 0o007)
}

func readPassphrase(from, path string, forbidden fs.FileMode) (*Secret, error) {
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return nil, passphraseFault(from, err)
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, fault.New(fault.Config, "%s is a link", from).WithHint("name the file it leads to")
	case info.IsDir():
		return nil, fault.New(fault.Config, "%s is a directory", from).WithHint("name a file in it")
	case !info.Mode().IsRegular():
		return nil, fault.New(fault.Config, "%s is not a file", from)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, passphraseFault(from, err)
	}
	defer f.Close()
	opened, err := f.Stat()
	if err != nil {
		return nil, passphraseFault(from, err)
	}
	if !os.SameFile(info, opened) {
		return nil, fault.New(fault.Permission, "%s was exchanged while it was opened", from)
	}
	if mode := opened.Mode().Perm(); modesMatter && mode&forbidden != 0 {
		return nil, fault.New(fault.Permission, "%s has mode %04o, so others can read it", from, mode).
			WithHint("chmod 600 %s, and think about who may have read it: ombud vault passphrase sets another", path)
	}
	raw, err := io.ReadAll(io.LimitReader(f, maxPassphrase+3)) // a line end, and one to see that there is more
	if err != nil {
		clear(raw)
		return nil, passphraseFault(from, err)
	}
	return NewPassphrase(from, raw)
}

func passphraseFault(from string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.Config, "%s is not there: %w", from, err)
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.Permission, "%s cannot be read: %w", from, err).WithHint("it has to belong to the user ombud runs as")
	}
	return fault.New(fault.Unavailable, "read %s: %w", from, err)
}
