package confine

import (
	"bufio"
	"io"
	"path"
	"slices"
	"strings"
)

// hierarchy is a tree of cgroups as it is mounted: the one of version 2, or one of
// version 1 with its controllers.
type hierarchy struct {
	root        string // what of the tree is mounted: "/", or the part a container sees
	point       string // where
	v2          bool
	controllers []string // version 1 only
	readOnly    bool
}

// membership is a process's place in one hierarchy, seen from the tree's own root.
type membership struct {
	v2          bool
	controllers []string // version 1 only
	path        string
}

// parseMounts picks the hierarchies out of a mountinfo file, proc_pid_mountinfo(5).
// The last mount on a place is the one that is seen there. A line that is not what
// the page says is not a mount we can use, and says nothing about the others.
func parseMounts(r io.Reader) ([]hierarchy, error) {
	var out []hierarchy
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20) // an overlay has all its layers in one line
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 6 || len(kind) < 3 {
			continue
		}
		h := hierarchy{root: unescape(fields[3]), point: unescape(fields[4])}
		out = slices.DeleteFunc(out, func(below hierarchy) bool { return below.point == h.point })
		if kind[0] != "cgroup" && kind[0] != "cgroup2" || !path.IsAbs(h.root) || !path.IsAbs(h.point) {
			continue
		}
		super := strings.Split(kind[2], ",")
		h.v2 = kind[0] == "cgroup2"
		h.readOnly = slices.Contains(strings.Split(fields[5], ","), "ro") || slices.Contains(super, "ro")
		if !h.v2 {
			h.controllers = super
		}
		out = append(out, h)
	}
	return out, lines.Err()
}

// unescape undoes what the kernel does to space, tab, newline, backslash and # in a
// path: a backslash and three octal digits.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && s[i+1] <= '3' && octal(s[i+1]) && octal(s[i+2]) && octal(s[i+3]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func octal(c byte) bool { return '0' <= c && c <= '7' }

// parseMemberships reads a cgroup file of a process, cgroups(7).
func parseMemberships(r io.Reader) ([]membership, error) {
	var out []membership
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		parts := strings.SplitN(lines.Text(), ":", 3) // a path may hold colons
		if len(parts) < 3 || !path.IsAbs(parts[2]) {
			continue
		}
		m := membership{v2: parts[0] == "0" && parts[1] == "", path: strings.TrimSuffix(parts[2], " (deleted)")}
		if !m.v2 {
			m.controllers = strings.Split(parts[1], ",")
		}
		out = append(out, m)
	}
	return out, lines.Err()
}

// dirOf returns where the cgroup of a membership is found in h. What lies outside
// the mounted part, or outside our namespace ("/.."), is found nowhere.
func (h hierarchy) dirOf(at string) (dir string, ok bool) {
	if slices.Contains(strings.Split(h.root+"/"+at, "/"), "..") {
		return "", false
	}
	root, at := path.Clean(h.root), path.Clean(at)
	switch {
	case root == "/":
		return path.Join(h.point, at), true
	case at == root:
		return h.point, true
	case strings.HasPrefix(at, root+"/"):
		return path.Join(h.point, at[len(root):]), true
	}
	return "", false
}

// has reports whether h is a hierarchy of version 1 with a controller.
func (h hierarchy) has(controller string) bool {
	return !h.v2 && slices.Contains(h.controllers, controller)
}

// ownDirs are the directories of the cgroup a process is in, in every mounted tree
// that may be written: of version 2, and of version 1 with the pids controller.
func ownDirs(mounts []hierarchy, in []membership) (v2, pids []string) {
	for _, h := range mounts {
		for _, m := range in {
			dir, ok := h.dirOf(m.path)
			switch {
			case !ok || h.readOnly:
			case h.v2 && m.v2:
				v2 = append(v2, dir)
			case h.has("pids") && slices.Contains(m.controllers, "pids"):
				pids = append(pids, dir)
			}
		}
	}
	return v2, pids
}

// jobsPrefix begins the name of every subtree that a daemon keeps its jobs in.
const jobsPrefix = "ombud-jobs-"

// CgroupName is the name of the subtree of the daemon whose state directory has
// this device and inode, which no other daemon of the machine has at the same time.
func CgroupName(device, inode uint64) string {
	const digits = "0123456789abcdef"
	name := []byte(jobsPrefix)
	for _, n := range []uint64{device, inode} {
		for shift := 60; shift >= 0; shift -= 4 {
			name = append(name, digits[n>>shift&15])
		}
	}
	return string(name)
}

// isJobsName reports whether CgroupName could have made name.
func isJobsName(name string) bool {
	rest, ok := strings.CutPrefix(name, jobsPrefix)
	return ok && len(rest) == 32 && strings.Trim(rest, "0123456789abcdef") == ""
}

// isJobPath reports whether a cgroup is that of a job, of whichever daemon.
func isJobPath(at string) bool {
	dir, _ := path.Split(path.Clean(at))
	return slices.ContainsFunc(strings.Split(dir, "/"), isJobsName)
}
