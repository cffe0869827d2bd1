package confine

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long a test waits for what should take milliseconds.
const patience = 30 * time.Second

// fakeSystem is a kernel with less than ours.
type fakeSystem struct {
	landlock   int
	seccomp    bool
	namespaces error
}

func (f fakeSystem) Landlock() int { return f.landlock }

func (f fakeSystem) Seccomp() bool { return f.seccomp }

func (f fakeSystem) Namespaces() error { return f.namespaces }

var errNoNamespaces = errors.New("refused by the test")

func systemNamed(name string) System {
	if name == "without namespaces" {
		return fakeSystem{landlockABI(), true, errNoNamespaces}
	}
	return nil
}

var systems = []string{"with namespaces", "without namespaces"}

// eachSystem runs a test with everything the kernel has, and without namespaces.
func eachSystem(t *testing.T, run func(t *testing.T, system string, l *Launcher)) {
	t.Helper()
	needWalls(t)
	for _, name := range systems {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := launcher(t, Options{System: systemNamed(name)})
			if name == "with namespaces" {
				if err := l.probe.abilities().namespaces; err != nil {
					t.Skip("no namespaces here:", err)
				}
			}
			run(t, name, l)
		})
	}
}

func needWalls(t *testing.T) {
	t.Helper()
	if landlockABI() < scopesABI || !(linux{}).Seccomp() {
		t.Skip("this kernel has no Landlock or no seccomp")
	}
}

func launcher(t *testing.T, o Options) *Launcher {
	t.Helper()
	l, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// lockedBuffer takes output while it is read.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// role is a spec for a job that the test binary plays.
func role(t *testing.T, name, dir string, out io.Writer, args ...string) Spec {
	exe := self(t)
	return Spec{
		Path: exe, Args: append([]string{exe}, args...), Env: []string{"CONFINE_ROLE=" + name},
		Dir: dir, Stdout: out, Stderr: out, Profile: ShellProfile(dir), Owner: Owner{Subject: "test", Tool: name},
	}
}

func start(t *testing.T, l *Launcher, s Spec) *Job {
	t.Helper()
	j, err := l.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func wait(t *testing.T, j *Job) Exit {
	t.Helper()
	select {
	case <-j.Done():
	case <-time.After(patience):
		t.Fatal("the job does not end")
	}
	x, err := j.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("waited in vain: " + what)
		}
	}
}

// alive lists the processes that have a word among their arguments.
func alive(word string) []int {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var out []int
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err == nil && slices.Contains(strings.Split(string(text), "\x00"), word) {
			pid, _ := strconv.Atoi(strings.Split(f, "/")[2])
			out = append(out, pid)
		}
	}
	return out
}

func token(t *testing.T) string {
	return "token-" + strconv.Itoa(os.Getpid()) + "-" + strings.NewReplacer("/", "-", " ", "-").Replace(t.Name())
}

// outsideDir is a directory that a job can see and may not touch. It is not below
// what a job has of its own, if there is such a place.
func outsideDir(t *testing.T) string {
	t.Helper()
	home, _ := os.UserHomeDir()
	for _, base := range []string{home, ".", t.TempDir()} {
		dir, err := os.MkdirTemp(base, ".confine-test-")
		if err != nil {
			continue
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if dir, err = filepath.Abs(dir); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{".ssh/id_ed25519": "secret", "plain": "text", "program": "#!/bin/true\n", "hidden/key": "secret"} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	t.Fatal("no place outside")
	return ""
}
