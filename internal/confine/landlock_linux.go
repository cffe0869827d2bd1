package confine

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// What Landlock calls by name.
const (
	fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_IOCTL_DEV | unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
	readRights   = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	deviceRights = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	// No device is made and no socket outside the list is spoken to.
	writeRights = readRights | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SYM |
		unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

// maxABI is the newest version whose rights are named above.
const maxABI = 9

// handled are the rights a version of Landlock knows.
func handled(abi int) (fs, scoped uint64) {
	rights := 13
	switch {
	case abi >= 9:
		rights = 17
	case abi >= 5:
		rights = 16
	case abi >= 3:
		rights = 15
	case abi >= 2:
		rights = 14
	}
	if abi >= 6 {
		scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	return 1<<rights - 1, scoped
}

// restrict puts this thread, and what it forks, behind Landlock.
func restrict(r *reach, abi int) error {
	fs, scoped := handled(abi)
	set, err := landlockCreate(&unix.LandlockRulesetAttr{Handled_access_fs: fs, Scoped: scoped})
	if err != nil {
		return fmt.Errorf("make a rule set: %w", err)
	}
	defer unix.Close(set)
	follow := func(path string) (int, error) { return unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0) }
	for _, part := range []struct {
		paths  []string
		rights uint64
		open   func(string) (int, error)
	}{
		{r.system, readRights, follow},
		{r.devices, deviceRights, follow},
		{r.read, readRights, openPath},
		{r.write, writeRights, openPath},
		{r.sockets, unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX, openPath},
	} {
		for _, path := range part.paths {
			if part.rights&fs == 0 {
				break
			}
			if err := allow(set, path, part.rights&fs, part.open); err != nil {
				return fmt.Errorf("rule for %s: %w", path, err)
			}
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	return landlockRestrict(set)
}

// allow adds a rule. What does not exist cannot be reached and needs none.
func allow(set int, path string, rights uint64, open func(string) (int, error)) error {
	fd, err := open(path)
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EACCES) {
			return nil
		}
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	if rights == 0 {
		return nil
	}
	return landlockAdd(set, &unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)})
}
