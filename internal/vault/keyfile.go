package vault

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/ombud-run/ombud/internal/fault"
)

// OpenKeyFile returns the vault whose master key is the file at path, without an
// envelope, and makes the file first if there is none. The directory must exist. A
// daemon has an envelope: see Open.
//
// Making is safe against a crash and against others doing the same: the key is
// complete and on disk before it has its name, and the name is given only if it
// is free. Whoever loses opens the winner's key.
func OpenKeyFile(path string) (*Vault, error) {
	key, err := readKeyFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeKeyFile(path); err != nil {
			return nil, err
		}
		key, err = readKeyFile(path)
	}
	if err != nil {
		return nil, err
	}
	defer clear(key)
	return New(key)
}

// CheckKeyFile says whether a key file can be used, without keeping what is in it.
func CheckKeyFile(path string) error {
	key, err := readKeyFile(path)
	clear(key)
	return err
}

// readKeyFile returns the bytes of a key file; the caller wipes them.
func readKeyFile(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil { // before it is opened, as opening a pipe waits for a writer
		if err := checkKeyFile(path, info); err != nil {
			return nil, err
		}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, keyFault("open key file %s: %w", path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, keyFault("look at key file %s: %w", path, err)
	}
	if err := checkKeyFile(path, info); err != nil {
		return nil, err
	}
	key := make([]byte, KeySize)
	if _, err := io.ReadFull(f, key); err != nil {
		clear(key)
		return nil, keyFault("read key file %s: %w", path, err)
	}
	if [KeySize]byte(key) == [KeySize]byte{} {
		return nil, fault.New(fault.Config, "key file %s holds only zeros, so it was damaged", path).
			WithHint("restore it from a backup; without it nothing sealed can be opened")
	}
	return key, nil
}

func checkKeyFile(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fault.New(fault.Config, "key file %s is not a file", path)
	}
	if mode := info.Mode().Perm(); modesMatter && mode&0o077 != 0 {
		return fault.New(fault.Permission, "key file %s has mode %04o, so others can read it", path, mode).
			WithHint("chmod 600 %s, and think about who may have read it: ombud vault rotate makes another", path)
	}
	if info.Size() != KeySize {
		return fault.New(fault.Config, "key file %s has %d bytes instead of %d", path, info.Size(), KeySize).
			WithHint("restore it from a backup; without it nothing sealed can be opened")
	}
	return nil
}

// makeKeyFile writes a new key. A name already taken is fine.
func makeKeyFile(path string) error {
	key := make([]byte, KeySize)
	defer clear(key)
	random(key)
	if err := write(path, key, true, nil); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func keyFault(format, path string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fault.New(fault.Permission, format, path, err).WithHint("it has to belong to the user ombud runs as")
	}
	return fault.New(fault.Unavailable, format, path, err)
}
