package confine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestMain lets the test binary play launchers, daemons and jobs.
func TestMain(m *testing.M) {
	if code, ok := Launched(os.Args); ok {
		os.Exit(code)
	}
	role, ok := roles[os.Getenv("CONFINE_ROLE")]
	if !ok {
		os.Exit(m.Run())
	}
	os.Exit(role())
}

var roles = map[string]func() int{
	"grandparent": grandparent,
	"orphan":      orphan,
	"escape":      tryAll,
	"hydra":       hydra,
	"head":        head,
	"bomb":        bomb,
	"fill":        fill,
	"daemon":      daemon,
	"fds":         listDescriptors,
	"die":         die,
	"long":        longOutput,
	"relay":       relay,
	"nested":      nested,
	"switch":      switchLinks,
	"opener":      opener,
}

// grandparent starts a child in a session of its own and dies.
func grandparent() int {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "CONFINE_ROLE=orphan")
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 1
	}
	return 0
}

func orphan() int {
	os.Stdout.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	buf := make([]byte, 1)
	f, _ := os.Open(os.Getenv("CONFINE_FIFO"))
	f.Read(buf) // until the test lets go
	return 0
}

// hydra leaves heads that do all a process can to stay, and then waits or ends.
func hydra() int {
	for i := range 3 {
		cmd := exec.Command("/proc/self/exe", os.Args[1], strconv.Itoa(i))
		cmd.Env = append(os.Environ(), "CONFINE_ROLE=head")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			fmt.Println("start:", err)
			return 1
		}
	}
	if os.Getenv("CONFINE_STAY") == "" {
		return 4
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	return live()
}

// head forks once more, so that its parent dies, and ignores what it can.
func head() int {
	if len(os.Args) < 4 {
		cmd := exec.Command("/proc/self/exe", append(os.Args[1:], "again")...)
		cmd.Env, cmd.Stdout, cmd.Stderr = os.Environ(), os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return 1
		}
		return 0
	}
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	fmt.Println("head", os.Args[2])
	return live()
}

// bomb forks until it is refused and says how far it came.
func bomb() int {
	n := 0
	for n < 5000 {
		pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "1000"}, &syscall.ProcAttr{})
		if err != nil {
			fmt.Println("refused after", n, err)
			return 0
		}
		_ = pid
		n++
	}
	fmt.Println("never refused")
	return 1
}

// fill writes until it is refused, into each directory named.
func fill() int {
	signal.Ignore(syscall.SIGXFSZ)
	block := make([]byte, 1<<20)
	for _, dir := range os.Args[1:] {
		f, err := os.Create(filepath.Join(dir, "full"))
		if err != nil {
			fmt.Println(dir, err)
			continue
		}
		n := 0
		for ; n < 1<<30; n += len(block) {
			if _, err = f.Write(block); err != nil {
				break
			}
		}
		fmt.Println("wrote", n>>20, "MiB:", reason(err))
		os.Remove(f.Name())
	}
	return 0
}

func listDescriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		// What this program opened itself: the directory it reads, its poller, its quota.
		own := strings.HasSuffix(to, "/fd") || strings.HasPrefix(to, "anon_inode") || strings.HasPrefix(to, "/sys/fs/cgroup/")
		if err == nil && !own {
			fmt.Println(e.Name())
		}
	}
	return 0
}

// die ends by the signal or with the status that is named.
func die() int {
	n, _ := strconv.Atoi(os.Args[2])
	if os.Args[1] == "exit" {
		return n
	}
	unix.Kill(os.Getpid(), unix.Signal(n))
	return live()
}

func longOutput() int {
	line := strings.Repeat("x", 1023) + "\n"
	for range 2048 {
		os.Stdout.WriteString(line)
	}
	return 0
}

// relay asks the proxy of its environment for a page.
func relay() int {
	proxy := strings.TrimPrefix(os.Getenv("HTTP_PROXY"), "http://")
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		fmt.Println("proxy:", err)
		return 1
	}
	fmt.Fprintln(conn, "hello")
	answer := make([]byte, 64)
	n, err := conn.Read(answer)
	fmt.Println(string(answer[:n]), err)
	return 0
}

// daemon plays the daemon: it starts a hydra and waits to be killed.
func daemon() int {
	stop, err := Adopt(slog.New(slog.DiscardHandler))
	if err != nil {
		return 1
	}
	defer stop()
	l, err := New(Options{System: systemNamed(os.Getenv("CONFINE_SYSTEM")), Enforce: EnforceBest})
	if err != nil {
		return 1
	}
	exe, err := os.Executable()
	if err != nil {
		return 1
	}
	dir := os.Getenv("CONFINE_DIR")
	_, err = l.Start(context.Background(), Spec{
		Path: exe, Args: []string{exe, os.Args[1]}, Env: []string{"CONFINE_ROLE=hydra", "CONFINE_STAY=1"},
		Dir: dir, Stdout: os.Stdout, Stderr: os.Stdout, Profile: ShellProfile(dir), Grace: time.Hour,
	})
	if err != nil {
		fmt.Println("start:", err)
		return 1
	}
	return live()
}

