package confine

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// program is the start of a job's program: the walls are built around one thread,
// which then forks. Landlock, seccomp and capabilities are of a thread, and a
// child has what the thread that forked it had; the rest of the launcher stays as
// it was, so that it can bury and end what it started.
type program struct {
	plan  *plan
	files []*os.File
	book  *book

	// Set when start has closed done.
	stage    string // what failed
	err      error
	pid      int
	pidfd    int
	listener int    // of NetProxy, else -1
	unseen   string // why refusals are not seen
}

// start runs on a thread of its own, which is confined for good and never used for
// anything else.
//
// It is not the first thread of the process: whether the job may signal or look at
// the launcher is judged by that one, which must not be inside the job's walls.
func (p *program) start(done chan<- struct{}) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		go p.start(done) // cannot run here while we stay
		select {}
	}
	p.listener = -1
	p.err = p.steps()
	close(done)
	select {} // the thread must outlive the program: its filter's listener hangs on it
}

func (p *program) steps() error {
	r := &reach{}
	for _, step := range []struct {
		name string
		do   func(*reach) error
	}{
		{"namespaces", p.mount},
		{"temporary directory", p.tmp},
		{"network", p.network},
		{"paths", p.paths},
		{"landlock", p.landlock},
		{"capabilities", func(*reach) error { return dropCapabilities() }},
		{"seccomp", p.seccomp},
		{"exec", p.exec},
	} {
		p.stage = step.name
		if err := step.do(r); err != nil {
			return err
		}
	}
	return nil
}

func (p *program) mount(*reach) error {
	if !p.plan.Namespaces {
		return nil
	}
	return buildMounts(p.plan)
}

// tmp gives a job its temporary directories.
func (p *program) tmp(r *reach) error {
	if p.plan.Namespaces {
		r.private = tempDirs(p.plan)
		r.write = append(r.write, r.private...)
		return nil
	}
	if p.plan.Temp != "" {
		p.book.keep(p.plan.Temp)
		r.write = append(r.write, p.plan.Temp)
		p.env("TMPDIR", p.plan.Temp)
	}
	return nil
}

// env sets a variable of the program.
func (p *program) env(name, value string) {
	p.plan.Env = slices.DeleteFunc(p.plan.Env, func(kv []byte) bool {
		return strings.HasPrefix(string(kv), name+"=")
	})
	p.plan.Env = append(p.plan.Env, []byte(name+"="+value))
}

// network makes the network of a NetProxy job: one with nothing in it but the
// listener that the daemon serves.
func (p *program) network(*reach) error {
	if p.plan.Network != NetProxy && !p.plan.Probe {
		return nil
	}
	if !p.plan.Namespaces {
		return errors.New("no network namespace for the proxy")
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	if err := upLoopback(); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	if err := unix.Listen(fd, 128); err != nil {
		return err
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	p.listener = fd
	port := name.(*unix.SockaddrInet4).Port
	for _, v := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		p.env(v, fmt.Sprintf("http://127.0.0.1:%d", port))
		p.env(strings.ToLower(v), fmt.Sprintf("http://127.0.0.1:%d", port))
	}
	return nil
}

func upLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

// paths settles what the job may reach, as it is seen from inside.
func (p *program) paths(r *reach) error {
	r.fill(p.plan)
	return nil
}

func (p *program) landlock(r *reach) error {
	if p.plan.Landlock == 0 {
		return nil
	}
	return restrict(r, p.plan.Landlock)
}

func (p *program) seccomp(r *reach) error {
	if !p.plan.Seccomp {
		return nil
	}
	w, err := newWatcher(p.plan, r, p.book)
	if w == nil {
		return err
	}
	if err != nil {
		p.unseen = err.Error()
	}
	p.book.watcher = w
	return nil
}

// exec starts the program. It stands behind every wall from its first instruction.
func (p *program) exec(*reach) error {
	if p.plan.Probe {
		return nil
	}
	attr := &syscall.ProcAttr{
		Dir: string(p.plan.Dir), Env: texts(p.plan.Env),
		Sys: &syscall.SysProcAttr{Setsid: true, PidFD: &p.pidfd},
	}
	for _, f := range p.files {
		attr.Files = append(attr.Files, f.Fd())
	}
	if st, err := os.Stat(attr.Dir); err != nil {
		p.stage = "directory"
		return err
	} else if !st.IsDir() {
		p.stage = "directory"
		return unix.ENOTDIR
	}
	exact := p.book.watcher != nil && p.book.watcher.observing
	if exact {
		p.book.watcher.setLimits(limitsOf(p.plan))
	}
	pid, err := syscall.ForkExec(string(p.plan.Path), texts(p.plan.Args), attr)
	if err != nil {
		if exact {
			if failed := p.book.watcher.limitFailed(); failed != nil {
				p.stage = "limits"
				return failed
			}
		}
		return err
	}
	p.pid = pid
	if !exact {
		// The program has run for some microseconds without them.
		if err := setLimits(pid, limitsOf(p.plan)); err != nil {
			_ = unix.Kill(pid, unix.SIGKILL) // it is our child and not yet reaped
			p.stage = "limits"
			return err
		}
	}
	return nil
}

func texts(in [][]byte) []string {
	out := make([]string, len(in))
	for i, b := range in {
		out[i] = string(b)
	}
	return out
}
