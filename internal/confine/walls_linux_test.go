package confine

import (
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

	"github.com/ombud-run/ombud/internal/fault"
)

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

// Somebody watches a nested job already, and it can have no namespaces: its walls
// stand all the same.
// What is hidden stays so where a profile names it word for word, and where it comes
// only after the launcher.
func TestHiddenIsWhatIsThereWhenAJobStarts(t *testing.T) {
	t.Parallel()
	eachSystem(t, func(t *testing.T, system string, _ *Launcher) {
		state := outsideDir(t)
		named, late, link := filepath.Join(state, "hidden"), filepath.Join(state, "late"), filepath.Join(state, "link")
		l := launcher(t, Options{System: systemNamed(system), Hide: []string{named, late, link}})
		work := t.TempDir()
		for _, dir := range []string{late, filepath.Join(state, "kept")} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "key"), []byte("secret"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("kept", link); err != nil {
			t.Fatal(err)
		}
		var out lockedBuffer
		p := ShellProfile(work)
		p.Read = append(p.Read, state)
		p.Write = append(p.Write, named)
		wait(t, start(t, l, Spec{
			Path: "/bin/sh", Args: []string{"sh", "-c", `cat "$1/plain" "$1/hidden/key" "$1/late/key" "$1/link/key" "$1/kept/key"; echo x > "$1/hidden/key"; true`, "sh", state},
			Env: []string{"PATH=/usr/bin:/bin"}, Dir: work, Stdout: &out, Profile: p,
		}))
		if got := out.String(); got != "text" {
			t.Errorf("it read %q", got)
		}
		checkOutside(t, state)
	})
}

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
