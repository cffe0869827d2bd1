package confine

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/ombud-run/ombud/internal/fault"
)

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