// attempt is one way out.
type attempt struct {
	name string
	do   func() error
}

// tryAll tries every way out and prints how each ended.
func tryAll() int {
	outside, pid := os.Getenv("OUTSIDE"), atoi(os.Getenv("OUTSIDE_PID"))
	for i, a := range attempts(outside, pid) {
		if i%2 != atoi(os.Args[1]) {
			continue
		}
		err := a.do()
		if err == nil {
			fmt.Println("GOT OUT", a.name)
			continue
		}
		fmt.Println("refused", a.name, "-", err)
	}
	return 0
}

func atoi(s string) int { n, _ := strconv.Atoi(s); return n }

func call3(nr, a, b, c uintptr) error {
	_, _, errno := unix.Syscall(nr, a, b, c)
	if errno != 0 {
		return errno
	}
	return nil
}

func attempts(outside string, pid int) []attempt {
	at := func(name string) string { return filepath.Join(outside, name) }
	open := func(path string, flags int) func() error {
		return func() error {
			fd, err := unix.Open(path, flags, 0o644)
			if err == nil {
				unix.Close(fd)
			}
			return err
		}
	}
	socket := func(family, kind, proto int) func() error {
		return func() error {
			fd, err := unix.Socket(family, kind, proto)
			if err == nil {
				unix.Close(fd)
			}
			return err
		}
	}
	connect := func(family int, to unix.Sockaddr) func() error {
		return func() error {
			fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Connect(fd, to)
		}
	}
	root, _ := unix.BytePtrFromString("/")
	var page [128]byte
	return []attempt{
		{"read ~/.ssh", open(at(".ssh/id_ed25519"), unix.O_RDONLY)},
		{"read by link", open("link-to-outside/.ssh/id_ed25519", unix.O_RDONLY)},
		{"read by /proc", open("/proc/self/root"+at(".ssh/id_ed25519"), unix.O_RDONLY)},
		{"read hidden", open(os.Getenv("HIDDEN"), unix.O_RDONLY)},
		{"list outside", func() error { _, err := os.ReadDir(outside); return err }},
		{"write outside", open(at("new"), unix.O_CREAT|unix.O_WRONLY)},
		{"overwrite outside", open(at(".ssh/id_ed25519"), unix.O_WRONLY|unix.O_TRUNC)},
		{"truncate outside", func() error { return unix.Truncate(at(".ssh/id_ed25519"), 0) }},
		{"unlink outside", func() error { return unix.Unlink(at(".ssh/id_ed25519")) }},
		{"rename outside", func() error { return unix.Rename(at("plain"), at("moved")) }},
		{"move inside", func() error { return unix.Rename(at("plain"), "moved") }},
		{"link inside", func() error { return unix.Link(at("plain"), "linked") }},
		{"mkdir outside", func() error { return unix.Mkdir(at("newdir"), 0o755) }},
		{"chmod outside", func() error { return unix.Chmod(at(".ssh/id_ed25519"), 0o777) }},
		{"execute outside", func() error {
			_, err := syscall.ForkExec(at("program"), []string{"x"}, &syscall.ProcAttr{})
			return err
		}},
		{"write /etc", open("/etc/ombud-test", unix.O_CREAT|unix.O_WRONLY)},
		{"write sysctl", open("/proc/sys/kernel/core_pattern", unix.O_WRONLY)},
		{"read shadow", open("/etc/shadow", unix.O_RDONLY)},
		{"make device", func() error { return unix.Mknod("device", unix.S_IFBLK|0o600, 0) }},
		{"environ of another", open(fmt.Sprintf("/proc/%d/environ", pid), unix.O_RDONLY)},
		{"environ of launcher", open(fmt.Sprintf("/proc/%d/environ", os.Getppid()), unix.O_RDONLY)},
		{"signal another", func() error { return unix.Kill(pid, unix.SIGTERM) }},
		{"signal launcher", func() error { return unix.Kill(os.Getppid(), unix.SIGKILL) }},
		{"ptrace another", func() error { return unix.PtraceAttach(pid) }},
		{"ptrace launcher", func() error { return unix.PtraceAttach(os.Getppid()) }},
		{"read memory", func() error {
			b := make([]byte, 1)
			return readMemory(pid, 0x400000, b)
		}},
		{"unix socket", connect(unix.AF_UNIX, &unix.SockaddrUnix{Name: at("socket")})},
		{"hidden socket", connect(unix.AF_UNIX, &unix.SockaddrUnix{Name: filepath.Join(filepath.Dir(os.Getenv("HIDDEN")), "socket")})},
		{"unix datagram", func() error {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
			if err != nil {
				return err
			}
			return unix.Sendto(pair[0], []byte("x"), 0, &unix.SockaddrUnix{Name: at("datagram")})
		}},
		{"abstract socket", connect(unix.AF_UNIX, &unix.SockaddrUnix{Name: "@" + os.Getenv("ABSTRACT")})},
		{"this host", connect(unix.AF_INET, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}, Port: atoi(os.Getenv("PORT"))})},
		{"another host", connect(unix.AF_INET, &unix.SockaddrInet4{Addr: [4]byte{192, 0, 2, 1}, Port: 80})},
		{"packet socket", socket(unix.AF_PACKET, unix.SOCK_RAW, 0)},
		{"vsock", socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)},
		{"crypto socket", socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0)},
		{"netlink audit", socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT)},
		{"mount", func() error { return unix.Mount("tmpfs", ".", "tmpfs", 0, "") }},
		{"unmount", func() error { return unix.Unmount("/proc", unix.MNT_DETACH) }},
		{"open_tree", func() error { _, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE); return err }},
		{"unshare user", func() error { return unix.Unshare(unix.CLONE_NEWUSER) }},
		{"unshare net", func() error { return unix.Unshare(unix.CLONE_NEWNET) }},
		{"clone user", func() error {
			_, err := syscall.ForkExec("/bin/true", []string{"true"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}})
			return err
		}},
		{"clone3", func() error { return call3(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&page)), 88, 0) }},
		{"setns", func() error {
			fd, err := unix.Open("/proc/self/ns/mnt", unix.O_RDONLY, 0)
			if err != nil {
				return err
			}
			return unix.Setns(fd, 0)
		}},
		{"chroot", func() error { return unix.Chroot(".") }},
		{"pivot_root", func() error { return unix.PivotRoot(".", ".") }},
		{"keyctl", func() error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, true); return err }},
		{"add_key", func() error {
			_, err := unix.AddKey("user", "x", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
			return err
		}},
		{"bpf", func() error { return call3(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&page)), unsafe.Sizeof(page)) }},
		{"io_uring", func() error { return call3(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&page)), 0) }},
		{"userfaultfd", func() error { return call3(unix.SYS_USERFAULTFD, 1, 0, 0) }},
		{"perf_event_open", func() error { return call3(unix.SYS_PERF_EVENT_OPEN, uintptr(unsafe.Pointer(&page)), 0, 0) }},
		{"open_by_handle_at", func() error { return call3(unix.SYS_OPEN_BY_HANDLE_AT, 0, uintptr(unsafe.Pointer(root)), 0) }},
		{"personality", func() error { return call3(unix.SYS_PERSONALITY, 0x0040000, 0, 0) }},
		{"TIOCSTI", func() error {
			// Bits above the number's 32 change nothing for the kernel.
			high := uint64(1) << 40
			return call3(unix.SYS_IOCTL, 0, uintptr(unix.TIOCSTI|high), uintptr(unsafe.Pointer(&page)))
		}},
		{"raise a limit", func() error {
			return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 19, Max: 1 << 19})
		}},
		{"setuid", func() error {
			if os.Getuid() == 0 {
				return call3(unix.SYS_SETUID, 1, 0, 0)
			}
			return call3(unix.SYS_SETUID, 0, 0, 0)
		}},
		{"capability", func() error {
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var have [2]unix.CapUserData
			if err := unix.Capget(&header, &have[0]); err != nil {
				return err
			}
			if have[0].Effective|have[0].Permitted|have[1].Effective|have[1].Permitted != 0 {
				return nil
			}
			return errors.New("none held")
		}},
	}
}

