package vault

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ombud-run/ombud/internal/fault"
)

// OpenKeyFile returns the vault whose master key is the file at path, and makes
// the file first if there is none. The directory must exist.
//
// Making is safe against a crash and against others doing the same: the key is
// complete and on disk before it has its name, and the name is given only if it
// is free. Whoever loses opens the winner's key. Whether a store without its key
// is about to get a new one, which could not open it, is for the caller to ask.
func OpenKeyFile(path string) (*Vault, error) {
	v, err := readKeyFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return v, err
	}
	if err := makeKeyFile(path); err != nil {
		return nil, err
	}
	return readKeyFile(path)
}

// ReadKeyFile is OpenKeyFile for what must not make a key, such as verifying.
func ReadKeyFile(path string) (*Vault, error) { return readKeyFile(path) }

func readKeyFile(path string) (*Vault, error) {
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
	master := make([]byte, KeySize)
	defer clear(master)
	if _, err := io.ReadFull(f, master); err != nil {
		return nil, keyFault("read key file %s: %w", path, err)
	}
	if [KeySize]byte(master) == [KeySize]byte{} {
		return nil, fault.New(fault.Config, "key file %s holds only zeros, so it was damaged", path).
			WithHint("restore it from a backup; without it nothing sealed can be opened")
	}
	return New(master)
}

func checkKeyFile(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fault.New(fault.Config, "key file %s is not a file", path)
	}
	if mode := info.Mode().Perm(); modesMatter && mode&0o077 != 0 {
		return fault.New(fault.Permission, "key file %s has mode %04o, so others can read it", path, mode).
			WithHint("chmod 600 %s, and think about who may have read it", path)
	}
	if info.Size() != KeySize {
		return fault.New(fault.Config, "key file %s has %d bytes instead of %d", path, info.Size(), KeySize).
			WithHint("restore it from a backup; without it nothing sealed can be opened")
	}
	return nil
}

// makeKeyFile writes a new key beside path and links it there. A name already
// taken is fine. os.Rename would replace the winner's key.
func makeKeyFile(path string) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, ".key-*") // 0600
	if err != nil {
		return keyFault("make key file in %s: %w", dir, err)
	}
	defer os.Remove(tmp.Name())
	if err := writeKey(tmp); err != nil {
		return keyFault("write key file %s: %w", path, err)
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return keyFault("name key file %s: %w", path, err)
	}
	if err := syncDir(dir); err != nil {
		return keyFault("make key file %s last: %w", path, err)
	}
	return nil
}

func writeKey(f *os.File) (err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	master := make([]byte, KeySize)
	defer clear(master)
	if _, err := rand.Read(master); err != nil {
		return err
	}
	if _, err := f.Write(master); err != nil {
		return err
	}
	return f.Sync()
}

func keyFault(format, path string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fault.New(fault.Permission, format, path, err)
	}
	return fault.New(fault.Unavailable, format, path, err)
}
