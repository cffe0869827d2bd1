package vault

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ombud-run/ombud/internal/failpoint"
	"github.com/ombud-run/ombud/internal/wholefile"
)

// write puts data at path as a whole or not at all, mode 0600, and has it on disk
// before it returns. Between the temporary file and its name, prove reads back what
// was written; nil proves nothing. With fresh the name has to be free: another file
// there is fs.ErrExist.
func write(path string, data []byte, fresh bool, prove func([]byte) error) (err error) {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, tmpPrefix+"*") // 0600
	if err != nil {
		return keyFault("make a file in %s: %w", dir, err)
	}
	failpoint.Hit("vault.create")
	defer func() {
		if err != nil || fresh {
			_ = os.Remove(tmp.Name()) // what is left is no harm
		}
	}()
	if err := fill(tmp, data); err != nil {
		return keyFault("write %s: %w", path, err)
	}
	if prove != nil {
		back, err := os.ReadFile(tmp.Name())
		if err != nil {
			return keyFault("read back %s: %w", path, err)
		}
		defer clear(back)
		if err := prove(back); err != nil {
			return err
		}
	}
	if fresh {
		err = os.Link(tmp.Name(), path) // a rename would replace what is there
	} else {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return keyFault("name %s: %w", path, err)
	}
	failpoint.Hit("vault.name")
	if err := wholefile.SyncDir(dir); err != nil {
		return keyFault("make %s last: %w", path, err)
	}
	failpoint.Hit("vault.fsync-dir")
	return nil
}

// tmpPrefix begins the names of files that have no name of their own yet.
const tmpPrefix = ".vault-"

// sweep removes what a crash left of them. One may be a second name of a file that is
// in force, so it is not overwritten.
func sweep(dir string) {
	left, err := filepath.Glob(filepath.Join(dir, tmpPrefix+"*"))
	if err != nil {
		return // only for a bad pattern
	}
	for _, path := range left {
		_ = os.Remove(path) // the next start tries again
	}
}

func fill(f *os.File, data []byte) (err error) {
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(data); err != nil {
		return err
	}
	failpoint.Hit("vault.write")
	if err := f.Sync(); err != nil {
		return err
	}
	failpoint.Hit("vault.fsync")
	return nil
}

// rename gives a file that is complete and on disk the name of another.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return keyFault("name %s: %w", to, err)
	}
	failpoint.Hit("vault.name")
	if err := wholefile.SyncDir(filepath.Dir(to)); err != nil {
		return keyFault("make %s last: %w", to, err)
	}
	failpoint.Hit("vault.fsync-dir")
	return nil
}

// shred overwrites a key file and removes it. Whether the old blocks are gone is
// the file system's affair; copies and snapshots have them anyway.
func shred(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return keyFault("open %s to remove it: %w", path, err)
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() && info.Size() <= 1<<10 {
		noise := make([]byte, info.Size())
		random(noise)
		_, err = f.Write(noise)
		failpoint.Hit("vault.write")
		err = errors.Join(err, f.Sync())
		failpoint.Hit("vault.fsync")
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return keyFault("overwrite %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return keyFault("remove %s: %w", path, err)
	}
	failpoint.Hit("vault.remove")
	if err := wholefile.SyncDir(filepath.Dir(path)); err != nil {
		return keyFault("make the removal of %s last: %w", path, err)
	}
	failpoint.Hit("vault.fsync-dir")
	return nil
}
