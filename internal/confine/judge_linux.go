//go:build linux && (amd64 || arm64)

package confine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// refuses returns the path if the walls refuse what was seen, else the empty
// string. It is asked afterwards and only tells: a path that has changed meanwhile
// makes a wrong entry and opens nothing.
func (r *reach) refuses(s sighting) string {
	path := throughProc(filepath.Clean(s.path))
	if r.hidden(path) {
		return path
	}
	if rest, ok := strings.CutPrefix(path, "/proc/"); ok && !s.write {
		return r.refusesProc(path, rest)
	}
	entry := s.call.kind == changes || s.call.kind == owners // the entry itself, not what it points to
	real, err := resolve(path, s.create, entry)
	if err != nil {
		return "" // nothing is there to be refused
	}
	switch {
	case anyWithin(real, r.write):
		if s.call.kind == changes && slices.Contains(r.write, real) {
			return real // its own place is not its to change
		}
		return ""
	case anyWithin(real, r.devices) && !entry:
		return ""
	case !s.write && (anyWithin(real, r.read) || anyWithin(real, r.system)):
		return ""
	case !s.write && r.onTheWay(real):
		return ""
	}
	return real
}

// onTheWay: directories above what is allowed are walked through and listed by
// nearly every program; Landlock refuses the listing, and nobody needs to hear it.
func (r *reach) onTheWay(path string) bool {
	st, err := os.Stat(path)
	if err != nil || !st.IsDir() {
		return false
	}
	up := func(p string) bool { return within(p, path) }
	return slices.ContainsFunc(r.read, up) || slices.ContainsFunc(r.write, up)
}

// resolve follows links. What is about to be made does not exist yet.
func resolve(path string, create, entry bool) (string, error) {
	if !entry {
		if fd, err := openPath(path); err == nil { // nearly always: no link on the way
			_ = unix.Close(fd)
			return path, nil
		}
		real, err := filepath.EvalSymlinks(path)
		if err == nil || !create || !errors.Is(err, fs.ErrNotExist) {
			return real, err
		}
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, filepath.Base(path)), nil
}

// throughProc undoes the way round by the root of a process, which is the job's own.
func throughProc(path string) string {
	rest, ok := strings.CutPrefix(path, "/proc/")
	if !ok {
		return path
	}
	_, rest, _ = strings.Cut(rest, "/")
	if rest, ok = strings.CutPrefix(rest, "root/"); ok {
		return throughProc("/" + rest)
	}
	return path
}

// guarded are the parts of a process in /proc that only its tracer may see.
var guarded = []string{"environ", "mem", "maps", "smaps", "auxv", "cwd", "root", "exe", "fd", "fdinfo", "map_files", "ns", "stack", "syscall", "pagemap", "personality", "io"}

// refusesProc judges a look at another process.
func (r *reach) refusesProc(path, rest string) string {
	name, part, _ := strings.Cut(rest, "/")
	pid, err := strconv.Atoi(name)
	if err != nil {
		return ""
	}
	if !outside(pid, r.namespaces) {
		return ""
	}
	first, _, _ := strings.Cut(part, "/")
	if _, err := os.Lstat("/proc/" + name); err == nil && !slices.Contains(guarded, first) {
		return ""
	}
	return path
}

// speaksTo reports whether the job may connect to a unix socket: one it was given,
// or one of its own. Only the job can have made one in its private directories;
// anywhere else somebody outside may be listening.
func (r *reach) speaksTo(path string) bool {
	if slices.Contains(r.sockets, path) {
		return true
	}
	return r.namespaces && anyWithin(path, r.private) && !anyWithin(path, r.given)
}
