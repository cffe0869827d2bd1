package confine

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// placed is a mount that is put in place after everything else was made read-only.
// The shallower come first, so that one inside another finds its place.
type placed struct {
	path string
	tree int // a copy of what is there, or -1: it is covered
	dir  bool
	ro   bool
}

// buildMounts makes the job's view: everything is read-only but what may be
// changed; /tmp and its like are its own; /proc shows its own processes; what is
// hidden is covered.
func buildMounts(p *plan) error {
	// Nothing done here may be seen outside.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	own := tempDirs(p)
	list, err := take(p, own)
	if err != nil {
		return err
	}
	defer func() {
		for _, m := range list {
			if m.tree >= 0 {
				_ = unix.Close(m.tree) // what was not placed goes away
			}
		}
	}()
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("own /proc: %w", err)
	}
	if err := boundPIDs(p); err != nil {
		return fmt.Errorf("number of processes: %w", err)
	}
	if err := readOnly("/", true); err != nil {
		return fmt.Errorf("read-only mounts: %w", err)
	}
	for _, dir := range own {
		opts := "mode=1777,size=" + strconv.FormatInt(p.Limits.Tmp, 10)
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, opts); err != nil {
			return fmt.Errorf("own %s: %w", dir, err)
		}
	}
	for _, m := range list {
		if err := m.place(); err != nil {
			return fmt.Errorf("place %s: %w", m.path, err)
		}
	}
	for _, m := range slices.Backward(list) {
		if m.tree < 0 && m.dir {
			if err := readOnly(m.path, false); err != nil {
				return fmt.Errorf("cover %s: %w", m.path, err)
			}
		}
	}
	return nil
}

// tempDirs are the temporary directories that the job gets its own of: not one that
// it was given as it is.
func tempDirs(p *plan) []string {
	var out []string
	for _, dir := range privateDirs {
		st, err := os.Lstat(dir)
		given := slices.ContainsFunc(p.Write, func(w string) bool { return within(dir, w) })
		if err == nil && st.IsDir() && !given {
			out = append(out, dir)
		}
	}
	return out
}

// take copies the trees that are to be put back: what may be changed, and what lies
// below a directory that will be covered.
func take(p *plan, own []string) ([]placed, error) {
	var list []placed
	covered := func(path string) bool {
		return anyWithin(path, own) || slices.ContainsFunc(p.Hide, func(h string) bool { return h != path && within(path, h) })
	}
	shown := slices.Concat(p.Write, p.Read)
	for _, path := range p.Hide {
		st, err := os.Lstat(path)
		if err != nil {
			continue // nothing there to hide
		}
		if anyWithin(path, own) && !anyWithin(path, shown) {
			continue // not there any more under the job's own directory
		}
		list = append(list, placed{path: path, tree: -1, dir: st.IsDir()})
	}
	add := func(path string, ro bool) error {
		if slices.ContainsFunc(list, func(m placed) bool { return m.path == path }) {
			return nil
		}
		m, err := copyOf(path, ro)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("take %s: %w", path, err)
		}
		list = append(list, m)
		return nil
	}
	for _, path := range p.Write {
		if err := add(path, false); err != nil {
			return list, err
		}
	}
	// Where the program starts has to be there; whether it may read it is another thing.
	reads := slices.Concat(p.Read, p.Sockets)
	if !anyWithin(string(p.Dir), slices.Concat(p.Write, p.Read)) && len(p.Dir) > 0 {
		reads = append(reads, string(p.Dir))
	}
	if !anyWithin(string(p.Path), slices.Concat(p.Write, p.Read)) {
		reads = append(reads, string(p.Path))
	}
	for _, path := range reads {
		if covered(path) {
			if err := add(path, true); err != nil {
				return list, err
			}
		}
	}
	slices.SortStableFunc(list, func(a, b placed) int {
		return cmp.Compare(strings.Count(a.path, "/"), strings.Count(b.path, "/"))
	})
	return list, nil
}

// copyOf copies the mounts from a path on, as they are.
func copyOf(path string, ro bool) (placed, error) {
	fd, err := openPath(path)
	if err != nil {
		return placed{}, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return placed{}, err
	}
	tree, err := unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.O_CLOEXEC|unix.AT_RECURSIVE|unix.AT_EMPTY_PATH)
	return placed{path: path, tree: tree, dir: st.Mode&unix.S_IFMT == unix.S_IFDIR, ro: ro}, err
}

func (m placed) place() error {
	if m.tree < 0 && m.dir {
		return unix.Mount("tmpfs", m.path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=64k")
	}
	if m.tree < 0 {
		return unix.Mount("/dev/null", m.path, "", unix.MS_BIND, "")
	}
	if m.ro {
		attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(m.tree, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
			return err
		}
	}
	if err := m.room(); err != nil {
		return err
	}
	return unix.MoveMount(m.tree, "", unix.AT_FDCWD, m.path, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// room makes the place a mount goes to, where a cover has taken it away.
func (m placed) room() error {
	if _, err := os.Lstat(m.path); err == nil {
		return nil
	}
	if m.dir {
		return os.MkdirAll(m.path, 0o750)
	}
	if err := os.MkdirAll(filepath.Dir(m.path), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(m.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func readOnly(path string, below bool) error {
	flags := uint(0)
	if below {
		flags = unix.AT_RECURSIVE
	}
	return unix.MountSetattr(unix.AT_FDCWD, path, flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

// firstReused is the number from which process numbers are used again (the
// kernel's RESERVED_PIDS).
const firstReused = 300

// boundPIDs bounds the processes of a job by the numbers its namespace has for
// them: a limit on processes does not hold root. Since Linux 6.14 the number is the
// namespace's own; before, writing it would change the whole machine's.
func boundPIDs(p *plan) error {
	if !p.CountPIDs {
		return nil
	}
	n := firstReused + ownThreads + p.Limits.Processes
	return os.WriteFile("/proc/sys/kernel/pid_max", []byte(strconv.Itoa(n)), 0)
}
