package instance

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ombud-run/ombud/internal/fault"
)

// Bits of a mode that must not be set.
const (
	forOthers      fs.FileMode = 0o077 // private: nobody else looks in
	writtenByOther fs.FileMode = 0o022 // others may look, never write
)

// MakeDirs makes the directories of the instance, 0700 whatever the umask, and
// checks those that exist: state and sockets must be private, configuration and
// workspace must not be writable by others, all must belong to this user. What
// it finds wrong it refuses and never repairs, since a person may have meant it.
func (in Instance) MakeDirs() error {
	for _, d := range []struct {
		path   string
		refuse fs.FileMode
	}{
		{in.ConfigDir, writtenByOther},
		{in.RecipeDir(), writtenByOther},
		{in.StateDir, forOthers},
		{in.BackupDir(), forOthers},
		{in.DataDir, writtenByOther},
		{in.Workspace(), writtenByOther},
		{in.CacheDir, writtenByOther},
		{in.RuntimeDir, forOthers},
	} {
		if err := makeDir(d.path); err != nil {
			return err
		}
		if err := checkDir(d.path, d.refuse); err != nil {
			return err
		}
	}
	return nil
}

// CheckWritten tells whether a file or a directory, seen as info, is the word of this user:
// it is theirs, or the system's, and nobody else can write it.
func CheckWritten(path string, info fs.FileInfo) error {
	if owner, ours := ownedByUs(info); !ours && owner != 0 {
		return fault.New(fault.Permission, "%s belongs to uid %d, ombud runs as uid %d", path, owner, os.Geteuid()).
			WithHint("chown it, for what stands in it is done")
	}
	if wrong := openTo(info, writtenByOther); wrong != 0 {
		return fault.New(fault.Permission, "%s has mode %04o, so others can write what is done", path, info.Mode().Perm()).
			WithHint("chmod %04o %s", info.Mode().Perm()&^writtenByOther, path)
	}
	return nil
}

// CheckRuntime tells a client whether the directory of the sockets can be
// trusted: it belongs to this user and nobody else can enter. A directory that
// does not exist is fine, there is just nobody to talk to.
func (in Instance) CheckRuntime() error {
	err := checkDir(in.RuntimeDir, forOthers)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// makeDir makes path and what is missing above it. The last element is made by
// mkdir itself, so that it is ours or an error, even in a shared directory.
func makeDir(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return diskFault("make directory %s: %w", filepath.Dir(path), err)
	}
	err := os.Mkdir(path, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return diskFault("make directory %s: %w", path, err)
	}
	return nil
}

// checkDir does not follow a link in the last element: in a shared directory a
// link is how somebody else would choose where our socket goes.
func checkDir(path string, refuse fs.FileMode) error {
	info, err := os.Lstat(path)
	if err != nil {
		return diskFault("look at directory %s: %w", path, err)
	}
	if info.Mode()&fs.ModeSymlink != 0 && refuse == writtenByOther {
		// Configuration is often a link into a directory under version control.
		if info, err = os.Stat(path); err != nil {
			return diskFault("look at directory %s: %w", path, err)
		}
	}
	if !info.IsDir() {
		return fault.New(fault.Permission, "%s is not a directory", path).
			WithHint("move it away; ombud makes the directory itself")
	}
	if owner, ours := ownedByUs(info); !ours {
		return fault.New(fault.Permission, "%s belongs to uid %d, ombud runs as uid %d", path, owner, os.Geteuid()).
			WithHint("run ombud as the owner, or choose another place with OMBUD_HOME")
	}
	if wrong := openTo(info, refuse); wrong != 0 {
		return fault.New(fault.Permission, "%s has mode %04o, so others can get in", path, info.Mode().Perm()).
			WithHint("chmod %04o %s", info.Mode().Perm()&^refuse, path)
	}
	return nil
}

// diskFault classifies an error of a file system call.
func diskFault(format, path string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fault.New(fault.Permission, format, path, err).
			WithHint("choose another place with OMBUD_HOME, or run ombud as the owner of that one")
	}
	return fault.New(fault.Unavailable, format, path, err)
}
