package daemon

import (
	"bufio"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mapping is a part of the program file in memory.
type mapping struct {
	from, to  uintptr
	mode      string
	resident  int // kB
	anonymous int // kB that are no longer the file's: relocated, or written to by a debugger
}

// unmapPages has the system forget which pages of the program file are mapped. They stay in
// its cache, and those that are needed again are mapped again. The start touches most of
// the program once, and a page that is mapped brings its neighbours along: without this an
// idle daemon holds some 17 MB it never looks at again.
func unmapPages() error {
	list, err := mappings()
	if err != nil {
		return err
	}
	for _, m := range list {
		if strings.Contains(m.mode, "w") || m.anonymous > 0 || m.resident == 0 {
			continue // what is there is not in the file
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}

// mappings are those of the program file.
func mappings() (out []mapping, err error) {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was read
	ours := false
	for s := bufio.NewScanner(f); s.Scan(); {
		key, rest, _ := strings.Cut(s.Text(), " ")
		switch {
		case !strings.HasSuffix(key, ":"): // FROM-TO MODE OFFSET DEVICE INODE PATH
			from, to, ok := addresses(key)
			fields := strings.Fields(rest)
			if ours = ok && len(fields) > 4 && strings.HasSuffix(rest, " "+exe); ours {
				out = append(out, mapping{from: from, to: to, mode: fields[0]})
			}
		case ours && key == "Rss:":
			out[len(out)-1].resident = kilobytes(rest)
		case ours && key == "Anonymous:":
			out[len(out)-1].anonymous = kilobytes(rest)
		}
	}
	return out, nil
}

func addresses(text string) (from, to uintptr, ok bool) {
	first, second, _ := strings.Cut(text, "-")
	a, err1 := strconv.ParseUint(first, 16, strconv.IntSize)
	b, err2 := strconv.ParseUint(second, 16, strconv.IntSize)
	return uintptr(a), uintptr(b), err1 == nil && err2 == nil && a < b
}

// kilobytes reads "  123 kB". What cannot be read counts as there.
func kilobytes(text string) int {
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")))
	if err != nil {
		return 1
	}
	return n
}
