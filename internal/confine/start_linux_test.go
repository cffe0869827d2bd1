package confine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ombud-run/ombud/internal/fault"
)

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