// nested is a job that starts a job.
func nested() int {
	l, err := New(Options{})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer l.Close()
	dir, err := os.Getwd()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	j, err := l.Start(context.Background(), Spec{
		Path: "/bin/sh", Args: []string{"sh", "-c", "echo inside > inside; cat inside; cat " + os.Getenv("SECRET")}, Env: []string{"PATH=/usr/bin:/bin"},
		Dir: dir, Stdout: os.Stdout, Profile: ShellProfile(dir),
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	x, err := j.Wait()
	fmt.Println(x, err)
	return 0
}

// opener opens a file as often as it is told.
func opener() int {
	for range atoi(os.Args[1]) {
		fd, err := unix.Open("file", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		unix.Close(fd)
	}
	return 0
}

// switchLinks connects to a socket of its own, while it exchanges a directory on the
// way for a link to one outside.
func switchLinks() int {
	dir, err := os.MkdirTemp("", "own")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	own, link := filepath.Join(dir, "d"), filepath.Join(dir, "l")
	if err := os.Mkdir(own, 0o700); err != nil {
		return 1
	}
	ln, err := net.Listen("unix", filepath.Join(own, "socket"))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	if err := os.Symlink(os.Getenv("OUTSIDE"), link); err != nil {
		return 1
	}
	go func() {
		for {
			_ = unix.Renameat2(unix.AT_FDCWD, own, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
		}
	}()
	reached := 0
	for range 2000 {
		if conn, err := net.Dial("unix", filepath.Join(own, "socket")); err == nil {
			conn.Close()
			reached++
		}
	}
	fmt.Println("connected", reached)
	return 0
}

// live goes on for longer than any test. Without cgo an empty select ends the program
// as deadlocked.
func live() int {
	<-time.After(time.Hour)
	return 1
}
