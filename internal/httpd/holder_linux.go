package httpd

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// holder finds the process that listens on a port. That of another user cannot be seen.
func holder(port int) (process, bool) {
	var inodes []string
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if f, err := os.Open(file); err == nil {
			inodes = append(inodes, inodesOf(f, port)...)
			_ = f.Close() // it was only read
		}
	}
	if len(inodes) == 0 {
		return process{}, false
	}
	open, _ := filepath.Glob("/proc/[0-9]*/fd/*") // the pattern is well formed
	for _, fd := range open {
		to, err := os.Readlink(fd)
		if err != nil {
			continue
		}
		inode, is := strings.CutPrefix(to, "socket:[")
		if !is || !slices.Contains(inodes, strings.TrimSuffix(inode, "]")) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(fd, "/")[2])
		if err != nil {
			continue
		}
		if name := nameOf(pid); name != "" {
			return process{pid, name}, true
		}
	}
	return process{}, false
}

// nameOf is how a process is called, "" if it is gone. One that was started as
// /proc/self/exe, as a daemon behind is, is called as its file is.
func nameOf(pid int) string {
	dir := "/proc/" + strconv.Itoa(pid)
	comm, err := os.ReadFile(dir + "/comm")
	if err != nil {
		return ""
	}
	name := strings.TrimSpace(string(comm))
	if name == "exe" {
		if file, err := os.Readlink(dir + "/exe"); err == nil {
			name = filepath.Base(strings.TrimSuffix(file, " (deleted)"))
		}
	}
	return name
}
