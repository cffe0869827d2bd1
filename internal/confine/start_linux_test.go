package confine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/ombud-run/ombud/internal/fault"
)

// patience is how long a test waits for what should take milliseconds.
const patience = 30 * time.Second

// fakeSystem is a kernel with less than ours.
type fakeSystem struct {
	landlock   int
	seccomp    bool
	namespaces error
}

func (f fakeSystem) Landlock() int     { return f.landlock }
func (f fakeSystem) Seccomp() bool     { return f.seccomp }
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

func TestEveryWayOutIsRefusedAndTold(t *testing.T) {
	t.Parallel()
	eachSystem(t, func(t *testing.T, system string, l *Launcher) {
		dir := t.TempDir()
		profiles := []Profile{ShellProfile(dir), GitProfile(dir), MCPProfile(dir), ToolProfile(dir), HarnessProfile(dir, "")}
		for _, p := range profiles {
			t.Run(p.Name, func(t *testing.T) {
				if system != "with namespaces" && p.Network == NetProxy {
					p.Network = NetNone // it is refused there, which has its own test
				}
				tryEscape(t, system, p)
			})
		}
	})
}

func tryEscape(t *testing.T, system string, p Profile) {
	outside, dir := outsideDir(t), p.Write[0]
	_ = os.Remove(filepath.Join(dir, "link-to-outside"))
	if err := os.Symlink(outside, filepath.Join(dir, "link-to-outside")); err != nil {
		t.Fatal(err)
	}
	hidden := filepath.Join(dir, "hidden-"+p.Name)
	if err := os.MkdirAll(hidden, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(hidden, "key"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	covered, err := net.Listen("unix", filepath.Join(hidden, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer covered.Close()
	p.Hide = []string{hidden}
	unixSocket, err := net.Listen("unix", filepath.Join(outside, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer unixSocket.Close()
	abstract := token(t)
	named, err := net.Listen("unix", "@"+abstract)
	if err != nil {
		t.Fatal(err)
	}
	defer named.Close()
	host, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	victim := exec.Command("/bin/sleep", "1000")
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { victim.Process.Kill(); victim.Wait() }()

	var mu sync.Mutex
	var live []Denial
	l := launcher(t, Options{
		System: systemNamed(system),
		OnDenied: func(d Denial) {
			mu.Lock()
			defer mu.Unlock()
			live = append(live, d)
		},
		Proxy: func(ln net.Listener, _ Owner) func() { return func() { ln.Close() } },
	})
	var out lockedBuffer
	s := role(t, "escape", dir, &out)
	s.Profile = p
	s.Env = append(s.Env, "OUTSIDE="+outside, "OUTSIDE_PID="+strconv.Itoa(victim.Process.Pid), "HIDDEN="+filepath.Join(hidden, "key"),
		"ABSTRACT="+abstract, "PORT="+strconv.Itoa(host.Addr().(*net.TCPAddr).Port))
	var x Exit
	for _, half := range []string{"0", "1"} { // together there is more than is told apart
		s.Args = []string{s.Path, half}
		y := wait(t, start(t, l, s))
		if y.Code != 0 {
			t.Errorf("the job ended with %v", y)
		}
		x.Denials = append(x.Denials, y.Denials...)
	}
	text := out.String()
	if n := strings.Count(text, "refused "); strings.Contains(text, "GOT OUT") || n != len(attempts("", 0)) {
		t.Errorf("%d ways of %d were refused:\n%s", n, len(attempts("", 0)), text)
	}
	if err := victim.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a process outside was ended: %v", err)
	}
	checkOutside(t, outside)
	want := []string{
		"open", "write", "ptrace", "signal", "connect", "socket", "mount", "unshare", "setns", "chroot", "keyctl", "bpf", "io_uring", "system", "ioctl",
	}
	for _, what := range want {
		in := func(list []Denial) bool {
			return slices.ContainsFunc(list, func(d Denial) bool { return d.What == what && d.Profile == p.Name && d.Owner == s.Owner })
		}
		mu.Lock()
		if !in(live) {
			t.Errorf("%q was not told as it happened", what)
		}
		mu.Unlock()
		if !in(x.Denials) {
			t.Errorf("%q is not in the exit's list", what)
		}
	}
	targets := []string{"kill " + strconv.Itoa(victim.Process.Pid), "unshare user", "TIOCSTI", "abstract " + abstract, filepath.Join(hidden, "key"), filepath.Join(hidden, "socket")}
	if visible := system != "with namespaces" || !anyWithin(outside, privateDirs); visible {
		targets = append(targets, filepath.Join(outside, ".ssh/id_ed25519"), filepath.Join(outside, "new"), filepath.Join(outside, "socket"),
			filepath.Join(outside, "program"))
	}
	if p.Network == NetProxy {
		targets = append(targets, "192.0.2.1:80")
	}
	for _, target := range targets {
		if !slices.ContainsFunc(x.Denials, func(d Denial) bool { return d.Target == target && d.Count > 0 }) {
			t.Errorf("nothing was told about %q", target)
		}
	}
	if t.Failed() {
		for _, d := range x.Denials {
			t.Log(d.What, d.Target, d.Count)
		}
		t.Log(text)
	}
}

func checkOutside(t *testing.T, outside string) {
	t.Helper()
	for name, want := range map[string]string{".ssh/id_ed25519": "secret", "plain": "text"} {
		got, err := os.ReadFile(filepath.Join(outside, name))
		if err != nil || string(got) != want {
			t.Errorf("%s is now %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"new", "newdir", "moved"} {
		if _, err := os.Lstat(filepath.Join(outside, name)); err == nil {
			t.Errorf("%s was made", name)
		}
	}
}

func TestAJobDoesItsWork(t *testing.T) {
	t.Parallel()
	eachSystem(t, func(t *testing.T, system string, l *Launcher) {
		dir := t.TempDir()
		var out lockedBuffer
		script := `set -e
echo text > file; mkdir d; mv file d/file; ln -s d/file link; cat link; chmod 700 d/file; rm link
t=$(mktemp); echo tmp > $t; cat $t
cat < /dev/null > /dev/null; head -c 3 /dev/zero | wc -c
exec 3<>/dev/null; cat /etc/ld.so.cache > /dev/null; ls /usr > /dev/null; cat /proc/self/comm > /dev/null
(sleep 0; echo child) & wait
cat; echo err >&2; exit 9`
		j := start(t, l, Spec{
			Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: dir,
			Stdin: strings.NewReader("input\n"), Stdout: &out, Stderr: &out, Profile: ShellProfile(dir),
		})
		x := wait(t, j)
		if want := "text\ntmp\n3\nchild\ninput\nerr\n"; out.String() != want || x.Code != 9 || x.Signal != "" {
			t.Errorf("%v, output %q", x, out.String())
		}
		if len(x.Denials) > 0 {
			t.Errorf("refused: %+v", x.Denials)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "d/file")); err != nil || string(got) != "text\n" {
			t.Errorf("outside there is %q, %v", got, err)
		}
	})
}

func TestExitStatusAndSignalsComeThrough(t *testing.T) {
	t.Parallel()
	eachSystem(t, func(t *testing.T, system string, l *Launcher) {
		for _, c := range []struct {
			how  string
			n    int
			want Exit
		}{
			{"exit", 0, Exit{}}, {"exit", 1, Exit{Code: 1}}, {"exit", 255, Exit{Code: 255}}, {"exit", 137, Exit{Code: 137}},
			{"signal", int(unix.SIGKILL), Exit{Code: -1, Signal: "SIGKILL"}}, {"signal", int(unix.SIGTERM), Exit{Code: -1, Signal: "SIGTERM"}},
			{"signal", int(unix.SIGHUP), Exit{Code: -1, Signal: "SIGHUP"}}, {"signal", int(unix.SIGUSR1), Exit{Code: -1, Signal: "SIGUSR1"}},
		} {
			dir := t.TempDir()
			spec := role(t, "die", dir, nil, c.how, strconv.Itoa(c.n))
			if c.how == "signal" { // a Go program catches some
				spec.Path, spec.Args = "/bin/sh", []string{"sh", "-c", fmt.Sprintf("kill -%d $$; sleep 100", c.n)}
			}
			x := wait(t, start(t, l, spec))
			if x.Code != c.want.Code || x.Signal != c.want.Signal {
				t.Errorf("%s %d: %+v", c.how, c.n, x)
			}
		}
	})
}

func TestOutputIsCompleteAndStreamsAreHandedOn(t *testing.T) {
	t.Parallel()
	eachSystem(t, func(t *testing.T, system string, l *Launcher) {
		dir := t.TempDir()
		var out bytes.Buffer
		wait(t, start(t, l, role(t, "long", dir, &out)))
		if out.Len() != 2<<20 {
			t.Errorf("%d bytes", out.Len())
		}
		f, err := os.Create(filepath.Join(t.TempDir(), "file")) // where the job could not write by name
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		wait(t, start(t, l, role(t, "long", dir, f)))
		if st, err := f.Stat(); err != nil || st.Size() != 2<<20 {
			t.Errorf("file: %v, %v", st.Size(), err)
		}
		// Who takes no more does not hold the job up.
		_ = wait(t, start(t, l, role(t, "long", dir, &failing{})))
		out.Reset()
		cat := Spec{Path: "/bin/cat", Dir: dir, StdinPipe: true, Stdout: &out, Profile: ShellProfile(dir)}
		j := start(t, l, cat)
		fmt.Fprint(j.Stdin(), "by pipe")
		if err := j.Stdin().Close(); err != nil {
			t.Error(err)
		}
		wait(t, j)
		if out.String() != "by pipe" || j.Stdin().Close() != nil {
			t.Errorf("got %q", out.String())
		}
	})
}

type failing struct{}

func (*failing) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestStopAndKillEndEverything(t *testing.T) {
	t.Parallel()
	eachSystem(t, func(t *testing.T, system string, _ *Launcher) {
		for name, end := range map[string]func(*Job, *Launcher){
			"stop":  func(j *Job, _ *Launcher) { j.Stop() },
			"kill":  func(j *Job, _ *Launcher) { j.Kill() },
			"close": func(_ *Job, l *Launcher) { l.Close() },
		} {
			dir, word := t.TempDir(), token(t)+name
			l := launcher(t, Options{System: systemNamed(system)})
			var out lockedBuffer
			s := role(t, "hydra", dir, &out, word)
			s.Env, s.Grace = append(s.Env, "CONFINE_STAY=1"), 50*time.Millisecond
			j := start(t, l, s)
			until(t, "the heads are there", func() bool { return strings.Count(out.String(), "head") == 3 })
			until(t, "their parents have died", func() bool { return len(alive(word)) == 4 })
			end(j, l)
			j.Stop()
			j.Kill() // twice and in any order
			x := wait(t, j)
			if x.Signal != "SIGKILL" {
				t.Errorf("%s: %v", name, x)
			}
			if left := alive(word); len(left) > 0 {
				t.Errorf("%s left %v", name, left)
			}
		}
	})
}

func TestStopIsPoliteFirst(t *testing.T) {
	t.Parallel()
	eachSystem(t, func(t *testing.T, system string, l *Launcher) {
		dir := t.TempDir()
		var out lockedBuffer
		j := start(t, l, Spec{
			Path: "/bin/sh", Args: []string{"sh", "-c", "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.05; done"},
			Env: []string{"PATH=/usr/bin:/bin"}, Dir: dir, Stdout: &out, Profile: ShellProfile(dir), Grace: patience,
		})
		until(t, "it is ready", func() bool { return strings.Contains(out.String(), "ready") })
		j.Stop()
		if x := wait(t, j); x.Code != 3 || !strings.Contains(out.String(), "bye") {
			t.Errorf("%v, %q", x, out.String())
		}
	})
}

func TestWhatAProgramLeavesEndsWithIt(t *testing.T) {
	t.Parallel()
	eachSystem(t, func(t *testing.T, system string, l *Launcher) {
		dir, word := t.TempDir(), token(t)
		var out lockedBuffer // the heads hold its pipe
		x := wait(t, start(t, l, role(t, "hydra", dir, &out, word)))
		if x.Code != 4 {
			t.Errorf("%v: %s", x, out.String())
		}
		if left := alive(word); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	})
}

func TestNothingOutlivesADaemonThatIsKilled(t *testing.T) {
	needWalls(t)
	rounds := 50
	if testing.Short() {
		rounds = 5
	}
	for _, system := range systems {
		t.Run(system, func(t *testing.T) {
			var worst time.Duration
			for i := range rounds {
				word := token(t) + strconv.Itoa(i)
				cmd := exec.Command(self(t), word)
				tmp := t.TempDir()
				cmd.Env = []string{"CONFINE_ROLE=daemon", "CONFINE_SYSTEM=" + system, "CONFINE_DIR=" + t.TempDir(), "TMPDIR=" + tmp}
				var out lockedBuffer
				file, err := os.CreateTemp(t.TempDir(), "out")
				if err != nil {
					t.Fatal(err)
				}
				cmd.Stdout, cmd.Stderr = file, file
				if err := Start(cmd); err != nil {
					t.Fatal(err)
				}
				read := func() string { b, _ := os.ReadFile(file.Name()); return string(b) + out.String() }
				until(t, "the heads are there: "+read(), func() bool { return strings.Count(read(), "head") == 3 })
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
				at := time.Now()
				_ = Wait(cmd)
				until(t, "they are gone", func() bool { return len(alive(word)) == 0 })
				worst = max(worst, time.Since(at))
				until(t, "no directory is left", func() bool {
					left, err := os.ReadDir(tmp)
					return err == nil && len(left) == 0
				})
				file.Close()
			}
			t.Logf("%d times, the longest took %v", rounds, worst)
		})
	}
}

func TestALauncherThatIsKilledTakesItsJobAlong(t *testing.T) {
	needWalls(t)
	stop, err := Adopt(launcher(t, Options{}).log)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	eachSystem(t, func(t *testing.T, system string, l *Launcher) {
		dir, word := t.TempDir(), token(t)
		var out lockedBuffer
		s := role(t, "hydra", dir, &out, word)
		s.Env = append(s.Env, "CONFINE_STAY=1")
		j := start(t, l, s)
		until(t, "the heads are there", func() bool { return strings.Count(out.String(), "head") == 3 })
		st, err := statOf(j.PID())
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(st.parent, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {
		case <-j.Done():
		case <-time.After(patience):
			t.Fatal("the job does not end")
		}
		if _, err := j.Wait(); !fault.Is(err, fault.Unknown) {
			t.Errorf("error %v", err)
		}
		until(t, "the job is gone", func() bool { return len(alive(word)) == 0 })
	})
}

func TestAForkBombStopsAtItsLimit(t *testing.T) {
	t.Parallel()
	eachSystem(t, func(t *testing.T, system string, l *Launcher) {
		dir := t.TempDir()
		if os.Geteuid() == 0 && (system != "with namespaces" || !ownPIDMax()) {
			t.Skip("only a cgroup holds root here")
		}
		var out lockedBuffer
		s := role(t, "bomb", dir, &out)
		s.Profile.Limits.Processes = 64
		x := wait(t, start(t, l, s))
		var n int
		if _, err := fmt.Sscanf(out.String(), "refused after %d", &n); err != nil || x.Code != 0 || n > 64+2*firstReused {
			t.Errorf("%v, %q", x, out.String())
		}
		// And it is still possible to start another.
		wait(t, start(t, l, role(t, "die", dir, nil, "exit", "0")))
	})
}

func TestADiskIsNotFilledPastTheLimit(t *testing.T) {
	t.Parallel()
	eachSystem(t, func(t *testing.T, system string, l *Launcher) {
		dir := t.TempDir()
		var out lockedBuffer
		s := role(t, "fill", dir, &out, dir)
		s.Args = []string{s.Path, dir}
		if system == "with namespaces" {
			s.Args = append(s.Args, "/tmp", "/dev/shm")
		}
		s.Profile.Limits = Limits{FileSize: 8 << 20, Tmp: 4 << 20}
		wait(t, start(t, l, s))
		want := "wrote 8 MiB: file too large\n"
		if system == "with namespaces" {
			want += strings.Repeat("wrote 4 MiB: no space left on device\n", 2)
		}
		if out.String() != want {
			t.Errorf("got %q", out.String())
		}
	})
}

func TestAJobHasThreeDescriptors(t *testing.T) {
	t.Parallel()
	// One that somebody forgot to close on exec.
	f, err := os.Open(self(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	leaked, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leaked)
	eachSystem(t, func(t *testing.T, system string, l *Launcher) {
		dir := t.TempDir()
		var out lockedBuffer
		wait(t, start(t, l, role(t, "fds", dir, &out)))
		if out.String() != "0\n1\n2\n" {
			t.Errorf("it has %q", out.String())
		}
	})
}

func TestStartsLeaveNoDescriptorsHere(t *testing.T) {
	needWalls(t)
	l := launcher(t, Options{})
	dir := t.TempDir()
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	run := func(i int) {
		var out lockedBuffer
		s := role(t, "die", dir, &out, "exit", "0")
		s.Stdin = strings.NewReader("x")
		if i%3 == 1 {
			s.Path, s.Args = "/bin/cat", nil
			s.Stdin, s.StdinPipe = nil, true
		}
		if i%3 == 2 { // found out after the launcher is there
			bad := filepath.Join(dir, "bad")
			if err := os.WriteFile(bad, []byte("no program"), 0o755); err != nil {
				t.Fatal(err)
			}
			s.Path = bad
			if _, err := l.Start(t.Context(), s); err == nil {
				t.Fatal("that was started")
			}
			return
		}
		j := start(t, l, s)
		if s.StdinPipe {
			j.Stdin().Close()
		}
		wait(t, j)
	}
	run(0)
	before := count()
	rounds := 200
	if testing.Short() {
		rounds = 40
	}
	for i := range rounds {
		run(i)
	}
	until(t, "no more descriptors than before", func() bool { return count() <= before+1 })
}

func TestWhatCannotStartIsSaidToHaveNotRun(t *testing.T) {
	t.Parallel()
	eachSystem(t, func(t *testing.T, system string, l *Launcher) {
		dir := t.TempDir()
		file := func(name, text string, mode os.FileMode) string {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(text), mode); err != nil {
				t.Fatal(err)
			}
			return path
		}
		good := Spec{Path: "/bin/true", Dir: dir, Profile: ShellProfile(dir)}
		for name, c := range map[string]struct {
			change func(*Spec)
			class  fault.Class
		}{
			"no such program":     {func(s *Spec) { s.Path = "/bin/no-such-program" }, fault.NotFound},
			"not executable":      {func(s *Spec) { s.Path = file("text", "text", 0o644) }, fault.Permission},
			"a directory":         {func(s *Spec) { s.Path = "/usr" }, fault.Permission},
			"no program":          {func(s *Spec) { s.Path = file("garbage", "garbage", 0o755) }, fault.Invalid},
			"no interpreter":      {func(s *Spec) { s.Path = file("script", "#!/no/such/sh\n", 0o755) }, fault.NotFound},
			"no such directory":   {func(s *Spec) { s.Dir = filepath.Join(dir, "none") }, fault.NotFound},
			"directory is a file": {func(s *Spec) { s.Dir = file("file", "", 0o644) }, fault.Invalid},
			"one long argument":   {func(s *Spec) { s.Args = []string{"x", strings.Repeat("x", 200<<10)} }, fault.Invalid},
			"long arguments":      {func(s *Spec) { s.Args = slices.Repeat([]string{strings.Repeat("x", 100<<10)}, 40) }, fault.Invalid},
			"endless arguments":   {func(s *Spec) { s.Args = slices.Repeat([]string{strings.Repeat("x", 100<<10)}, 100) }, fault.Invalid},
			"relative program":    {func(s *Spec) { s.Path = "true" }, fault.Invalid},
			"NUL":                 {func(s *Spec) { s.Env = []string{"A=\x00"} }, fault.Invalid},
			"two inputs":          {func(s *Spec) { s.Stdin, s.StdinPipe = strings.NewReader(""), true }, fault.Invalid},
			"relative wall":       {func(s *Spec) { s.Profile.Write = []string{"here"} }, fault.Invalid},
		} {
			s := good
			c.change(&s)
			j, err := l.Start(t.Context(), s)
			if j != nil || fault.ClassOf(err) != c.class {
				t.Errorf("%s: %v (%s)", name, err, fault.ClassOf(err))
			}
		}
	})
}

func TestAKernelThatLacksSomethingFailsClosed(t *testing.T) {
	t.Parallel()
	needWalls(t)
	for name, c := range map[string]struct {
		system fakeSystem
		says   string
	}{
		"no Landlock":             {fakeSystem{0, true, nil}, "Landlock"},
		"no seccomp":              {fakeSystem{landlockABI(), false, nil}, "seccomp"},
		"signals are not kept in": {fakeSystem{5, true, errNoNamespaces}, "signal"},
		"nothing":                 {fakeSystem{0, false, errNoNamespaces}, "Landlock"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			spec := Spec{Path: "/bin/sh", Args: []string{"sh", "-c", "echo ran > ran"}, Dir: dir, Profile: ShellProfile(dir)}
			strict := launcher(t, Options{System: c.system})
			_, err := strict.Start(t.Context(), spec)
			if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "nothing ran") {
				t.Errorf("strict: %v", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
				t.Error("it ran")
			}
			if r := strict.Report(); r.Confined || !strings.Contains(strings.Join(r.Missing, "; "), c.says) {
				t.Errorf("report %+v", r)
			}
			best := launcher(t, Options{System: c.system, Enforce: EnforceBest})
			if x := wait(t, start(t, best, spec)); x.Code != 0 {
				t.Errorf("best: %v", x)
			}
			if _, err := os.Stat(filepath.Join(dir, "ran")); err != nil {
				t.Error(err)
			}
			if r := best.Report(); r.Confined || len(r.Missing) == 0 {
				t.Errorf("report %+v", r)
			}
		})
	}
}

func TestWithoutEnforcementAJobIsStillHeld(t *testing.T) {
	t.Parallel()
	l := launcher(t, Options{Enforce: EnforceOff})
	dir, word := t.TempDir(), token(t)
	outside := filepath.Join(t.TempDir(), "file")
	var out lockedBuffer
	s := role(t, "hydra", dir, &out, word)
	if x := wait(t, start(t, l, s)); x.Code != 4 {
		t.Errorf("%v", x)
	}
	if left := alive(word); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	wait(t, start(t, l, Spec{Path: "/bin/sh", Args: []string{"sh", "-c", "echo out > " + outside}, Dir: dir, Profile: ShellProfile(dir)}))
	if _, err := os.Stat(outside); err != nil {
		t.Error(err)
	}
	if r := l.Report(); r.Confined || len(r.Missing) != 1 {
		t.Errorf("report %+v", r)
	}
}

func TestProxyIsTheOnlyNetwork(t *testing.T) {
	t.Parallel()
	needWalls(t)
	dir := t.TempDir()
	served := make(chan Owner, 1)
	stopped := make(chan struct{})
	l := launcher(t, Options{Proxy: func(ln net.Listener, o Owner) func() {
		go func() {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			text := make([]byte, 6)
			io.ReadFull(conn, text)
			fmt.Fprintf(conn, "served %s", text)
			served <- o
		}()
		return func() { ln.Close(); close(stopped) }
	}})
	if err := l.probe.abilities().namespaces; err != nil {
		t.Skip("no namespaces here:", err)
	}
	var out lockedBuffer
	s := role(t, "relay", dir, &out)
	s.Profile = HarnessProfile(dir, "")
	wait(t, start(t, l, s))
	if got := out.String(); !strings.HasPrefix(got, "served hello") || <-served != s.Owner {
		t.Errorf("got %q", got)
	}
	<-stopped
}

func TestProxyIsRefusedWhereThereIsNone(t *testing.T) {
	t.Parallel()
	needWalls(t)
	dir := t.TempDir()
	proxy := func(ln net.Listener, _ Owner) func() { return func() {} }
	for name, o := range map[string]Options{
		"no proxy":      {},
		"no namespaces": {Proxy: proxy, System: systemNamed("without namespaces")},
		"best":          {Proxy: proxy, System: systemNamed("without namespaces"), Enforce: EnforceBest},
	} {
		l := launcher(t, o)
		if _, err := l.Start(t.Context(), Spec{Path: "/bin/true", Dir: dir, Profile: HarnessProfile(dir, "")}); !fault.Is(err, fault.Unavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestASocketByLeave(t *testing.T) {
	t.Parallel()
	eachSystem(t, func(t *testing.T, system string, l *Launcher) {
		if _, err := exec.LookPath("python3"); err != nil {
			t.Skip("no python3")
		}
		dir, outside := t.TempDir(), t.TempDir()
		allowed, other := filepath.Join(outside, "a.sock"), filepath.Join(outside, "b.sock")
		for _, path := range []string{allowed, other} {
			ln, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			go func() {
				for {
					conn, err := ln.Accept()
					if err != nil {
						return
					}
					fmt.Fprint(conn, "hello ", filepath.Base(path))
					conn.Close()
				}
			}()
		}
		script := `import socket, sys, os, tempfile
def ask(path):
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(path); print(s.recv(100).decode())
    except OSError as e: print("refused")
ask(sys.argv[1])
os.symlink(sys.argv[1], "link"); ask("link")
os.unlink("link"); os.symlink(sys.argv[2], "link"); ask("link")
ask(sys.argv[2])
`
		var out lockedBuffer
		p := ShellProfile(dir)
		p.UnixSockets = []string{allowed}
		x := wait(t, start(t, l, Spec{
			Path: "/usr/bin/python3", Args: []string{"python3", "-c", script, allowed, other}, Env: []string{"PATH=/usr/bin"},
			Dir: dir, Stdout: &out, Stderr: &out, Profile: p,
		}))
		if want := "hello a.sock\nhello a.sock\nrefused\nrefused\n"; out.String() != want {
			t.Errorf("got %q, %+v", out.String(), x)
		}
	})
}

func TestHiddenIsNotSeenAndWhatIsInItByNameIs(t *testing.T) {
	t.Parallel()
	eachSystem(t, func(t *testing.T, system string, _ *Launcher) {
		state := outsideDir(t)
		work := filepath.Join(state, "workspace")
		if err := os.MkdirAll(work, 0o755); err != nil {
			t.Fatal(err)
		}
		l := launcher(t, Options{System: systemNamed(system), Hide: []string{state}})
		var out lockedBuffer
		p := ShellProfile(work)
		p.Read = append(p.Read, filepath.Dir(state)) // hidden all the same
		x := wait(t, start(t, l, Spec{
			Path: "/bin/sh", Args: []string{"sh", "-c", "echo in > file; cat file; cat ../plain ../hidden/key; echo x > ../plain; ls ..; true"},
			Env: []string{"PATH=/usr/bin:/bin"}, Dir: work, Stdout: &out, Profile: p,
		}))
		got := out.String()
		if !strings.HasPrefix(got, "in\n") || strings.Contains(got, "secret") || strings.Contains(got, "text") {
			t.Errorf("%v: %q", x, got)
		}
		checkOutside(t, state)
		if !slices.ContainsFunc(x.Denials, func(d Denial) bool { return d.Target == filepath.Join(state, "plain") }) {
			t.Errorf("not told: %+v", x.Denials)
		}
	})
}

func TestManyJobsAtOnce(t *testing.T) {
	t.Parallel()
	eachSystem(t, func(t *testing.T, system string, l *Launcher) {
		dir := t.TempDir()
		var wg sync.WaitGroup
		for i := range 24 {
			wg.Go(func() {
				var out bytes.Buffer
				s := role(t, "die", dir, &out, "exit", strconv.Itoa(i))
				if i%4 == 0 {
					s.Path, s.Args = "/bin/sleep", []string{"sleep", "1000"}
				}
				j, err := l.Start(t.Context(), s)
				if err != nil {
					t.Error(err)
					return
				}
				if i%4 == 0 {
					j.Kill()
				}
				x, err := j.Wait()
				if err != nil || i%4 != 0 && x.Code != i || i%4 == 0 && x.Signal != "SIGKILL" {
					t.Errorf("job %d: %v, %v", i, x, err)
				}
			})
		}
		wg.Wait()
		l.Close()
		if _, err := l.Start(t.Context(), role(t, "die", dir, nil, "exit", "0")); !fault.Is(err, fault.Unavailable) {
			t.Errorf("started after the end: %v", err)
		}
	})
}

// Somebody watches a nested job already, and it can have no namespaces: its walls
// stand all the same.
func TestAJobInAJobIsConfined(t *testing.T) {
	t.Parallel()
	eachSystem(t, func(t *testing.T, system string, l *Launcher) {
		dir, outside := t.TempDir(), outsideDir(t)
		var out lockedBuffer
		s := role(t, "nested", dir, &out)
		s.Env = append(s.Env, "SECRET="+filepath.Join(outside, ".ssh/id_ed25519"))
		wait(t, start(t, l, s))
		if got := out.String(); got != "inside\nexit code 1 <nil>\n" {
			t.Errorf("got %q", got)
		}
	})
}

// BenchmarkOpenSeen shows what watching costs a program that opens files.
func BenchmarkOpenSeen(b *testing.B) {
	const opens = 20_000
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		Enforce
		unwatched bool
	}{{"off", EnforceOff, false}, {"watched", EnforceStrict, false}, {"unwatched", EnforceStrict, true}} {
		b.Run(c.name, func(b *testing.B) {
			l, err := New(Options{Enforce: c.Enforce})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			p := ShellProfile(dir)
			p.Unwatched = c.unwatched
			run := func(n int) time.Duration {
				at := time.Now()
				j, err := l.Start(b.Context(), Spec{
					Path: exe, Args: []string{exe, strconv.Itoa(n)}, Env: []string{"CONFINE_ROLE=opener"}, Dir: dir, Profile: p,
				})
				if err != nil {
					b.Fatal(err)
				}
				if x, err := j.Wait(); err != nil || x.Code != 0 {
					b.Fatal(x, err)
				}
				return time.Since(at)
			}
			var spent time.Duration
			for b.Loop() {
				spent += run(opens) - run(0)
			}
			b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N*opens), "ns/open")
		})
	}
}

// A job speaks to sockets it made itself, and exchanging the way to one for a way
// outside does not help it.
func TestASwitchedLinkDoesNotLeadToASocketOutside(t *testing.T) {
	t.Parallel()
	needWalls(t)
	l := launcher(t, Options{})
	if err := l.probe.abilities().namespaces; err != nil {
		t.Skip("no namespaces here:", err)
	}
	outside := outsideDir(t)
	ln, err := net.Listen("unix", filepath.Join(outside, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	accepted := make(chan struct{}, 1)
	go func() {
		if conn, err := ln.Accept(); err == nil {
			conn.Close()
			accepted <- struct{}{}
		}
	}()
	dir := t.TempDir()
	var out lockedBuffer
	s := role(t, "switch", dir, &out)
	s.Env = append(s.Env, "OUTSIDE="+outside)
	x := wait(t, start(t, l, s))
	var n int
	if _, err := fmt.Sscanf(out.String(), "connected %d", &n); err != nil || n == 0 {
		t.Errorf("%v, %q", x, out.String())
	}
	select {
	case <-accepted:
		t.Error("the socket outside was reached")
	default:
	}
}

func TestALauncherThatDoesNotAnswerIsGivenUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spec := Spec{Path: "/bin/true", Dir: dir, Profile: ShellProfile(dir)}
	for name, c := range map[string]struct {
		exe   string
		class fault.Class
	}{
		"silent":  {"/usr/bin/yes", fault.Timeout},
		"ends":    {"/bin/true", fault.Unavailable},
		"missing": {"/no/such/launcher", fault.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := launcher(t, Options{Exe: c.exe, System: fakeSystem{}, Enforce: EnforceBest})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if name == "silent" {
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
			}
			defer cancel()
			if _, err := l.Start(ctx, spec); fault.ClassOf(err) != c.class {
				t.Errorf("%v (%s)", err, fault.ClassOf(err))
			}
		})
	}
}

func TestNoGoroutineStays(t *testing.T) {
	needWalls(t)
	before := goleak.IgnoreCurrent()
	l := launcher(t, Options{})
	dir := t.TempDir()
	for _, s := range []Spec{
		{Path: "/bin/true", Dir: dir, Profile: ShellProfile(dir), Stdout: io.Discard, Stdin: strings.NewReader("x")},
		{Path: "/bin/sleep", Args: []string{"sleep", "1000"}, Dir: dir, Profile: ShellProfile(dir), StdinPipe: true},
	} {
		j := start(t, l, s)
		j.Stop()
		wait(t, j)
	}
	l.Close()
	goleak.VerifyNone(t, before)
}

func TestMemoryIsTakenFromAJobFirst(t *testing.T) {
	t.Parallel()
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	eachSystem(t, func(t *testing.T, system string, l *Launcher) {
		out := &bytes.Buffer{}
		dir := t.TempDir()
		spec := role(t, "die", dir, out)
		spec.Path, spec.Args = "/bin/cat", []string{"cat", "/proc/self/oom_score_adj"}
		if x := wait(t, start(t, l, spec)); x.Code != 0 || strings.TrimSpace(out.String()) != oomScore || string(own) == out.String() {
			t.Errorf("%s: %+v, a job has %q, we %q", system, x, out, own)
		}
	})
}
