package confine

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// reach is what a job may touch, in resolved paths. Landlock is built from it, and
// the watcher tells by it what was refused.
type reach struct {
	system  []string // as read; their names may be links
	read    []string // and execute
	write   []string
	devices []string // read, written and controlled, not made
	hide    []string
	sockets []string

	private    []string // directories that nobody outside sees into
	given      []string // what was put into them from outside
	namespaces bool     // /proc shows the job's processes alone
}

// privateDirs are a job's own, in a mount namespace.
var privateDirs = []string{"/tmp", "/var/tmp", "/dev/shm"}

// systemDirs hold programs, libraries and what they need to start. They hold
// nothing of a user, and a job cannot change them.
var systemDirs = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/gnu/store", "/run/current-system",
	"/proc", "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage",
	"/run/systemd/resolve", "/run/resolvconf",
	"/etc/passwd", "/etc/group", // without them nobody has a name; they hold no passwords
}

var deviceFiles = []string{
	"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts",
}

// fill adds what every job may reach and what the plan says.
func (r *reach) fill(p *plan) {
	r.hide, r.sockets = p.Hide, p.Sockets
	r.devices, r.namespaces = deviceFiles, p.Namespaces
	r.system = slices.Concat(systemDirs, p.Settings, []string{string(p.Path)})
	if p.Namespaces {
		r.given = slices.Concat(p.Read, p.Write, p.Sockets)
		// What is hidden is covered in the namespace.
		r.read = append(r.read, p.Read...)
		r.write = append(r.write, p.Write...)
		return
	}
	for _, dir := range p.Read {
		r.read = append(r.read, around(dir, p.Hide)...)
	}
	for _, dir := range p.Write {
		r.write = append(r.write, around(dir, p.Hide)...)
	}
}

// settings remembers what everybody may read of /etc.
type settings struct {
	mu    sync.Mutex
	read  time.Time
	paths []string
}

// settingsFor is how long what was found is used. A file that comes meanwhile is not
// reached; one that is closed meanwhile is protected by the system against all but
// root.
const settingsFor = time.Minute

// readable lists what everybody may read of a system directory: the directory
// itself if that is all of it. As root a job would else read what the system keeps
// for root, such as the passwords.
func (s *settings) readable(dir string) []string {
	if os.Geteuid() != 0 {
		return []string{dir} // the system's own permissions hold
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read.IsZero() || time.Since(s.read) > settingsFor {
		parts, whole := openTo(dir, 8)
		if whole {
			parts = []string{dir}
		}
		s.paths, s.read = parts, time.Now()
	}
	return s.paths
}

// openTo returns the parts of dir that everybody may read, and whether that is all.
func openTo(dir string, depth int) (parts []string, whole bool) {
	entries, err := os.ReadDir(dir)
	if err != nil || depth == 0 {
		return nil, false
	}
	whole = true
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.Type() == fs.ModeSymlink {
			continue // what it points to decides
		}
		info, err := e.Info()
		if err != nil {
			whole = false
			continue
		}
		switch mode := info.Mode(); {
		case mode.IsDir() && mode.Perm()&0o005 == 0o005:
			below, all := openTo(path, depth-1)
			if all {
				below = []string{path}
			}
			whole = whole && all
			parts = append(parts, below...)
		case mode.IsRegular() && mode.Perm()&0o004 != 0:
			parts = append(parts, path)
		default:
			whole = false
		}
	}
	return parts, whole
}

// around lists what is left of a directory when some below it must not be seen:
// the directory itself if none is. New entries beside a hidden one are not reached.
func around(dir string, hide []string) []string {
	covered := func(path string) bool {
		return slices.ContainsFunc(hide, func(h string) bool { return within(path, h) })
	}
	if slices.ContainsFunc(hide, func(h string) bool { return h != dir && within(dir, h) }) {
		// Named inside something hidden: the name that says more counts.
		hide = slices.DeleteFunc(slices.Clone(hide), func(h string) bool { return within(dir, h) && h != dir })
	}
	if covered(dir) && slices.Contains(hide, dir) {
		return nil
	}
	if !slices.ContainsFunc(hide, func(h string) bool { return within(h, dir) }) {
		return []string{dir}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if e.Type() != fs.ModeSymlink { // what it points to need not be inside
			out = append(out, around(filepath.Join(dir, e.Name()), hide)...)
		}
	}
	return out
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	if dir == "/" {
		return strings.HasPrefix(path, "/")
	}
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/')
}

func anyWithin(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return within(path, d) })
}

// hidden reports whether a path is covered. What is allowed inside something
// hidden, by a longer name, is not.
func (r *reach) hidden(path string) bool {
	longest := func(dirs []string) int {
		n := -1
		for _, d := range dirs {
			if within(path, d) {
				n = max(n, len(d))
			}
		}
		return n
	}
	h := longest(r.hide)
	return h >= 0 && h >= max(longest(r.read), longest(r.write), longest(r.sockets), longest(r.system))
}

// openPath opens a path that has been resolved, for what open_tree and Landlock do
// with it. A link where none was has been put there since, by somebody who would
// like to have what it points to.
func openPath(path string) (int, error) {
	return unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
}
